"""One NIC of the baseline: ports, destinations, QPs, memory, behind `receive`, `transmit`, `next_timer`, `on_timer`, `events`.

Knows no socket and no clock, as `mrc.endpoint`. Bad input never raises; it is dropped and counted.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from testbed.transport.common.codepoints import ECN_CE, TCLASS_CONTROL, UDP_PORT
from testbed.transport.common.events import (
    RECEIVED_CE,
    RECEIVED_DUPLICATE,
    RECEIVED_REFUSED,
    RECEIVED_RETRANSMISSION,
    Event,
    ImmediateReceived,
    QueuePairError,
    Recorder,
    WriteComplete,
)
from testbed.transport.common.icrc import Checker
from testbed.transport.common.memory import Memory, MemoryRegion
from testbed.transport.common.ports import PortClock
from testbed.transport.common.psn import PSN_BITS, PSN_MASK, expand
from testbed.transport.rc import wire
from testbed.transport.rc.config import EndpointConfig
from testbed.transport.rc.dcqcn import CNP_RTTS
from testbed.transport.rc.path import FIRST_SOURCE_PORT, Path, ev_of, hashed
from testbed.transport.rc.requester import Requester
from testbed.transport.rc.responder import Responder

Datagram = tuple[tuple[str, int, int, int], int, wire.Buffers]

_FIRST_QP = 16
_SHORTEST = wire.BODY_AT + 4
_CNP_BODY = bytes(16)
COUNTERS = (
    "acks",
    "cnps",
    "cnps_sent",
    "dropped_access",
    "dropped_icrc",
    "dropped_no_qp",
    "dropped_not_rc",
    "dropped_opcode",
    "dropped_out_of_order",
    "marks",
    "naks",
    "naks_sent",
)


class Peer:
    """A destination and all its paths; each QP is hashed onto one of them."""

    __slots__ = ("index", "inner", "paths")

    def __init__(self, index: int, inner: bytes, paths: list[Path]) -> None:
        self.index = index
        self.inner = inner
        self.paths = paths


class QueuePair:
    """One end of a connection; `psn` is the first that it sends."""

    __slots__ = ("number", "peer", "psn", "remote", "requester", "responder", "source_port")

    def __init__(self, number: int, psn: int, peer: Peer, source_port: int, requester: Requester) -> None:
        self.number = number
        self.psn = psn
        self.peer = peer
        self.source_port = source_port
        self.requester = requester
        self.remote = 0
        self.responder: Responder | None = None


class Endpoint:
    """One host's RoCE NIC."""

    def __init__(self, config: EndpointConfig, recorder: Recorder, seed: int | str) -> None:
        self.config = config
        self.counters: dict[str, int] = dict.fromkeys(COUNTERS, 0)
        self._recorder = recorder
        self._rng = random.Random(seed)
        self._memory = Memory(self._rng)
        full = wire.full_inner_bytes(config.payload)
        self._ports = {port.plane: PortClock(port, full, config.overhead_bytes) for port in config.ports}
        self._patience_ns = min(port.frame_ns for port in self._ports.values()) * 2 // 5  # as in mrc.endpoint
        self._peers: dict[int, Peer] = {}
        self._qps: dict[int, QueuePair] = {}
        self._senders: list[QueuePair] = []  # round robin
        self._checker = Checker()
        self._events: list[Event] = []
        self._out: list[Datagram] = []
        self._owing: dict[int, QueuePair] = {}
        self._wake: int | None = None
        self._placed_bytes = 0

    # Set-up

    def register(self, buffer: memoryview) -> MemoryRegion:
        """Allow peers to WRITE into `buffer`."""
        return self._memory.register(buffer)

    def add_peer(self, index: int, inner: bytes, paths: Sequence[tuple[int, int, str]]) -> None:
        """A destination and its equal-cost paths: (EV, plane, outer destination address) each."""
        known = [Path(ev, plane, (address, 0, 0, 0), self._ports[plane]) for ev, plane, address in paths]
        self._peers[index] = Peer(index, inner, known)

    def create_qp(self, peer_index: int) -> QueuePair:
        """A QP towards a known peer; its number and first PSN are to be told to the other side."""
        peer, config = self._peers[peer_index], self.config
        number = _FIRST_QP + len(self._qps)
        psn = self._rng.getrandbits(PSN_BITS)
        source_port = FIRST_SOURCE_PORT | self._rng.getrandbits(14)
        path = hashed(peer.paths, config.inner, peer.inner, source_port)
        requester = Requester(number, psn, config, config.inner, peer.inner, source_port, path, self._recorder)
        qp = self._qps[number] = QueuePair(number, psn, peer, source_port, requester)
        return qp

    def connect_qp(self, number: int, remote_number: int, remote_psn: int) -> None:
        """Both directions are ready after this."""
        qp = self._qps[number]
        qp.remote = qp.requester.remote = remote_number
        qp.responder = Responder(remote_psn)
        self._senders.append(qp)

    def deny(self, peer_index: int, ev: int, now: int) -> None:
        """A hash cannot be told to avoid a path."""
        del peer_index, ev, now
        raise ValueError("rc has no denylist")

    def allow(self, peer_index: int, ev: int, now: int) -> None:
        """As `deny`."""
        del peer_index, ev, now
        raise ValueError("rc has no denylist")

    def post_write(
        self, number: int, wr_id: int, data: memoryview, remote_address: int, rkey: int, immediate: int | None, now: int
    ) -> None:
        """Post one RDMA WRITE (WITH_IMM when `immediate` is given). `data` must not change until it completes."""
        del now
        qp = self._qps[number]
        if not data:
            raise ValueError("a WRITE carries at least one byte")
        if qp.responder is None or qp.requester.failed:
            raise ValueError(f"QP {number} is not ready to send")
        qp.requester.post(wr_id, data, remote_address, rkey, immediate)

    def port_state(self, plane: int, up: bool, now: int) -> None:
        """A port's carrier: QPs hashed onto a port without one are hashed anew among the others, as a bond does, and go back
        when it returns. Nobody tells the peer.
        """
        self._ports[plane].carrier(up, now)
        self._recorder.port_state(now, plane, up)
        for qp in self._qps.values():
            alive = [path for path in qp.peer.paths if path.port.up]
            qp.requester.path = hashed(alive or qp.peer.paths, self.config.inner, qp.peer.inner, qp.source_port)

    # Input

    def receive(self, packet: memoryview, tclass: int, now: int) -> None:
        """Take one inner packet, with the traffic class of the outer header it came in."""
        counters = self.counters
        if len(packet) < _SHORTEST or packet[6] != 17 or packet[24:40] != self.config.inner:
            counters["dropped_not_rc"] += 1
            return
        if wire.read_word(packet, 40) & 0xFFFF != UDP_PORT:
            counters["dropped_not_rc"] += 1
            return
        if not self._checker.valid(packet):
            counters["dropped_icrc"] += 1
            return
        qp = self._qps.get(wire.read_word(packet, wire.BTH_AT + 4) & 0xFFFFFF)
        if qp is None or qp.responder is None:
            counters["dropped_no_qp"] += 1
            return
        opcode = packet[wire.BTH_AT]
        if opcode in wire.WRITES:
            self._write(qp, qp.responder, opcode, packet, tclass, now)
        elif opcode == wire.Opcode.ACKNOWLEDGE and len(packet) >= wire.BODY_AT + 8:
            self._acknowledge(qp, packet, now)
        elif opcode == wire.Opcode.CNP:
            counters["cnps"] += 1
            qp.requester.congested(now)
        else:
            counters["dropped_opcode"] += 1

    def _write(self, qp: QueuePair, responder: Responder, opcode: int, packet: memoryview, tclass: int, now: int) -> None:
        marked = tclass & 3 == ECN_CE
        if marked:
            self.counters["marks"] += 1
            if responder.notify(now, CNP_RTTS * self.config.rtt_base_ns):
                self.counters["cnps_sent"] += 1
                self._control(qp, wire.Opcode.CNP, 0, _CNP_BODY, now)
        asked = wire.read_word(packet, wire.BTH_AT + 8)
        psn = asked & PSN_MASK
        start = wire.BODY_AT + (16 if opcode in wire.STARTS else 0) + (4 if opcode in wire.WITH_IMMEDIATE else 0)
        if start > len(packet) - 4:
            self.counters["dropped_opcode"] += 1
            return
        payload = packet[start : len(packet) - 4 - (packet[wire.BTH_AT + 1] >> 4 & 3)]
        place = responder.place(psn)
        self._owing[qp.number] = qp
        label = wire.read_word(packet, 0) & 0xFFFFF
        ev = ev_of(label)
        flags = (RECEIVED_CE if marked else 0) | (RECEIVED_RETRANSMISSION if label & wire.AGAIN else 0)
        if place:
            if place > 0:
                self.counters["dropped_out_of_order"] += 1
                responder.missed()
            else:
                responder.ack_due = True
            flags |= RECEIVED_REFUSED if place > 0 else RECEIVED_DUPLICATE
            self._recorder.received(now, qp.number, psn, ev, len(payload), flags, ev >> 16)
            return
        if opcode in wire.STARTS:
            responder.address, responder.rkey, _ = wire.read_reth(packet)
        if not self._memory.place(responder.rkey, responder.address, payload):
            self.counters["dropped_access"] += 1
            self._control(qp, wire.Opcode.ACKNOWLEDGE, psn, wire.word(wire.Syndrome.NAK_REMOTE_ACCESS << 24), now)
            return
        responder.took(len(payload))
        self._placed_bytes += len(payload)
        self._recorder.received(now, qp.number, psn, ev, len(payload), flags, ev >> 16)
        if opcode in wire.ENDS:
            responder.msn += 1
        if asked & wire.ACK_REQUEST or responder.unacked >= self.config.ack_bytes:
            responder.ack_due = True
        if opcode in wire.WITH_IMMEDIATE:
            self._events.append(ImmediateReceived(qp.number, wire.read_word(packet, start - 4), now))

    def _acknowledge(self, qp: QueuePair, packet: memoryview, now: int) -> None:
        requester = qp.requester
        syndrome = wire.read_word(packet, wire.BODY_AT) >> 24
        wire_psn = wire.read_word(packet, wire.BTH_AT + 8) & PSN_MASK
        if syndrome == wire.Syndrome.NAK_REMOTE_ACCESS:
            self._fail(qp, "remote access error")
            return
        psn = expand(wire_psn, requester.oldest)
        if syndrome == wire.Syndrome.NAK_SEQUENCE:
            self.counters["naks"] += 1
            self._complete(qp, requester.acknowledge(psn, now), now)
            requester.go_back(psn, now)
        else:
            self.counters["acks"] += 1
            self._complete(qp, requester.acknowledge(psn + 1, now), now)

    def _complete(self, qp: QueuePair, done: list[int], now: int) -> None:
        for wr_id in done:
            self._events.append(WriteComplete(qp.number, wr_id, now))

    def _fail(self, qp: QueuePair, reason: str) -> None:
        """The QP carries nothing more; the application is told once."""
        if qp.requester.failed:
            return
        qp.requester.failed = True
        qp.requester.flush()
        self._events.append(QueuePairError(qp.number, reason))

    # Output and time

    def transmit(self, now: int) -> list[Datagram]:
        """All that may leave now: acknowledgements first, then data as far as rates and ports allow, the QPs in turn."""
        self._settle(now)
        out, self._out = self._out, []
        self._wake = None
        wanted: set[PortClock] = set()
        senders = self._senders
        blocked = 0
        while blocked < len(senders):
            qp = senders[0]
            if len(senders) > 1:
                senders.append(senders.pop(0))
            requester = qp.requester
            blocked += 1
            if not requester.wants():
                continue
            ready_at, port = requester.ready_at(now), requester.path.port
            if ready_at > now:
                self._wake_at(ready_at)
            elif not port.up:
                continue  # no port is: its return wakes the host
            elif not port.has_room(now):
                wanted.add(port)
                self._wake_at(port.full_until() + self._patience_ns)
            else:
                out.append(requester.send(now))
                blocked = 0
        for port in self._ports.values():
            port.wanted = port in wanted  # a QP that its rate holds back now leaves no port dry
        return out

    def next_timer(self) -> int | None:
        """When `on_timer` or `transmit` wants to be called if nothing arrives before, in ns."""
        first = self._wake
        for qp in self._senders:
            deadline = qp.requester.deadline
            if deadline is not None and (first is None or deadline < first):
                first = deadline
        return first

    def on_timer(self, now: int) -> None:
        """Act on what is due; call `transmit` afterwards."""
        for qp in self._senders:
            deadline = qp.requester.deadline
            if deadline is not None and deadline <= now and not qp.requester.timed_out(now):
                self._fail(qp, "retry counter exceeded")

    def events(self) -> list[Event]:
        """What has completed since the last call."""
        events, self._events = self._events, []
        return events

    def flush(self) -> None:
        """Record packets whose fate is still unknown; for the end of a run."""
        for qp in self._qps.values():
            qp.requester.flush()

    def statistics(self) -> dict[str, int]:
        """Totals over all QPs, for progress and the end of a run."""
        requesters = [qp.requester for qp in self._qps.values()]
        return self.counters | {
            "packets_sent": sum(requester.packets_sent for requester in requesters),
            "retransmissions": sum(requester.retransmissions for requester in requesters),
            "timeouts": sum(requester.timeouts for requester in requesters),
            "rate_cuts": sum(requester.dcqcn.cuts for requester in requesters if requester.dcqcn is not None),
            "placed_bytes": self._placed_bytes,
            "port_dry_ns": sum(port.dry_ns for port in self._ports.values()),
        }

    def _wake_at(self, when: int) -> None:
        if self._wake is None or when < self._wake:
            self._wake = when

    def _settle(self, now: int) -> None:
        """Send the ACK or NAK that this batch of arrivals left each QP owing."""
        for qp in self._owing.values():
            responder = qp.responder
            if responder is None:
                continue
            if responder.nak_due:
                responder.nak_due = responder.ack_due = False
                responder.unacked = 0
                self.counters["naks_sent"] += 1
                body = wire.word(wire.Syndrome.NAK_SEQUENCE << 24 | responder.msn & 0xFFFFFF)
                self._control(qp, wire.Opcode.ACKNOWLEDGE, responder.wire_expected, body, now)
            elif responder.ack_due:
                responder.ack_due = False
                responder.unacked = 0
                body = wire.word(wire.Syndrome.ACK << 24 | responder.msn & 0xFFFFFF)
                self._control(qp, wire.Opcode.ACKNOWLEDGE, responder.expected - 1 & PSN_MASK, body, now)
        self._owing.clear()

    def _control(self, qp: QueuePair, opcode: int, psn: int, body: bytes, now: int) -> None:
        """An ACK, NAK or CNP: on the path of this side's own 5-tuple, ahead of data."""
        path = qp.requester.path
        buffers, inner = wire.packet(
            self.config.inner,
            qp.peer.inner,
            qp.source_port,
            path.label,
            opcode=opcode,
            dqp=qp.remote,
            psn=psn,
            extra=body,
        )
        path.port.depart(inner, now)
        self._out.append((path.destination, TCLASS_CONTROL, buffers))
