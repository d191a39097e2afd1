"""The sending half of a QP: segments WRITEs, remembers what is out, retransmits, and completes in order.

What is lost, loss.py judges by evidence; by time alone only the retransmission timeout does.
"""

from __future__ import annotations

from heapq import heappop, heappush

from testbed.transport.common.codepoints import TCLASS_DATA, TCLASS_RETRANSMISSION
from testbed.transport.common.events import Fate, LossReason, Recorder
from testbed.transport.common.psn import PSN_MASK
from testbed.transport.mrc.codepoints import WITH_IMMEDIATE, NackReason, Opcode
from testbed.transport.mrc.config import MPR_UNIT, QpLimits
from testbed.transport.mrc.loss import Copy, LossJudge, Touched
from testbed.transport.mrc.packets import ACK_REQUEST, RETRANSMISSION, Datagram, Link, data, timestamp16, write_opcode
from testbed.transport.mrc.paths import Path, PathSet
from testbed.transport.mrc.receive_window import SACK_BITS
from testbed.transport.mrc.send_queue import SendQueue
from testbed.transport.mrc.sent import Acknowledgement, Message, SentPacket, echo_of
from testbed.transport.mrc.timing import RetransmissionTimer
from testbed.transport.mrc.trace import Kind
from testbed.transport.mrc.window import Window

_RECEIVED_MASK = (1 << 24) - 1
MOST_PASSED_OVER = 4  # suspected paths in a row, before the rotation's own choice is taken after all


