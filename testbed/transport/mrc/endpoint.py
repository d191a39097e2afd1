"""One NIC: its ports, destinations, QPs and memory behind `receive`, `transmit`, `next_timer`, `on_timer` and `events`.

Knows no socket and no clock: `receive` takes an inner packet and its outer traffic class, `transmit` gives datagrams, time is
an argument. Bad input never raises; it is dropped and counted, as a NIC does.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence

from testbed.transport.mrc import packets
from testbed.transport.mrc.codepoints import (
    ECN_CE,
    ENDPOINT_QP,
    TCLASS_CONTROL,
    TCLASS_PROBE,
    UDP_PORT,
    Dscp,
    EndpointOp,
    NackReason,
    Opcode,
    SackMark,
)
from testbed.transport.mrc.config import MPR_UNIT, EndpointConfig
from testbed.transport.mrc.ev import Cause, EvState
from testbed.transport.mrc.events import (
    RECEIVED_CE,
    RECEIVED_DUPLICATE,
    RECEIVED_RETRANSMISSION,
    RECEIVED_TRIMMED,
    RECEIVED_TRIMMED_LASTHOP,
    Event,
    ImmediateReceived,
    QueuePairError,
    Recorder,
    WriteComplete,
)
from testbed.transport.mrc.headers import Bth, CcState, Eeth, Erth, Neth, Peth, Seth
from testbed.transport.mrc.memory import Memory, MemoryRegion
from testbed.transport.mrc.packets import BODY_OFFSET, BTH_OFFSET, Checker, Link, control, timestamp16
from testbed.transport.mrc.paths import EV_LABEL_SHIFT, Path, PathSet
from testbed.transport.mrc.ports import PortClock
from testbed.transport.mrc.probes import Prober
from testbed.transport.mrc.psn import PSN_BITS, PSN_MASK, expand
from testbed.transport.mrc.requester import Acknowledgement, Datagram, Requester
from testbed.transport.mrc.responder import Responder, Trigger
from testbed.transport.mrc.window import FixedWindow

_FIRST_QP = 16
_WRITES = frozenset(
    {
        Opcode.WRITE_FIRST,
        Opcode.WRITE_MIDDLE,
        Opcode.WRITE_LAST,
        Opcode.WRITE_LAST_IMM,
        Opcode.WRITE_ONLY,
        Opcode.WRITE_ONLY_IMM,
    }
)
_WITH_IMMEDIATE = frozenset({Opcode.WRITE_LAST_IMM, Opcode.WRITE_ONLY_IMM})
_SHORTEST = BODY_OFFSET + 4
# What a data packet is read for: flow label, source, UDP ports; BTH; METH, TSETH, RETH.
_FLOW = struct.Struct(">I")
_DATA = struct.Struct(">BBHIIHHHHQII")
_IMM = struct.Struct(">I")


class Peer:
    """One destination: its paths and its window, shared by the QPs towards it."""

    __slots__ = ("index", "inner", "link", "paths", "qps", "window")

    def __init__(self, index: int, link: Link, paths: PathSet, window: FixedWindow) -> None:
        self.index = index
        self.inner = link.target
        self.link = link
        self.paths = paths
        self.window = window
        self.qps: list[QueuePair] = []


class QueuePair:
    """A connected pair's local half. `responder` exists once the remote PSN is known."""

    __slots__ = ("number", "peer", "probe_ids", "psn", "remote", "requester", "responder")

    def __init__(self, number: int, psn: int, peer: Peer, requester: Requester) -> None:
        self.number = number
        self.psn = psn
        self.peer = peer
        self.requester = requester
        self.remote = 0
        self.responder: Responder | None = None
        self.probe_ids: dict[int, tuple[int, Path]] = {}


