"""One NIC: its ports, destinations, QPs and memory behind `receive`, `transmit`, `next_timer`, `on_timer` and `events`.

Knows no socket and no clock: `receive` takes an inner packet and its outer traffic class, `transmit` gives datagrams, time is
an argument. Methods are called in any order with a `now` (ns) that never goes back.
"""

from __future__ import annotations

from collections.abc import Sequence

from testbed.transport.common.codepoints import TCLASS_PROBE
from testbed.transport.common.events import Event, Recorder
from testbed.transport.common.memory import MemoryRegion
from testbed.transport.common.ports import FOREVER
from testbed.transport.common.psn import PSN_BITS
from testbed.transport.mrc.codepoints import Opcode
from testbed.transport.mrc.config import MPR_UNIT, EndpointConfig
from testbed.transport.mrc.core import Core
from testbed.transport.mrc.ev import Cause, EvState
from testbed.transport.mrc.headers import Peth
from testbed.transport.mrc.inbound import Inbound
from testbed.transport.mrc.nic_ports import NicPorts
from testbed.transport.mrc.packets import Datagram, Link, control, timestamp16
from testbed.transport.mrc.paths import Path, PathSet
from testbed.transport.mrc.planes import PlaneCause, PlaneState
from testbed.transport.mrc.probes import INTERVAL_RTTS
from testbed.transport.mrc.queue_pair import Peer, QpState, QueuePair
from testbed.transport.mrc.requester import Requester
from testbed.transport.mrc.responder import Responder
from testbed.transport.mrc.reverse import ReversePaths
from testbed.transport.mrc.trace import Kind
from testbed.transport.mrc.windows import CONTROLLERS

_FIRST_QP = 16
_PROBES_REMEMBERED = 256


