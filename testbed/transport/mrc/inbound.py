"""What an endpoint does with each kind of packet. Bad input never raises; it is dropped and counted, as a NIC does."""

from __future__ import annotations

import struct
from collections.abc import Callable

from testbed.transport.common.codepoints import ECN_CE, UDP_PORT, Dscp
from testbed.transport.common.events import (
    RECEIVED_CE,
    RECEIVED_DUPLICATE,
    RECEIVED_RETRANSMISSION,
    RECEIVED_TRIMMED,
    RECEIVED_TRIMMED_LASTHOP,
    ImmediateReceived,
    WriteComplete,
)
from testbed.transport.common.icrc import Checker
from testbed.transport.common.psn import PSN_MASK, expand
from testbed.transport.mrc import packets
from testbed.transport.mrc.codepoints import ENDPOINT_QP, WITH_IMMEDIATE, EndpointOp, NackReason, NakCode, Opcode, SackMark
from testbed.transport.mrc.core import Core
from testbed.transport.mrc.headers import Aeth, Bth, CcState, Eeth, Erth, Neth, Peth, Seth
from testbed.transport.mrc.nic_ports import NicPorts
from testbed.transport.mrc.packets import BODY_OFFSET, BTH_OFFSET
from testbed.transport.mrc.paths import EV_LABEL_SHIFT
from testbed.transport.mrc.queue_pair import QueuePair
from testbed.transport.mrc.responder import Responder, Trigger
from testbed.transport.mrc.sent import Acknowledgement, echo_of
from testbed.transport.mrc.trace import Kind

_ENDS = frozenset({Opcode.WRITE_LAST, Opcode.WRITE_LAST_IMM, Opcode.WRITE_ONLY, Opcode.WRITE_ONLY_IMM})
_WRITES = _ENDS | {Opcode.WRITE_FIRST, Opcode.WRITE_MIDDLE}
_SHORTEST = BODY_OFFSET + 4
_WORD = struct.Struct(">I")
_DATA = struct.Struct(">BBHIIHHHHQII")  # BTH, METH, TSETH, RETH
_ID_MASK = 0xFFFF  # of endpoint messages, in the BTH's PSN
SACKS_AT_ONCE = 16  # in answer to one probe: 1,024 PSNs, which is `mpr`'s usual
_AT_ONCE = packets.ACK_REQUEST | packets.RETRANSMISSION

Handler = Callable[[memoryview, int, int], None]