class Requester:
    """State of one QP's outbound direction."""

    def __init__(
        self,
        number: int,
        first_psn: int,
        *,
        link: Link,
        paths: PathSet,
        window: Window,
        payload: int,
        limits: QpLimits,
        rtt_base_ns: int,
        recorder: Recorder,
    ) -> None:
        self.number = number
        self.remote = 0
        self.paths = paths
        self.window = window
        self.cack = first_psn - 1
        self.next_psn = first_psn
        self.outstanding: dict[int, SentPacket] = {}  # in order of sending
        self.lost: dict[int, SentPacket] = {}  # declared lost, not yet sent again
        self.timer = RetransmissionTimer(rtt_base_ns, limits)
        self.losses = LossJudge(paths.all, rtt_base_ns)
        self.sent_bytes: dict[int, int] = dict.fromkeys((plane.number for plane in paths.planes), 0)  # payload, by plane
        self.rtt_ns: dict[int, int] = dict.fromkeys(self.sent_bytes, 0)  # smoothed, by plane
        self.packets_sent = 0
        self.retransmissions = 0
        self.queue = SendQueue(limits.max_wimm)
        self._link = link
        self._payload = payload
        self._limits = limits
        self._rtt_base_ns = rtt_base_ns
        self._mpr_psns = limits.mpr * MPR_UNIT
        self._recorder = recorder
        self._decision = recorder.decision
        self._traced_limit = 0
        self._holes: list[int] = []
        self._asked: SentPacket | None = None  # the latest packet that is owed a SACK of its own
        self._received = 0  # the newest SACK's count of received bytes: an older SACK overtaken on another path judges nothing

    # Sending

    def post(self, wr_id: int, view: memoryview, address: int, rkey: int, immediate: int | None) -> None:
        """Queue one WRITE, or WRITE_WITH_IMM when `immediate` is given."""
        self.queue.post(wr_id, view, address, rkey, immediate)

    def may_send(self) -> bool:
        """Whether a packet is ready and the windows allow it."""
        if self._holes:
            return self.window.has_room(self.lost[self._holes[0]].size)
        message = self.queue.ready()
        if message is None or self.next_psn > self.cack + self._mpr_psns:
            return False
        return self.window.has_room(min(self._payload, message.length - message.sent))

    def pick(self, now: int) -> Path | None:
        """The path of the next packet, None while no port has room.

        A retransmission takes a fresh EV if there is one. A path is passed over while one of its packets is overdue: later
        ones have arrived elsewhere, though not by enough to call it lost. That costs nothing and spares a dead path a packet.
        """
        first = path = self.paths.next(now)
        react = self.paths.policy.react
        avoid = self.lost[self._holes[0]].path if self._holes else None
        for _ in range(MOST_PASSED_OVER):
            if path is None or not (path is avoid or (react and self.losses.suspects(path))):
                return path or first
            if self._decision is not None:
                self._decide(now, Kind.PASSED_OVER, self._holes[0] if self._holes else self.next_psn, path.ev, 0)
            path = self.paths.next(now)
        return first

    def send(self, path: Path, now: int) -> Datagram:
        """Send one packet on `path`: the oldest hole, else the next of the oldest message. Only after `may_send`."""
        if self._holes:
            return self._retransmit(path, now)
        message = self.queue.pending[0]
        offset = message.sent
        size = min(self._payload, message.length - offset)
        psn = self.next_psn
        self.next_psn = psn + 1
        last = self.queue.advance(message, size, psn)
        return self._emit(psn, message, offset, size, write_opcode(offset == 0, last, message.immediate), path, now, last, None)

    def _retransmit(self, path: Path, now: int) -> Datagram:
        psn = heappop(self._holes)
        old = self.lost.pop(psn)
        self.retransmissions += 1
        old.earlier = None  # one generation is enough
        return self._emit(psn, old.message, old.offset, old.size, old.opcode, path, now, False, old)

    def _emit(
        self,
        psn: int,
        message: Message,
        offset: int,
        size: int,
        opcode: Opcode,
        path: Path,
        now: int,
        last: bool,
        earlier: SentPacket | None,
    ) -> Datagram:
        window = self.window
        window.sent(size)
        control = RETRANSMISSION if earlier is not None else 0
        if last or not window.has_room(self._payload) or self.next_psn > self.cack + self._mpr_psns:
            control |= ACK_REQUEST  # the window is exhausted, or nothing may follow that would bring a SACK
        immediate = message.immediate if opcode in WITH_IMMEDIATE else None
        buffers, inner = data(
            self._link,
            path,
            opcode=opcode,
            dqp=self.remote,
            control=control,
            psn=psn & PSN_MASK,
            rqmsn=message.rqmsn,
            msn=message.msn,
            now=now,
            address=message.address + offset,
            rkey=message.rkey,
            length=message.length,
            immediate=immediate,
            payload=message.data[offset : offset + size],
        )
        sent = path.port.depart(inner, now)
        if not self.outstanding:
            self.timer.restart(sent)
        packet = SentPacket(psn, message, offset, size, opcode, path, sent, earlier, echo_of(path.ev, timestamp16(now)))
        self.outstanding[psn] = packet
        if control:  # an acknowledgement request, or a retransmission, which is answered at once too
            self._asked = packet
            self.timer.asked(sent)
        self.losses.sent(packet)
        self.packets_sent += 1
        self.sent_bytes[path.plane] += size
        return path.destination, TCLASS_DATA if earlier is None else TCLASS_RETRANSMISSION, buffers

    # Acknowledgements

    def acknowledged(self, sack: Acknowledgement, now: int) -> None:
        """Take a SACK."""
        cack, base, bits, ack_psn, probe = sack.cack, sack.base, sack.bits, sack.ack_psn, sack.probe
        behind = (sack.received - self._received) & _RECEIVED_MASK
        fresh = behind <= _RECEIVED_MASK >> 1
        if fresh:
            self._received = sack.received
            if sack.mpr and self._limits.dynamic_mpr:
                self._mpr_psns = sack.mpr * MPR_UNIT
        outstanding = self.outstanding
        touched: Touched = {}
        progress = False
        delay = -1 if ack_psn is None else self._answered(ack_psn, sack.echo, now)
        if cack > self.cack:
            for psn in range(self.cack + 1, cack + 1):
                progress |= self._arrived(psn, sack, touched, now)
            self.cack = cack
        remaining = bits
        while remaining:
            low = remaining & -remaining
            remaining ^= low
            psn = base + low.bit_length() - 1
            if psn > cack and (psn in outstanding or psn in self.lost):
                progress |= self._arrived(psn, sack, touched, now)
        if probe is not None:
            sent, path = probe
            self.losses.probe_answered(path, sent, touched)
            progress = True
        self.window.feedback(marked=sack.marked, delay_ns=delay, penalty=sack.penalty, restore=sack.restore, now=now)
        if progress:
            self.timer.progress(now)
        if outstanding and fresh:
            self._judge(base, touched, LossReason.PROBE if probe is not None else LossReason.REORDER_WINDOW, now)
        if not outstanding and self.queue.unconfirmed(self.cack):
            self.timer.restart(now)  # that everything is executed is owed within a round trip, or probed for
        self._trace_window(now)

    def _answered(self, psn: int, echo: int, now: int) -> int:
        """A SACK answers one arrival of `psn`, which ends a round trip or was late, not lost. Returns its queueing delay."""
        packet = self.outstanding.get(psn)
        if packet is not None and packet.echo == echo:
            return self._sample(packet.path, now - packet.sent)
        if packet is None and (late := self.losses.came_after_all(psn, echo)) is not None:
            self._was_late(late, now)
        return -1

    def _arrived(self, psn: int, sack: Acknowledgement, touched: Touched, now: int) -> bool:
        packet = self.outstanding.pop(psn, None)
        if packet is None:
            early = self.lost.pop(psn, None)
            if early is not None:  # declared lost, but it was only late
                self._holes.remove(psn)
                self._holes.sort()
                self._was_late(early, now)
                return True
            return False
        packet.outstanding = False
        if packet is self._asked:
            self.timer.answered()
        self.window.acknowledged(packet.size)
        path = packet.path
        caused = psn == sack.ack_psn
        marked = caused and sack.marked
        self._record(packet, now, Fate.ACKNOWLEDGED, LossReason.NONE, marked)
        if packet.earlier is not None:
            copy = self.losses.which(packet, sack.echo if caused else None, now)
            if copy is Copy.EARLIER:
                self._was_late(packet.earlier, now)
                return True
            self.losses.doubt(packet)
            if copy is Copy.UNKNOWN:
                return True
        self.losses.arrived(packet, touched)
        path.home.confirm(path, now)
        self.paths.acknowledged(path, marked=marked)
        return True

    def _judge(self, base: int, touched: Touched, reason: LossReason, now: int) -> None:
        """Act on what a SACK proves lost. It speaks only of the PSNs its bitmap covers."""
        first = max(self.cack + 1, base)
        for packet, why, proof in self.losses.verdicts(self.outstanding, touched, first, base + SACK_BITS, reason, now):
            if self._decision is not None:
                self._decide(now, Kind.EVIDENCE, packet.psn, packet.path.ev, proof if proof < 0 else proof & PSN_MASK)
            self._lose(packet, why, now)

    def _was_late(self, packet: SentPacket, now: int) -> None:
        self.losses.was_late(packet, now)
        if self._decision is not None:
            self._decide(now, Kind.LATE, packet.psn, packet.path.ev, self.losses.reorder.value(now))

    def _lose(self, packet: SentPacket, reason: LossReason, now: int) -> None:
        self._requeue(packet, Fate.LOST, reason, now)
        self.paths.lost(packet.path, now)

    def _requeue(self, packet: SentPacket, fate: Fate, reason: LossReason, now: int) -> None:
        packet.outstanding = False
        if packet is self._asked:
            self.timer.answered()
        del self.outstanding[packet.psn]
        (self.window.trimmed if fate is Fate.TRIMMED else self.window.lost)(packet.size, now)
        self.lost[packet.psn] = packet
        heappush(self._holes, packet.psn)
        self._record(packet, now, fate, reason, False)

    def plane_lost(self, plane: int, now: int) -> None:
        """A port of `plane` went down: what is out there is sent again at once, and no EV is blamed."""
        for packet in [packet for packet in self.outstanding.values() if packet.path.plane == plane]:
            packet.written_off = True
            self._requeue(packet, Fate.LOST, LossReason.PORT_DOWN, now)

    def refused(self, psn: int, echo: int, reason: int, now: int) -> bool:
        """A NACK: that transmission was trimmed or not taken, so it goes out again. False when it is not outstanding."""
        packet = self.outstanding.get(psn)
        if packet is None or packet.echo != echo:
            return False
        self.timer.progress(now)
        packet.refused = True
        if reason == NackReason.TRIMMED_LASTHOP:
            self.losses.last_hop_full(packet, now)
        trimmed = reason in (NackReason.TRIMMED, NackReason.TRIMMED_LASTHOP)
        self._requeue(packet, Fate.TRIMMED if trimmed else Fate.REFUSED, LossReason.NONE, now)
        self._trace_window(now)
        return True

    def executed(self, msn: int, now: int) -> None:
        """A transport ACK: `msn` messages (24 bits) are wholly in the responder's memory."""
        if self.queue.executed(msn):
            self.timer.progress(now)

    def completed(self) -> list[int]:
        """wr_ids of the messages that have completed, in send order."""
        return self.queue.completed(self.cack)

    # Time

    def deadline(self) -> int | None:
        """When the timer wants attention, if nothing else happens."""
        return self.timer.deadline() if self.outstanding or self.queue.acknowledged(self.cack) else None

    def timed_out(self, now: int) -> bool:
        """The retransmission timeout: the oldest packet is taken for lost, on no better evidence than time.

        False when the retry counter is exceeded.
        """
        alive = self.timer.expire(now)
        if self._decision is not None:
            oldest = next(iter(self.outstanding), self.cack + 1)
            self._decide(now, Kind.TIMEOUT, oldest, 0, self.timer.timeouts)
        if alive and self.outstanding:
            self._lose(next(iter(self.outstanding.values())), LossReason.RTO, now)
        return alive

    def abort(self) -> None:
        """The QP is in error: forget all that was posted. What is out is recorded, its fate unknown."""
        self.flush()
        for packet in self.outstanding.values():
            self.window.forgotten(packet.size)
        for kept in (self.outstanding, self.lost, self._holes, self.queue):
            kept.clear()

    def flush(self) -> None:
        """Record what is still out, its fate unknown."""
        for packet in self.outstanding.values():
            self._record(packet, 0, Fate.UNKNOWN, LossReason.NONE, False)

    def _decide(self, now: int, kind: Kind, psn: int, ev: int, value: int) -> None:
        if self._decision is not None:
            self._decision(now, kind, self.number, psn & PSN_MASK, ev, value)

    def _trace_window(self, now: int) -> None:
        if self._decision is not None and self.window.limit != self._traced_limit:
            self._traced_limit = self.window.limit
            self._decide(now, Kind.WINDOW, self.cack + 1, 0, self._traced_limit)

    def _sample(self, path: Path, rtt: int) -> int:
        """Take one round trip of `path`; returns what it spent in queues, in ns."""
        self.losses.sampled(path, rtt - self._rtt_base_ns)
        plane = path.plane
        old = self.rtt_ns[plane]
        self.rtt_ns[plane] = rtt if not old else old + (rtt - old >> 3)
        return max(0, rtt - self._rtt_base_ns)

    def _record(self, packet: SentPacket, now: int, fate: Fate, reason: LossReason, marked: bool) -> None:
        self._recorder.packet(
            packet.sent,
            now,
            self.number,
            packet.psn & PSN_MASK,
            packet.path.ev,
            packet.size,
            packet.earlier is not None,
            fate,
            reason,
            marked,
        )