class Endpoint:
    """One host's MRC."""

    def __init__(self, config: EndpointConfig, recorder: Recorder, seed: int | str) -> None:
        self.config = config
        self._core = Core(config, recorder, seed)
        self._senders: list[QueuePair] = []  # round robin
        self._port_wake: int | None = None
        # Arrivals wake the host often enough to fill ports as they get room. A timer of its own comes a little later, so that
        # it is rarely needed and then fills several ports, long before one runs dry.
        self._patience_ns = min(port.frame_ns for port in self._core.ports.values()) * 2 // 5
        self._next_probe_id = 0
        self._ports = NicPorts(self._core)
        self.receive = Inbound(self._core, self._ports).receive

    @property
    def counters(self) -> dict[str, int]:
        return self._core.counters

    # Set-up

    def register(self, buffer: memoryview) -> MemoryRegion:
        """Allow peers to WRITE into `buffer`."""
        return self._core.memory.register(buffer)

    def add_peer(self, index: int, inner: bytes, paths: Sequence[tuple[int, int, str]]) -> None:
        """A destination and its paths: (EV, plane, outer destination address) each, all different."""
        core = self._core
        link = Link(self.config.inner, inner)
        known = PathSet(
            [Path(ev, plane, address, core.ports[plane]) for ev, plane, address in paths],
            policy=self.config.policy,
            own_policy=self.config.own_policy,
            active_evs=self.config.active_evs,
            replacement=self.config.replacement,
            reshuffle=self.config.reshuffle,
            rtt_base_ns=self.config.rtt_base_ns,
            probe_interval_ns=self.config.probe_interval_ns or INTERVAL_RTTS * self.config.rtt_base_ns,
            rng=core.rng,
            on_state=lambda now, path, before, after, cause: self._state_changed(index, now, path, before, after, cause),
            on_plane=lambda now, plane, before, after, cause: self._plane_changed(index, now, plane, before, after, cause),
        )
        reverse = ReversePaths(known, self.config.rtt_base_ns)
        core.peers[inner] = Peer(index, link, known, reverse, CONTROLLERS[self.config.cc](self.config))

    def create_qp(self, peer_index: int) -> QueuePair:
        """A QP towards a known peer, in INIT; its number and first PSN are to be told to the other side."""
        core, config = self._core, self.config
        peer = self._peer(peer_index)
        number = _FIRST_QP + len(core.qps)
        psn = core.rng.getrandbits(PSN_BITS)
        requester = Requester(
            number,
            psn,
            link=peer.link,
            paths=peer.paths,
            window=peer.window,
            payload=config.payload,
            limits=config.limits,
            rtt_base_ns=config.rtt_base_ns,
            recorder=core.recorder,
        )
        qp = QueuePair(number, psn, peer, requester)
        core.move(qp, QpState.INIT, 0)
        core.qps[number] = qp
        peer.qps.append(qp)
        return qp

    def connect_qp(self, number: int, remote_number: int, remote_psn: int) -> None:
        """INIT to RTR to RTS: both directions are ready after this."""
        qp, limits = self._core.qps[number], self.config.limits
        self._core.move(qp, QpState.RTR, 0)
        qp.remote = qp.requester.remote = remote_number
        qp.responder = Responder(
            remote_psn,
            sack_bytes=self.config.sack_bytes,
            mpr_psns=limits.mpr_dest * MPR_UNIT,
            dynamic_mpr=limits.dynamic_mpr,
            max_wimm=limits.max_wimm_dest,
        )
        self._core.move(qp, QpState.RTS, 0)
        self._senders.append(qp)

    def reset_qp(self, number: int, now: int) -> None:
        """Forget a QP: it neither sends nor receives any more, and its number is not used again."""
        qp = self._core.qps.pop(number)
        self._core.move(qp, QpState.RESET, now)
        qp.requester.abort()
        qp.peer.qps.remove(qp)
        if qp in self._senders:
            self._senders.remove(qp)
        self._core.owing.pop(qp, None)

    def post_write(
        self, number: int, wr_id: int, data: memoryview, remote_address: int, rkey: int, immediate: int | None, now: int
    ) -> None:
        """Post one RDMA WRITE (WITH_IMM when `immediate` is given). `data` must not change until it completes."""
        del now  # a WRITE is sent by the next `transmit`
        qp = self._core.qps[number]
        if not data:
            raise ValueError("a WRITE carries at least one byte")
        if qp.state is not QpState.RTS:
            raise ValueError(f"QP {number} is in {qp.state.name}, not ready to send")
        qp.requester.post(wr_id, data, remote_address, rkey, immediate)

    def deny(self, peer_index: int, ev: int, now: int) -> None:
        """Put a path on the denylist: nothing more is sent on it. ValueError when it is the last one left."""
        paths = self._peer(peer_index).paths
        paths.deny(paths.by_ev[ev], now)

    def allow(self, peer_index: int, ev: int, now: int) -> None:
        """Take a path off the denylist; it is used again once background probes have been answered."""
        paths = self._peer(peer_index).paths
        paths.allow(paths.by_ev[ev], now)

    def port_state(self, plane: int, up: bool, now: int) -> None:
        """The port of `plane` got or lost its carrier: the plane leaves use at once, or comes back, and peers are told.

        Call `transmit` afterwards. Saying again what is known does nothing.
        """
        self._ports.changed(plane, up, now)
        self._ports.due(now)

    # Output and time

    def transmit(self, now: int) -> list[Datagram]:
        """All that may leave now: acknowledgements first, then data as far as windows and ports allow."""
        core = self._core
        if core.owing:
            self._settle(now)
        out = core.out
        core.out = []
        self._port_wake = None
        senders = self._senders
        blocked = 0
        while blocked < len(senders):
            qp = senders[0]
            if len(senders) > 1:
                senders.append(senders.pop(0))
            requester = qp.requester
            if not requester.may_send():
                blocked += 1
                continue
            paths = qp.peer.paths
            path = requester.pick(now) if paths.full_until <= now else None
            if path is None:
                blocked += 1
                if paths.full_until <= now:
                    paths.full_until = paths.policy.full_until()
                    for port in core.ports.values():
                        port.wanted = port.up and port.free_at > now
                if paths.full_until >= FOREVER:  # no plane is in use: a port's return or a peer's word will wake it
                    continue
                wake = paths.full_until + self._patience_ns
                if self._port_wake is None or wake < self._port_wake:
                    self._port_wake = wake
                continue
            blocked = 0
            out.append(requester.send(path, now))
        if self._port_wake is None:  # nothing was left waiting for a port
            for port in core.ports.values():
                port.wanted = False
        return out

    def next_timer(self) -> int | None:
        """When `on_timer` or `transmit` wants to be called if nothing arrives before, in ns."""
        first = self._port_wake
        for qp in self._senders:
            deadline = qp.requester.deadline()
            if deadline is not None and (first is None or deadline < first):
                first = deadline
        core = self._core
        for peer in core.peers.values():
            if peer.paths.bad or peer.paths.checking:
                due = core.prober.next_at(peer.paths, background=self.config.probes)
                if due is not None and (first is None or due < first):
                    first = due
        due = self._ports.next_at()
        return due if due is not None and (first is None or due < first) else first

    def on_timer(self, now: int) -> None:
        """Act on what is due; call `transmit` afterwards."""
        core = self._core
        for qp in self._senders:
            requester = qp.requester
            deadline = requester.deadline()
            if deadline is None or deadline > now:
                continue
            if requester.timer.rto_at() <= now:
                core.counters["timeouts"] += 1
                if not requester.timed_out(now):
                    core.fail(qp, "retry counter exceeded", now)
                    continue
            if requester.timer.probe_due(now):
                self._ask(qp, now)
        for peer in core.peers.values():
            if peer.paths.bad or peer.paths.checking:
                core.out.extend(core.prober.due(peer.index, peer.paths, peer.link, now, background=self.config.probes))
        self._ports.due(now)

    def events(self) -> list[Event]:
        """What has completed since the last call."""
        events, self._core.events = self._core.events, []
        return events

    def flush(self) -> None:
        """Record packets whose fate is still unknown; for the end of a run."""
        for qp in self._core.qps.values():
            qp.requester.flush()

    def statistics(self) -> dict[str, int]:
        """Totals over all QPs and paths, for progress and the end of a run."""
        core = self._core
        sets = [peer.paths for peer in core.peers.values()]
        requesters = [qp.requester for qp in core.qps.values()]
        return core.counters | {
            "packets_sent": sum(requester.packets_sent for requester in requesters),
            "retransmissions": sum(requester.retransmissions for requester in requesters),
            "spurious": sum(requester.losses.reorder.count for requester in requesters),
            "evs_retired": sum(paths.retired for paths in sets),
            "evs_restored": sum(paths.restored for paths in sets),
            "evs_skipped": sum(paths.skipped for paths in sets),
            "ev_probes": core.prober.sent,
            "ev_probe_answers": core.prober.answered,
            "placed_bytes": core.placed_bytes,
            "port_dry_ns": sum(port.dry_ns for port in core.ports.values()),
        }

    def _peer(self, index: int) -> Peer:
        return next(peer for peer in self._core.peers.values() if peer.index == index)

    def _settle(self, now: int) -> None:
        """Send the SACKs and ACKs that this batch of arrivals left owing."""
        core = self._core
        for qp in core.owing:
            responder = qp.responder
            if responder is None:
                continue
            if responder.due is not None:
                core.send_sack(qp, responder, responder.due, now)
            if responder.ack_due:
                core.send_ack(qp, responder, now)
        core.owing.clear()

    def _ask(self, qp: QueuePair, now: int) -> None:
        """A round of reliability probes: one more each time, up to one for each plane in use; then one again."""
        rounds, most = qp.requester.timer.probes, sum(plane.open for plane in qp.peer.paths.planes)
        for _ in range(rounds + 1 if rounds < most else 1):
            self._send_reliability_probe(qp, now)
        qp.requester.timer.probed(now)

    def _send_reliability_probe(self, qp: QueuePair, now: int) -> None:
        path = qp.peer.paths.next(now)
        if path is None:
            return
        probe_id = self._next_probe_id
        self._next_probe_id = (probe_id + 1) & 0xFFFF
        body = Peth(probe_id, timestamp16(now), qp.number & 0xFFFF, qp.remote & 0xFFFF).pack()
        buffers, inner = control(qp.peer.link, path, Opcode.RELIABILITY_PROBE, qp.remote, 0, body)
        qp.probe_ids[probe_id] = (path.port.depart(inner, now), path)
        if self._core.decision is not None:
            self._core.decision(now, Kind.PROBE, qp.number, probe_id, path.ev, 0)
        while len(qp.probe_ids) > _PROBES_REMEMBERED:
            del qp.probe_ids[next(iter(qp.probe_ids))]
        self._core.counters["reliability_probes"] += 1
        self._core.out.append((path.destination, TCLASS_PROBE, buffers))

    def _state_changed(self, peer: int, now: int, path: Path, before: EvState, after: EvState, cause: Cause) -> None:
        self._core.recorder.ev_state(now, peer, path.ev, before, after, cause)

    def _plane_changed(self, peer: int, now: int, plane: int, before: PlaneState, after: PlaneState, cause: PlaneCause) -> None:
        self._core.recorder.plane_state(now, peer, plane, before, after, cause)
