"""The sending half of a QP: go-back-N on one path, at the rate that DCQCN allows.

Whatever the receiver reports missing is sent again with everything behind it; the receiver keeps nothing out of order. PSNs are
unbounded integers here, only the wire wraps them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from testbed.transport.common.config import EXPONENTIAL_FOREVER
from testbed.transport.common.events import Fate, LossReason, Recorder
from testbed.transport.common.ports import FRAME_HEADERS
from testbed.transport.common.psn import PSN_MASK
from testbed.transport.rc import wire
from testbed.transport.rc.config import EndpointConfig
from testbed.transport.rc.dcqcn import Dcqcn
from testbed.transport.rc.path import Path

_NS = 1_000_000_000
_SMOOTHING = 8  # of the round trip, RFC 6298
# Pacing that fell behind, because the host woke late, may catch up by this many frames.
_BEHIND_FRAMES = 2
_MOST_PSNS = PSN_MASK >> 1  # unacknowledged at once: beyond half of the space old and new could not be told apart


class _Write:
    """One posted WRITE: PSNs `first` to `last`."""

    __slots__ = ("address", "data", "first", "immediate", "last", "rkey", "wr_id")

    def __init__(
        self, wr_id: int, data: memoryview, address: int, rkey: int, immediate: int | None, first: int, last: int
    ) -> None:
        self.wr_id = wr_id
        self.data = data
        self.address = address
        self.rkey = rkey
        self.immediate = immediate
        self.first = first
        self.last = last


class _Transmission:
    """The latest transmission of one PSN."""

    __slots__ = ("again", "path", "sent_ns", "size")

    def __init__(self, path: Path, sent_ns: int, size: int, again: bool) -> None:
        self.path = path  # a QP is hashed anew when a port goes or comes
        self.sent_ns = sent_ns
        self.size = size
        self.again = again


class Outstanding:
    """What samples show as a window: payload bytes. `limit` follows the rate where nothing else bounds a QP."""

    __slots__ = ("inflight", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.inflight = 0


class Requester:
    """Sends what is posted, in order."""

    def __init__(
        self,
        number: int,
        psn: int,
        config: EndpointConfig,
        source: bytes,
        target: bytes,
        source_port: int,
        path: Path,
        recorder: Recorder,
    ) -> None:
        self.number = number
        self.remote = 0
        self.path = path
        self.packets_sent = 0
        self.retransmissions = 0
        self.timeouts = 0
        self.failed = False
        self._config = config
        self._source = source
        self._target = target
        self._source_port = source_port
        self._recorder = recorder
        self._payload = config.payload
        self._line_bps = next(port.rate_bps for port in config.ports if port.plane == path.plane)
        self.dcqcn: Dcqcn | None = Dcqcn(self._line_bps, config.rtt_base_ns) if config.cc == "dcqcn" else None
        self._bdp = max(config.payload, int(self._line_bps * config.rtt_base_ns / 8e9))
        self.window = Outstanding(config.window_bytes or self._bdp)
        self._writes: deque[_Write] = deque()
        self._end = psn  # the PSN that the next WRITE starts with
        self._next = psn  # to be sent
        self._acked = psn  # all before it are acknowledged
        self._high = psn  # all before it have been sent at least once
        self._sent: dict[int, _Transmission] = {}
        self._sent_bytes: dict[int, int] = {}
        self._rtt: dict[int, int] = {}
        self._paced_until = 0
        self._asked_at = -config.rtt_base_ns  # when the last packet left that asked for an acknowledgement
        self._timeout = config.timeout_ns
        self._rto_at: int | None = None
        self._in_a_row = 0

    @property
    def oldest(self) -> int:
        """The oldest PSN that is not acknowledged."""
        return self._acked

    @property
    def sent_bytes(self) -> Mapping[int, int]:
        """Payload bytes by plane, retransmissions included."""
        return self._sent_bytes

    @property
    def rtt_ns(self) -> Mapping[int, int]:
        """Smoothed round trip by plane."""
        return self._rtt

    def post(self, wr_id: int, data: memoryview, address: int, rkey: int, immediate: int | None) -> None:
        """Queue a WRITE behind those that are there."""
        packets = -(-len(data) // self._payload)
        self._writes.append(_Write(wr_id, data, address, rkey, immediate, self._end, self._end + packets - 1))
        self._end += packets

    def wants(self) -> bool:
        """Whether there is something to send and nothing but time and the port in its way."""
        if self.failed or self._next >= self._end or self._next - self._acked >= _MOST_PSNS:
            return False
        limit = self._config.window_bytes
        return not limit or self.window.inflight + self._payload <= limit or self.window.inflight == 0

    def ready_at(self, now: int) -> int:
        """When its rate lets the next packet go."""
        if self.dcqcn is None:
            return 0
        self.dcqcn.advance(now)
        self._follow_rate()
        return self._paced_until if self.dcqcn.limited else 0

    def send(self, now: int) -> tuple[tuple[str, int, int, int], int, wire.Buffers]:
        """The next packet, which leaves now."""
        psn, payload = self._next, self._payload
        write = next(write for write in self._writes if write.last >= psn)
        at = (psn - write.first) * payload
        piece = write.data[at : at + payload]
        first, last = psn == write.first, psn == write.last
        opcode = wire.write_opcode(first, last, write.immediate is not None)
        extra = wire.reth(write.address, write.rkey, len(write.data)) if first else b""
        if last and write.immediate is not None:
            extra += wire.word(write.immediate)
        path = self.path
        again = psn < self._high
        asks = last or psn == self._acked or self._silent(now)
        if asks:
            self._asked_at = now
        buffers, inner = wire.packet(
            self._source,
            self._target,
            self._source_port,
            path.label | (wire.AGAIN if again else 0),
            opcode=opcode,
            dqp=self.remote,
            psn=psn & PSN_MASK | (wire.ACK_REQUEST if asks else 0),
            extra=extra,
            payload=piece,
        )
        sent_ns = path.port.depart(inner, now)
        self._sent[psn] = _Transmission(path, sent_ns, len(piece), again)
        self._next = psn + 1
        self._high = max(self._high, self._next)
        self.window.inflight += len(piece)
        self._sent_bytes[path.plane] = self._sent_bytes.get(path.plane, 0) + len(piece)
        self.packets_sent += 1
        if again:
            self.retransmissions += 1
        self._pace(inner + FRAME_HEADERS + self._config.overhead_bytes, now)
        if self._rto_at is None:
            self._rto_at = sent_ns + self._timer()
        return path.destination, wire.TCLASS_DATA, buffers

    def acknowledge(self, psn: int, now: int) -> list[int]:
        """Everything before `psn` has arrived; the wr_ids of the WRITEs that are now complete."""
        if psn <= self._acked or psn > self._high:
            return []
        for number in range(self._acked, psn):
            one = self._sent.pop(number, None)
            if one is None:
                continue  # sent, called lost, and not sent again yet: it had arrived after all
            self.window.inflight -= one.size
            self._record(number, one, now, Fate.ACKNOWLEDGED, LossReason.NONE)
            if not one.again and number == psn - 1:
                self._measured(one.path.plane, now - one.sent_ns)
        self._acked = psn
        self._next = max(self._next, psn)
        self._in_a_row = 0
        self._rto_at = now + self._timer() if self._sent else None
        done: list[int] = []
        while self._writes and self._writes[0].last < psn:
            done.append(self._writes.popleft().wr_id)
        return done

    def go_back(self, psn: int, now: int) -> None:
        """The receiver waits for `psn` and has refused what came behind it."""
        if self._acked <= psn < self._next:
            self._rewind(psn, now, LossReason.LATER_SAME_PATH)

    def congested(self, now: int) -> None:
        """A CNP has come."""
        if self.dcqcn is not None:
            self.dcqcn.congested(now)
            self._follow_rate()

    @property
    def deadline(self) -> int | None:
        """When the retransmission timer runs out."""
        return None if self.failed else self._rto_at

    def timed_out(self, now: int) -> bool:
        """Start again from the oldest packet; False when that has been tried often enough."""
        self.timeouts += 1
        self._in_a_row += 1
        limits = self._config.limits
        if limits.exponential != EXPONENTIAL_FOREVER and self._in_a_row > limits.linear + limits.exponential:
            return False
        self._rewind(self._acked, now, LossReason.RTO)
        self.congested(now)  # where all of a QP's packets are dropped no CNP can come, and its rate would stay
        return True

    def flush(self) -> None:
        """Record packets whose fate is unknown."""
        for number, one in sorted(self._sent.items()):
            self._record(number, one, 0, Fate.UNKNOWN, LossReason.NONE)
        self._sent.clear()

    def _rewind(self, psn: int, now: int, reason: LossReason) -> None:
        """`psn` is lost; what was sent behind it the receiver has thrown away."""
        for number in range(psn, self._next):
            one = self._sent.pop(number, None)
            if one is not None:
                self.window.inflight -= one.size
                lost = number == psn or reason is LossReason.RTO
                fate = Fate.LOST if lost else Fate.REFUSED
                self._record(number, one, now, fate, reason if lost else LossReason.NONE)
        self._next = psn
        self._rto_at = None

    def _record(self, psn: int, one: _Transmission, now: int, fate: Fate, reason: LossReason) -> None:
        self._recorder.packet(
            one.sent_ns, now, self.number, psn & PSN_MASK, one.path.ev, one.size, int(one.again), fate, reason, 0
        )

    def _measured(self, plane: int, rtt_ns: int) -> None:
        known = self._rtt.get(plane)
        self._rtt[plane] = rtt_ns if known is None else known + (rtt_ns - known) // _SMOOTHING

    def _timer(self) -> int:
        doubled = max(0, self._in_a_row - self._config.limits.linear)
        return self._timeout << min(doubled, 16)

    def _silent(self, now: int) -> bool:
        """Whether no packet has asked for an ACK for a base round trip, or the next one may leave more than that later: at such
        a rate `ack_bytes` alone would make an ACK due only after the timer.
        """
        rtt_ns = self._config.rtt_base_ns
        slow = self.dcqcn is not None and self.dcqcn.rate * rtt_ns < self._payload * 8 * _NS
        return slow or now - self._asked_at >= rtt_ns

    def _follow_rate(self) -> None:
        if self.dcqcn is not None and not self._config.window_bytes:
            self.window.limit = max(self._payload, int(self._bdp * self.dcqcn.rate / self._line_bps))

    def _pace(self, charged_bytes: int, now: int) -> None:
        cc = self.dcqcn
        if cc is None:
            return
        cc.sent(charged_bytes)
        gap = int(charged_bytes * 8 * _NS / cc.rate)
        self._paced_until = max(self._paced_until, now - _BEHIND_FRAMES * gap) + gap
