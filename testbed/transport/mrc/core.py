"""What the halves of an endpoint share: configuration, memory, ports, destinations, QPs, and the way out for control."""

from __future__ import annotations

import random

from testbed.transport.common.codepoints import TCLASS_CONTROL
from testbed.transport.common.events import Event, QueuePairError, Recorder
from testbed.transport.common.memory import Memory
from testbed.transport.common.ports import PortClock
from testbed.transport.common.psn import PSN_MASK
from testbed.transport.mrc import packets
from testbed.transport.mrc.backpressure import BackPressure
from testbed.transport.mrc.codepoints import Opcode
from testbed.transport.mrc.config import EndpointConfig
from testbed.transport.mrc.packets import Datagram, control
from testbed.transport.mrc.paths import Path
from testbed.transport.mrc.planes import PlaneCause
from testbed.transport.mrc.probes import Prober
from testbed.transport.mrc.queue_pair import Peer, QpState, QueuePair
from testbed.transport.mrc.responder import Responder, Trigger
from testbed.transport.mrc.trace import Kind

COUNTERS = (
    "dropped_access",
    "dropped_bad_sack",
    "dropped_endpoint_request",
    "dropped_icrc",
    "dropped_no_qp",
    "dropped_not_mrc",
    "dropped_opcode",
    "dropped_out_of_window",
    "dropped_short",
    "marks",
    "nacks",
    "nacks_sent",
    "port_updates",
    "reliability_probes",
    "reverse_probes",
    "sacks",
    "timeouts",
    "transport_acks",
)


class Core:
    """Shared state of one endpoint. `out` holds datagrams until the next `transmit`."""

    def __init__(self, config: EndpointConfig, recorder: Recorder, seed: int | str) -> None:
        self.config = config
        self.recorder = recorder
        self.decision = recorder.decision
        self.rng = random.Random(seed)
        self.memory = Memory(self.rng)
        full = packets.inner_bytes(config.payload)
        self.ports = {port.plane: PortClock(port, full, config.overhead_bytes) for port in config.ports}
        self.peers: dict[bytes, Peer] = {}  # by inner address
        self.qps: dict[int, QueuePair] = {}
        self.prober = Prober(config.rtt_base_ns, config.probe_answers, recorder.decision)
        self.backpressure = BackPressure(config.rtt_base_ns, enabled=config.backpressure)
        self.events: list[Event] = []
        self.out: list[Datagram] = []
        self.owing: dict[QueuePair, None] = {}  # QPs that owe a SACK or an ACK at the end of this batch
        self.counters: dict[str, int] = dict.fromkeys(COUNTERS, 0)
        self.placed_bytes = 0

    def send_sack(
        self,
        qp: QueuePair,
        responder: Responder,
        trigger: Trigger,
        now: int,
        *,
        probe_id: int | None = None,
        said: tuple[int, int] | None = None,
        path: Path | None = None,
    ) -> None:
        """On `path`, or on the next of the ways back that are trusted."""
        penalty = self.backpressure.penalty(now)
        body = responder.sack(trigger, qp.number, qp.remote, penalty=penalty, probe_id=probe_id, said=said)
        self.counters["sacks"] += 1
        self.send_on(path or qp.peer.reverse.pick(now), qp.peer, Opcode.SACK, qp.remote, trigger.psn & PSN_MASK, body, now)

    def send_nack(self, qp: QueuePair, responder: Responder, reason: int, trigger: Trigger, now: int) -> None:
        body = responder.nack(reason, trigger, qp.number, qp.remote)
        if self.decision is not None:
            self.decision(now, Kind.NACK_SENT, qp.number, trigger.psn & PSN_MASK, trigger.ev, reason)
        self.counters["nacks_sent"] += 1
        self.send_control(qp.peer, Opcode.NACK, qp.remote, trigger.psn & PSN_MASK, body, now)

    def send_ack(self, qp: QueuePair, responder: Responder, now: int, path: Path | None = None) -> None:
        """As `send_sack`."""
        self.counters["transport_acks"] += 1
        path = path or qp.peer.reverse.pick(now)
        body = responder.transport_ack()
        self.send_on(path, qp.peer, Opcode.TRANSPORT_ACK, qp.remote, responder.window.cack & PSN_MASK, body, now)

    def send_control(self, peer: Peer, opcode: Opcode, dqp: int, psn: int, body: bytes, now: int) -> None:
        """Queue a control packet, on the next of the ways back that are trusted."""
        self.send_on(peer.reverse.pick(now), peer, opcode, dqp, psn, body, now)

    def send_on(self, path: Path, peer: Peer, opcode: Opcode, dqp: int, psn: int, body: bytes, now: int) -> None:
        """Queue a control packet on `path`."""
        buffers, inner = control(peer.link, path, opcode, dqp, psn, body)
        path.port.depart(inner, now)
        self.out.append((path.destination, TCLASS_CONTROL, buffers))

    def heard(self, peer: Peer, now: int) -> None:
        """Something that will be answered came from `peer`: keep the way back to it proven."""
        if self.config.probes and peer.reverse.next_refresh <= now and (path := peer.reverse.refresh(now)) is not None:
            self.counters["reverse_probes"] += 1
            self.out.append(self.prober.reverse(peer.index, peer.paths, path, peer.link, now))

    def port_event(self, peer: Peer, plane: int, cause: PlaneCause, now: int) -> None:
        """A port of `plane` changed, here or at `peer`. When the plane leaves use, what is in flight there is sent again."""
        if peer.paths.port_event(plane, cause, now):
            for qp in peer.qps:
                qp.requester.plane_lost(plane, now)

    def move(self, qp: QueuePair, state: QpState, now: int) -> None:
        """Take a QP to another state. Raises QpStateError where the table has no such step."""
        before = qp.state
        qp.become(state)
        if self.decision is not None:
            order = list(QpState)
            self.decision(now, Kind.QP_STATE, qp.number, qp.psn, 0, order.index(before) << 8 | order.index(state))

    def fail(self, qp: QueuePair, reason: str, now: int) -> None:
        """The QP goes into error; what was posted is forgotten, and the application told once."""
        if qp.state is QpState.ERROR:
            return
        self.move(qp, QpState.ERROR, now)
        qp.requester.abort()
        self.events.append(QueuePairError(qp.number, reason))