class Inbound:
    """Parses, checks and hands on."""

    def __init__(self, core: Core, ports: NicPorts) -> None:
        self._core = core
        self._ports = ports
        self._checker = Checker()
        self._handlers: dict[int, Handler] = {
            Opcode.SACK: self._sack,
            Opcode.NACK: self._nack,
            Opcode.TRANSPORT_ACK: self._transport_ack,
            Opcode.RELIABILITY_PROBE: self._reliability_probe,
            Opcode.ENDPOINT_REQUEST: self._endpoint_request,
            Opcode.ENDPOINT_RESPONSE: self._endpoint_response,
        }

    def receive(self, packet: memoryview, tclass: int, now: int) -> None:
        """Take one inner packet, with the traffic class of the outer header it came in."""
        counters = self._core.counters
        if len(packet) < _SHORTEST or packet[6] != 17 or packet[24:40] != self._core.config.inner:
            counters["dropped_not_mrc"] += 1
            return
        ports = _WORD.unpack_from(packet, 40)[0]
        if ports & 0xFFFF != UDP_PORT:
            counters["dropped_not_mrc"] += 1
            return
        dscp = tclass >> 2
        trimmed = dscp in (Dscp.TRIMMED, Dscp.TRIMMED_LASTHOP)
        if not trimmed and not self._checker.valid(packet):
            counters["dropped_icrc"] += 1
            return
        ev = (_WORD.unpack_from(packet, 0)[0] & 0xFFFF) << EV_LABEL_SHIFT | ports >> 16
        opcode = packet[BTH_OFFSET]
        try:
            if opcode in _WRITES:
                if trimmed:
                    self._trimmed(packet, ev, dscp, now)
                else:
                    self._data(packet, opcode, ev, tclass & 3 == ECN_CE, now)
            elif (handler := self._handlers.get(opcode)) is not None:
                handler(packet, ev, now)
            else:
                counters["dropped_opcode"] += 1
        except struct.error:
            counters["dropped_short"] += 1

    def _qp(self, number: int) -> tuple[QueuePair, Responder] | None:
        """A QP that is at least ready to receive."""
        qp = self._core.qps.get(number)
        if qp is None or qp.responder is None:
            self._core.counters["dropped_no_qp"] += 1
            return None
        return qp, qp.responder

    def _data(self, packet: memoryview, opcode: int, ev: int, marked: bool, now: int) -> None:
        core = self._core
        _, flags, _, word, control_psn, _, msn, timestamp, _, address, rkey, _ = _DATA.unpack_from(packet, BTH_OFFSET)
        found = self._qp(word & 0xFFFFFF)
        if found is None:
            return
        qp, responder = found
        window = responder.window
        psn = expand(control_psn & PSN_MASK, window.cack + 1)
        if not responder.in_window(psn):
            core.counters["dropped_out_of_window"] += 1
            core.send_nack(qp, responder, NackReason.PSN_OOR_WINDOW, Trigger(psn, ev, timestamp), now)
            return
        start = packets.DATA_HEADER_BYTES + (packets.IMM_BYTES if opcode in WITH_IMMEDIATE else 0)
        payload = packet[start : len(packet) - 4 - (flags >> 4 & 3)]
        if psn > window.cack and not core.memory.place(rkey, address, payload):
            core.counters["dropped_access"] += 1
            responder.refuse(NakCode.REMOTE_ACCESS)
            core.owing[qp] = None
            return
        control = control_psn >> 24
        size = len(payload)
        seen = RECEIVED_RETRANSMISSION if control & packets.RETRANSMISSION else 0
        before = window.cack
        if responder.arrived(psn, ev, timestamp, size, at_once=bool(marked or control & _AT_ONCE)):
            core.placed_bytes += size
            if opcode in _ENDS:
                value = _WORD.unpack_from(packet, packets.DATA_HEADER_BYTES)[0] if opcode in WITH_IMMEDIATE else None
                responder.message_end(psn, msn, value)
            if window.cack != before:
                for value in responder.deliverable():
                    core.events.append(ImmediateReceived(qp.number, value, now))
        else:
            seen |= RECEIVED_DUPLICATE
        if marked:
            seen |= RECEIVED_CE
            core.send_sack(qp, responder, Trigger(psn, ev, timestamp, SackMark.SKIP_ONCE), now)
        if responder.due is not None or responder.ack_due:
            core.owing[qp] = None
        if qp.peer.reverse.next_refresh <= now:
            core.heard(qp.peer, now)
        core.recorder.received(now, qp.number, psn & PSN_MASK, ev, size, seen, ev >> EV_LABEL_SHIFT)

    def _trimmed(self, packet: memoryview, ev: int, dscp: int, now: int) -> None:
        """The payload was cut off in a switch; what is left names the packet to send again (mrc-facts 3.6)."""
        bth = Bth.unpack(packet, BTH_OFFSET)
        found = self._qp(bth.dqp)
        if found is None:
            return
        qp, responder = found
        timestamp = int.from_bytes(packet[BODY_OFFSET + 4 : BODY_OFFSET + 6], "big")
        last_hop = dscp == Dscp.TRIMMED_LASTHOP
        psn = expand(bth.psn, responder.window.cack + 1)
        reason = NackReason.TRIMMED_LASTHOP if last_hop else NackReason.TRIMMED
        if last_hop:
            self._core.backpressure.trimmed(now)
        self._core.send_nack(qp, responder, reason, Trigger(psn, ev, timestamp), now)
        flags = RECEIVED_TRIMMED | (RECEIVED_TRIMMED_LASTHOP if last_hop else 0)
        self._core.recorder.received(now, qp.number, bth.psn, ev, 0, flags, ev >> EV_LABEL_SHIFT)

    def _sack(self, packet: memoryview, _ev: int, now: int) -> None:
        found = self._qp(Bth.unpack(packet, BTH_OFFSET).dqp)
        if found is None:
            return
        qp, _ = found
        core, requester = self._core, qp.requester
        seth = Seth.unpack(packet, BODY_OFFSET)
        state = CcState.unpack(packet, BODY_OFFSET + Seth.FORMAT.size)
        cack = expand(seth.cack_psn, requester.cack)
        if cack >= requester.next_psn:
            core.counters["dropped_bad_sack"] += 1
            return
        probe = qp.probe_ids.get(seth.ack_psn_offset) if seth.probe_reply else None  # several SACKs may answer one
        if probe is not None and core.decision is not None:
            core.decision(now, Kind.PROBE_ANSWERED, qp.number, seth.ack_psn_offset, probe[1].ev, 0)
        ack_psn = None if seth.probe_reply else cack + seth.ack_psn_offset
        marked = seth.mark == SackMark.SKIP_ONCE
        sack = Acknowledgement(
            cack,
            cack + seth.sack_offset,
            seth.bitmap,
            ack_psn,
            marked,
            state.received_bytes,
            seth.mpr,
            probe,
            echo_of(seth.entropy, state.tx_timestamp),
            state.rcv_cwnd_pen,
            state.restore_cwnd,
        )
        requester.acknowledged(sack, now)
        self._complete(qp, now)
        if seth.mark and (path := qp.peer.paths.by_ev.get(seth.entropy)) is not None:
            core.counters["marks"] += 1
            if marked:
                qp.peer.paths.marked(path, now)
            else:
                qp.peer.paths.blamed(path, now)

    def _complete(self, qp: QueuePair, now: int) -> None:
        for wr_id in qp.requester.completed():
            self._core.events.append(WriteComplete(qp.number, wr_id, now))

    def _nack(self, packet: memoryview, _ev: int, now: int) -> None:
        found = self._qp(Bth.unpack(packet, BTH_OFFSET).dqp)
        if found is None:
            return
        qp, _ = found
        neth = Neth.unpack(packet, BODY_OFFSET)
        core = self._core
        core.counters["nacks"] += 1
        if core.decision is not None:
            core.decision(now, Kind.NACK, qp.number, neth.nack_psn, neth.entropy, neth.reason)
        if neth.reason == NackReason.UNEXP_EVENT:
            core.fail(qp, "the responder met an unexpected event", now)
            return
        psn, echo = expand(neth.nack_psn, qp.requester.cack), echo_of(neth.entropy, neth.tx_timestamp)
        if not qp.requester.refused(psn, echo, neth.reason, now):
            return
        if neth.reason == NackReason.TRIMMED and (path := qp.peer.paths.by_ev.get(neth.entropy)) is not None:
            qp.peer.paths.trimmed(path, now)

    def _transport_ack(self, packet: memoryview, _ev: int, now: int) -> None:
        found = self._qp(Bth.unpack(packet, BTH_OFFSET).dqp)
        if found is None:
            return
        qp, _ = found
        aeth = Aeth.unpack(packet, BODY_OFFSET)
        if aeth.syndrome:
            name = next((code.name for code in NakCode if code == aeth.syndrome), f"{aeth.syndrome:#x}")
            self._core.fail(qp, f"the responder answered NAK: {name.lower().replace('_', ' ')}", now)
            return
        qp.requester.executed(aeth.msn, now)
        self._complete(qp, now)

    def _reliability_probe(self, packet: memoryview, ev: int, now: int) -> None:
        found = self._qp(Bth.unpack(packet, BTH_OFFSET).dqp)
        if found is None:
            return
        qp, responder = found
        peth = Peth.unpack(packet, BODY_OFFSET)
        self._core.heard(qp.peer, now)
        trigger = Trigger(responder.window.cack, ev, peth.tx_timestamp)
        reverse = qp.peer.reverse
        path = reverse.answer(ev, now)
        for said in responder.window.sacks()[:SACKS_AT_ONCE]:  # who asks may have missed any of them
            self._core.send_sack(qp, responder, trigger, now, probe_id=peth.probe_id, said=said, path=path)
        if responder.messages:
            self._core.send_ack(qp, responder, now, reverse.answer(ev, now))  # the one sent before may have been lost

    def _endpoint_request(self, packet: memoryview, _ev: int, now: int) -> None:
        peer = self._core.peers.get(bytes(packet[8:24]))
        erth = Erth.unpack(packet, BODY_OFFSET)
        number = Bth.unpack(packet, BTH_OFFSET).psn & _ID_MASK
        if peer is not None and erth.op == EndpointOp.EV_PROBE:
            body = Eeth(EndpointOp.EV_PROBE, erth.tx_timestamp).pack()
            self._core.send_control(peer, Opcode.ENDPOINT_RESPONSE, ENDPOINT_QP, number, body, now)
        elif peer is not None and erth.op == EndpointOp.PORT_STATUS:
            if self._ports.heard(peer, number, erth.port_status_mask, now):
                self._ports.answer(peer, number, erth.tx_timestamp, now)
        else:
            self._core.counters["dropped_endpoint_request"] += 1

    def _endpoint_response(self, packet: memoryview, _ev: int, now: int) -> None:
        number = Bth.unpack(packet, BTH_OFFSET).psn & _ID_MASK
        if Eeth.unpack(packet, BODY_OFFSET).op == EndpointOp.PORT_STATUS:
            self._ports.acknowledged(bytes(packet[8:24]), number)
        else:
            self._core.prober.answer(number, now)