class Endpoint:
    """One host's MRC. Methods are called in any order with a `now` (ns) that never goes back."""

    def __init__(self, config: EndpointConfig, recorder: Recorder, seed: int) -> None:
        self.config = config
        self._rng = random.Random(seed)
        self._recorder = recorder
        self._memory = Memory(self._rng)
        full = packets.inner_bytes(config.payload)
        self.ports = {port.plane: PortClock(port, full, config.overhead_bytes) for port in config.ports}
        self._peers: dict[bytes, Peer] = {}
        self._qps: dict[int, QueuePair] = {}
        self._senders: list[QueuePair] = []  # round robin
        self._checker = Checker()
        self._prober = Prober(config.rtt_base_ns)
        self._out: list[Datagram] = []
        self._events: list[Event] = []
        self._due: dict[QueuePair, None] = {}
        self._port_wake: int | None = None
        self._next_probe_id = 0
        self.placed_bytes = 0
        self.counters: dict[str, int] = dict.fromkeys(_COUNTERS, 0)

    # Set-up

    def register(self, buffer: memoryview) -> MemoryRegion:
        """Allow peers to WRITE into `buffer`."""
        return self._memory.register(buffer)

    def add_peer(self, index: int, inner: bytes, paths: Sequence[tuple[int, int, str]]) -> None:
        """A destination and its paths: (EV, plane, outer destination address) each, all different."""
        link = Link(self.config.inner, inner)
        known = PathSet(
            [Path(ev, plane, address, self.ports[plane]) for ev, plane, address in paths],
            policy=self.config.policy,
            active_evs=self.config.active_evs,
            reshuffle=self.config.reshuffle,
            rng=self._rng,
            on_state=lambda now, path, before, after, cause: self._state_changed(index, now, path, before, after, cause),
        )
        self._peers[inner] = Peer(index, link, known, FixedWindow(self.config.window_bytes))

    def create_qp(self, peer_index: int) -> QueuePair:
        """A QP towards a known peer; its number and first PSN are to be told to the other side."""
        peer = next(peer for peer in self._peers.values() if peer.index == peer_index)
        number = _FIRST_QP + len(self._qps)
        psn = self._rng.getrandbits(PSN_BITS)
        requester = Requester(
            number,
            psn,
            link=peer.link,
            paths=peer.paths,
            window=peer.window,
            payload=self.config.payload,
            mpr_psns=self.config.mpr * MPR_UNIT,
            rtt_base_ns=self.config.rtt_base_ns,
            recorder=self._recorder,
        )
        qp = QueuePair(number, psn, peer, requester)
        self._qps[number] = qp
        peer.qps.append(qp)
        return qp

    def connect_qp(self, number: int, remote_number: int, remote_psn: int) -> None:
        """Both directions are ready after this."""
        qp = self._qps[number]
        qp.remote = qp.requester.remote = remote_number
        qp.responder = Responder(remote_psn, self.config.sack_bytes, self.config.mpr * MPR_UNIT)
        self._senders.append(qp)

    def post_write(
        self, number: int, wr_id: int, data: memoryview, remote_address: int, rkey: int, immediate: int | None, now: int
    ) -> None:
        """Post one RDMA WRITE (WITH_IMM when `immediate` is given). `data` must not change until it completes."""
        del now  # a WRITE is sent by the next `transmit`
        if not data:
            raise ValueError("a WRITE carries at least one byte")
        self._qps[number].requester.post(wr_id, data, remote_address, rkey, immediate)

    # Input

    def receive(self, packet: memoryview, tclass: int, now: int) -> None:
        """Take one inner packet, with the traffic class of the outer header it came in."""
        if len(packet) < _SHORTEST or packet[6] != 17 or packet[24:40] != self.config.inner:
            self.counters["dropped_not_mrc"] += 1
            return
        ports = _FLOW.unpack_from(packet, 40)[0]
        if ports & 0xFFFF != UDP_PORT:
            self.counters["dropped_not_mrc"] += 1
            return
        dscp = tclass >> 2
        trimmed = dscp in (Dscp.TRIMMED, Dscp.TRIMMED_LASTHOP)
        if not trimmed and not self._checker.valid(packet):
            self.counters["dropped_icrc"] += 1
            return
        ev = (_FLOW.unpack_from(packet, 0)[0] & 0xFFFF) << EV_LABEL_SHIFT | ports >> 16
        opcode = packet[BTH_OFFSET]
        try:
            if opcode in _WRITES:
                if trimmed:
                    self._trimmed(packet, ev, dscp, now)
                else:
                    self._data(packet, opcode, ev, tclass & 3 == ECN_CE, now)
            elif opcode == Opcode.SACK:
                self._sack(packet, now)
            elif opcode == Opcode.NACK:
                self._nack(packet, now)
            elif opcode == Opcode.RELIABILITY_PROBE:
                self._reliability_probe(packet, ev, now)
            elif opcode == Opcode.ENDPOINT_REQUEST:
                self._endpoint_request(packet, ev, now)
            elif opcode == Opcode.ENDPOINT_RESPONSE:
                self._prober.answer(Bth.unpack(packet, BTH_OFFSET).psn & 0xFFFF, now)
            else:
                self.counters["dropped_opcode"] += 1
        except struct.error:
            self.counters["dropped_short"] += 1

    def _data(self, packet: memoryview, opcode: int, ev: int, marked: bool, now: int) -> None:
        fields = _DATA.unpack_from(packet, BTH_OFFSET)
        _, flags, _, word, control_psn, _, _, timestamp, _, address, rkey, _ = fields
        qp = self._qps.get(word & 0xFFFFFF)
        responder = qp.responder if qp is not None else None
        if qp is None or responder is None:
            self.counters["dropped_no_qp"] += 1
            return
        psn = expand(control_psn & PSN_MASK, responder.window.cack + 1)
        if not responder.in_window(psn):
            self.counters["dropped_out_of_window"] += 1
            self._send_nack(qp, responder, NackReason.PSN_OOR_WINDOW, Trigger(psn, ev, timestamp), now)
            return
        start = packets.DATA_HEADER_BYTES + (packets.IMM_BYTES if opcode in _WITH_IMMEDIATE else 0)
        payload = packet[start : len(packet) - 4 - (flags >> 4 & 3)]
        retransmission = control_psn >> 24 & packets.RETRANSMISSION
        at_once = bool(marked or control_psn >> 24 & (packets.ACK_REQUEST | packets.RETRANSMISSION))
        size = len(payload)
        plane = ev >> EV_LABEL_SHIFT
        seen = RECEIVED_RETRANSMISSION if retransmission else 0
        if psn > responder.window.cack and not self._memory.place(rkey, address, payload):
            self.counters["dropped_access"] += 1
            self._send_nack(qp, responder, NackReason.UNEXP_EVENT, Trigger(psn, ev, timestamp), now)
            return
        before = responder.window.cack
        if responder.arrived(psn, ev, timestamp, size, at_once=at_once):
            self.placed_bytes += size
            if opcode in _WITH_IMMEDIATE:
                responder.immediate(psn, _IMM.unpack_from(packet, packets.DATA_HEADER_BYTES)[0])
            if responder.window.cack != before:
                for value in responder.deliverable():
                    self._events.append(ImmediateReceived(qp.number, value, now))
        else:
            seen |= RECEIVED_DUPLICATE
        if marked:
            seen |= RECEIVED_CE
            trigger = Trigger(psn, ev, timestamp, SackMark.SKIP_ONCE)
            self._send_sack(qp, responder, trigger, now)
        elif responder.due is not None:
            self._due[qp] = None
        self._recorder.received(now, qp.number, psn & PSN_MASK, ev, size, seen, plane)

    def _trimmed(self, packet: memoryview, ev: int, dscp: int, now: int) -> None:
        """The payload was cut off in a switch; what is left names the packet to send again (mrc-facts 3.6)."""
        bth = Bth.unpack(packet, BTH_OFFSET)
        qp = self._qps.get(bth.dqp)
        responder = qp.responder if qp is not None else None
        if qp is None or responder is None:
            self.counters["dropped_no_qp"] += 1
            return
        timestamp = int.from_bytes(packet[BODY_OFFSET + 4 : BODY_OFFSET + 6], "big")
        last_hop = dscp == Dscp.TRIMMED_LASTHOP
        psn = expand(bth.psn, responder.window.cack + 1)
        reason = NackReason.TRIMMED_LASTHOP if last_hop else NackReason.TRIMMED
        self._send_nack(qp, responder, reason, Trigger(psn, ev, timestamp), now)
        flags = RECEIVED_TRIMMED | (RECEIVED_TRIMMED_LASTHOP if last_hop else 0)
        self._recorder.received(now, qp.number, bth.psn, ev, 0, flags, ev >> EV_LABEL_SHIFT)

    def _sack(self, packet: memoryview, now: int) -> None:
        qp = self._qps.get(Bth.unpack(packet, BTH_OFFSET).dqp)
        if qp is None:
            self.counters["dropped_no_qp"] += 1
            return
        seth = Seth.unpack(packet, BODY_OFFSET)
        received = CcState.unpack(packet, BODY_OFFSET + Seth.FORMAT.size).received_bytes
        requester = qp.requester
        cack = expand(seth.cack_psn, requester.cack)
        if cack >= requester.next_psn:
            self.counters["dropped_bad_sack"] += 1
            return
        probe = qp.probe_ids.pop(seth.ack_psn_offset, None) if seth.probe_reply else None
        ack_psn = None if seth.probe_reply else cack + seth.ack_psn_offset
        base = cack + seth.sack_offset
        marked = seth.mark == SackMark.SKIP_ONCE
        sack = Acknowledgement(cack, base, seth.bitmap, ack_psn, marked, received, probe)
        for wr_id in requester.acknowledged(sack, now):
            self._events.append(WriteComplete(qp.number, wr_id, now))
        if seth.mark and (path := qp.peer.paths.by_ev.get(seth.entropy)) is not None:
            self.counters["marks"] += 1
            if marked:
                qp.peer.paths.marked(path, now)
            else:
                qp.peer.paths.lost(path, now)

    def _nack(self, packet: memoryview, now: int) -> None:
        qp = self._qps.get(Bth.unpack(packet, BTH_OFFSET).dqp)
        if qp is None:
            self.counters["dropped_no_qp"] += 1
            return
        neth = Neth.unpack(packet, BODY_OFFSET)
        self.counters["nacks"] += 1
        if neth.reason == NackReason.UNEXP_EVENT:
            qp.requester.abort()
            self._events.append(QueuePairError(qp.number, "the responder refused a packet: wrong key or bounds"))
            return
        psn = expand(neth.nack_psn, qp.requester.cack)
        if not qp.requester.refused(psn, neth.entropy, now):
            return
        if neth.reason == NackReason.TRIMMED and (path := qp.peer.paths.by_ev.get(neth.entropy)) is not None:
            qp.peer.paths.trimmed(path, now)

    def _reliability_probe(self, packet: memoryview, ev: int, now: int) -> None:
        qp = self._qps.get(Bth.unpack(packet, BTH_OFFSET).dqp)
        if qp is None or qp.responder is None:
            self.counters["dropped_no_qp"] += 1
            return
        peth = Peth.unpack(packet, BODY_OFFSET)
        trigger = Trigger(qp.responder.window.cack, ev, peth.tx_timestamp)
        self._send_sack(qp, qp.responder, trigger, now, probe_id=peth.probe_id)

    def _endpoint_request(self, packet: memoryview, ev: int, now: int) -> None:
        peer = self._peers.get(bytes(packet[8:24]))
        erth = Erth.unpack(packet, BODY_OFFSET)
        if peer is None or erth.op != EndpointOp.EV_PROBE:
            self.counters["dropped_endpoint_request"] += 1
            return
        probe_id = Bth.unpack(packet, BTH_OFFSET).psn
        body = Eeth(EndpointOp.EV_PROBE, erth.tx_timestamp).pack()
        self._send_control(peer, peer.paths.for_control(ev), Opcode.ENDPOINT_RESPONSE, ENDPOINT_QP, probe_id, body, now)

    # Output

    def transmit(self, now: int) -> list[Datagram]:
        """All that may leave now: acknowledgements first, then data as far as windows and ports allow."""
        for qp in self._due:
            responder = qp.responder
            if responder is not None and responder.due is not None:
                self._send_sack(qp, responder, responder.due, now)
        self._due.clear()
        out = self._out
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
            path = qp.peer.paths.next(now)
            if path is None:
                blocked += 1
                wake = qp.peer.paths.port_wake()
                if self._port_wake is None or wake < self._port_wake:
                    self._port_wake = wake
                continue
            blocked = 0
            out.append(requester.send(path, now))
        self._out = []
        return out

    def next_timer(self) -> int | None:
        """When `on_timer` or `transmit` wants to be called if nothing arrives before, in ns."""
        times = [deadline for qp in self._senders if (deadline := qp.requester.deadline()) is not None]
        if self._port_wake is not None:
            times.append(self._port_wake)
        if self.config.probes:
            probe = self._prober.next_at([peer.paths for peer in self._peers.values()])
            if probe is not None:
                times.append(probe)
        return min(times) if times else None

    def on_timer(self, now: int) -> None:
        """Act on what is due; call `transmit` afterwards."""
        for qp in self._senders:
            requester = qp.requester
            deadline = requester.deadline()
            if deadline is None or deadline > now:
                continue
            if requester.timer.rto_at() <= now:
                requester.timer.expire(now)
                requester.timed_out(now)
                self.counters["timeouts"] += 1
            if requester.timer.probe_due(now):
                self._send_reliability_probe(qp, now)
        if self.config.probes:
            for peer in self._peers.values():
                if peer.paths.bad:
                    self._out.extend(self._prober.due(peer.paths, peer.link, now))

    def events(self) -> list[Event]:
        """What has completed since the last call."""
        events, self._events = self._events, []
        return events

    def flush(self) -> None:
        """Record packets whose fate is still unknown; for the end of a run."""
        for qp in self._qps.values():
            qp.requester.flush()

    def statistics(self) -> dict[str, int]:
        """Totals over all QPs and paths, for progress and the end of a run."""
        sets = [peer.paths for peer in self._peers.values()]
        requesters = [qp.requester for qp in self._qps.values()]
        return self.counters | {
            "packets_sent": sum(requester.packets_sent for requester in requesters),
            "retransmissions": sum(requester.retransmissions for requester in requesters),
            "spurious": sum(requester.reorder.count for requester in requesters),
            "evs_retired": sum(paths.retired for paths in sets),
            "evs_restored": sum(paths.restored for paths in sets),
            "evs_skipped": sum(paths.skipped for paths in sets),
            "ev_probes": self._prober.sent,
            "ev_probe_answers": self._prober.answered,
            "placed_bytes": self.placed_bytes,
        }

    def _send_sack(
        self, qp: QueuePair, responder: Responder, trigger: Trigger, now: int, *, probe_id: int | None = None
    ) -> None:
        body = responder.sack(trigger, qp.number, qp.remote, probe_id=probe_id)
        self.counters["sacks"] += 1
        path = qp.peer.paths.for_control(trigger.ev)
        self._send_control(qp.peer, path, Opcode.SACK, qp.remote, trigger.psn & PSN_MASK, body, now)

    def _send_nack(self, qp: QueuePair, responder: Responder, reason: NackReason, trigger: Trigger, now: int) -> None:
        body = responder.nack(reason, trigger, qp.number, qp.remote)
        self.counters["nacks_sent"] += 1
        path = qp.peer.paths.for_control(trigger.ev)
        self._send_control(qp.peer, path, Opcode.NACK, qp.remote, trigger.psn & PSN_MASK, body, now)

    def _send_control(self, peer: Peer, path: Path, opcode: Opcode, dqp: int, psn: int, body: bytes, now: int) -> None:
        buffers, inner = control(peer.link, path, opcode, dqp, psn, body)
        path.port.depart(inner, now)
        self._out.append((path.destination, TCLASS_CONTROL, buffers))

    def _send_reliability_probe(self, qp: QueuePair, now: int) -> None:
        path = qp.peer.paths.next(now)
        qp.requester.timer.probed(now)
        if path is None:
            return
        probe_id = self._next_probe_id
        self._next_probe_id = (probe_id + 1) & 0xFFFF
        body = Peth(probe_id, timestamp16(now), qp.number & 0xFFFF, qp.remote & 0xFFFF).pack()
        buffers, inner = control(qp.peer.link, path, Opcode.RELIABILITY_PROBE, qp.remote, 0, body)
        qp.probe_ids[probe_id] = (path.port.depart(inner, now), path)
        while len(qp.probe_ids) > _PROBES_REMEMBERED:
            del qp.probe_ids[next(iter(qp.probe_ids))]
        self.counters["reliability_probes"] += 1
        self._out.append((path.destination, TCLASS_PROBE, buffers))

    def _state_changed(self, peer: int, now: int, path: Path, before: EvState, after: EvState, cause: Cause) -> None:
        if after is EvState.ASSUMED_BAD:
            path.next_probe = now + 2 * self.config.rtt_base_ns
        self._recorder.ev_state(now, peer, path.ev, before, after, cause)


_PROBES_REMEMBERED = 64
_COUNTERS = (
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
    "reliability_probes",
    "sacks",
    "timeouts",
)
