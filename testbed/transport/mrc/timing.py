"""The requester's two times: how long reordering may last before it counts as loss, and how long silence may last.

Published constants exist for neither the reorder window nor the probe delay (mrc-facts 3.4, 7); docs/protocol.md argues ours.
"""

from __future__ import annotations

from testbed.transport.common.config import EXPONENTIAL_FOREVER, TIMEOUT_MAX_N, first_timeout_ns
from testbed.transport.mrc.config import QpLimits

REORDER_DECAY_RTTS = 4  # a widened reorder window halves after so long without another spurious retransmission
SUSPECT_DIVISOR = 4  # a path is suspected at a quarter of the reorder window
REORDER_MOST_RTTS = 8
# No narrower than so many frames at the NIC port's rate: what counts where a base RTT holds fewer than four.
REORDER_FRAMES = 2


class ReorderWindow:
    """Starts at half a base RTT, or what two frames take if that is longer; doubles on each spurious retransmission, decays.

    A packet that meets one frame more than another in its queues is late by that frame's serialisation time, whatever the RTT.
    """

    __slots__ = ("_changed", "_rtt_base_ns", "_value", "count", "start_ns")

    def __init__(self, rtt_base_ns: int, frame_ns: int) -> None:
        self._rtt_base_ns = rtt_base_ns
        self.start_ns = max(rtt_base_ns // 2, REORDER_FRAMES * frame_ns)  # and never less
        self._value = self.start_ns
        self._changed = 0
        self.count = 0  # spurious retransmissions seen

    @property
    def suspect_ns(self) -> int:
        """How much later than a path's outstanding packet another must have arrived for the path to be passed over."""
        return self.start_ns // SUSPECT_DIVISOR

    def value(self, now: int) -> int:
        if self._value > self.start_ns and now - self._changed > REORDER_DECAY_RTTS * self._rtt_base_ns:
            self._value = max(self.start_ns, self._value // 2)
            self._changed = now
        return self._value

    def spurious(self, now: int) -> None:
        self.count += 1
        self._value = max(self._value, min(2 * self._value, REORDER_MOST_RTTS * self._rtt_base_ns))
        self._changed = now


class RetransmissionTimer:
    """Silence is first met with reliability probes, then, several unanswered ones later, with a retransmission.

    Probe 1.25 base RTTs after an acknowledgement was asked for in vain, or after 1.5 base RTTs without progress; then each base
    RTT. `probes` times in a row nothing has come of it. The timeout stays at its first value `linear` times, then doubles.
    """

    __slots__ = (
        "_asked_at",
        "_limits",
        "_probe_after",
        "_probe_at",
        "_rtt_base_ns",
        "_since",
        "_timeout",
        "probes",
        "timeouts",
    )

    def __init__(self, rtt_base_ns: int, limits: QpLimits) -> None:
        self._limits = limits
        self._rtt_base_ns = rtt_base_ns
        self._probe_after = rtt_base_ns * 3 // 2
        self._timeout = first_timeout_ns(limits.timeout_n, rtt_base_ns)
        self._since = 0
        self._probe_at = 0
        self._asked_at: int | None = None
        self.timeouts = 0  # in a row
        self.probes = 0  # times in a row, without progress

    def restart(self, sent: int) -> None:
        """The first packet after silence has been sent."""
        self._since = sent
        self._probe_at = sent + self._probe_after

    def progress(self, now: int) -> None:
        self.timeouts = 0
        self.probes = 0
        self.restart(now)

    def asked(self, sent: int) -> None:
        """A packet that asks for an acknowledgement leaves at `sent`; its SACK should be back one round trip later."""
        self._asked_at = sent + self._rtt_base_ns * 5 // 4

    def answered(self) -> None:
        self._asked_at = None

    def rto_at(self) -> int:
        return self._since + (self._timeout << max(0, min(self.timeouts - self._limits.linear, TIMEOUT_MAX_N)))

    def deadline(self) -> int:
        return min(self._next_probe(), self.rto_at())

    def probe_due(self, now: int) -> bool:
        return now >= self._next_probe()

    def probed(self, now: int) -> None:
        self._probe_at = now + self._rtt_base_ns
        self._asked_at = None
        self.probes += 1

    def _next_probe(self) -> int:
        return self._probe_at if self._asked_at is None else min(self._probe_at, self._asked_at)

    def expire(self, now: int) -> bool:
        """A timeout has passed; the next one counts from here. False when there have been too many in a row."""
        self.timeouts += 1
        self._since = now
        limits = self._limits
        return limits.exponential == EXPONENTIAL_FOREVER or self.timeouts <= limits.linear + limits.exponential
