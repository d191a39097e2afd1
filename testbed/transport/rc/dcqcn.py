"""DCQCN's reaction point (Zhu et al., Congestion Control for Large-Scale RDMA Deployments, SIGCOMM 2015, section 5).

Times are the paper's 50 and 55 us in round trips of its fabric's 8 us, so that they scale with the base round trip. A scenario
that stands for a shorter one (`scale.rtt: 2us`) has them four times as fast as a NIC would there.

A run lasts hundreds of round trips where a job's flows live for hundreds of thousands, and what it must show is the share of a
bottleneck that flows settle at: so four constants are faster than the paper's. g is 1/16 (DCTCP's) for 1/256, or alpha would
never leave the value it starts with; additive and hyper increase are 1 % and 5 % of the line rate for 0.1 % and 1 %, or a rate
that was cut twice would not be back before the run ends; and the byte counter is 25 round trips at line rate for 250, because
hyper increase needs six of them since the last cut, which would be 1,500 round trips or more.

A flow begins at line rate with alpha 1: the first CNPs halve it, and a short run measures that start too.
"""

from __future__ import annotations

CNP_RTTS = 6  # the least time between two CNPs of a QP: 50 us
ALPHA_RTTS = 7  # alpha decays every 55 us without a CNP
INCREASE_RTTS = 7  # the timer of rate increase: 55 us
BYTES_RTTS = 25  # its byte counter, at line rate; the paper's is 10 MB, 2 ms of 40 Gbit/s, which are 250
FAST_RECOVERY = 5  # increases that only halve the way back to the target
G = 1 / 16
ADDITIVE = 0.01  # of the line rate
HYPER = 0.05
LEAST = 0.001  # of the line rate: the paper's 40 Mbit/s


class Dcqcn:
    """One QP's rate in charged bit/s. Timers are caught up with when `advance` is called: nothing reads the rate between."""

    __slots__ = (
        "_alpha_at",
        "_alpha_ns",
        "_byte_stage",
        "_bytes",
        "_bytes_limit",
        "_increase_at",
        "_increase_ns",
        "_least",
        "_line",
        "_target",
        "_time_stage",
        "alpha",
        "cuts",
        "rate",
    )

    def __init__(self, line_bps: int, rtt_base_ns: int) -> None:
        self._line = float(line_bps)
        self._least = LEAST * line_bps
        self._alpha_ns = ALPHA_RTTS * rtt_base_ns
        self._increase_ns = INCREASE_RTTS * rtt_base_ns
        self._bytes_limit = int(BYTES_RTTS * rtt_base_ns * line_bps / 8e9)
        self.rate = self._line
        self.alpha = 1.0
        self.cuts = 0
        self._target = self._line
        self._alpha_at = 0
        self._increase_at = 0
        self._bytes = 0
        self._time_stage = 0
        self._byte_stage = 0

    @property
    def limited(self) -> bool:
        """Whether the rate is below the line's."""
        return self.rate < self._line

    def congested(self, now: int) -> None:
        """A CNP has come: cut the rate, remember it as the target, start the way back anew."""
        self.advance(now)
        self._target = self.rate
        self.rate = max(self._least, self.rate * (1 - self.alpha / 2))
        self.alpha = (1 - G) * self.alpha + G
        self.cuts += 1
        self._alpha_at = now + self._alpha_ns
        self._increase_at = now + self._increase_ns
        self._bytes = 0
        self._time_stage = self._byte_stage = 0

    def sent(self, charged_bytes: int) -> None:
        """Count what leaves towards the byte counter's next increase."""
        if self.rate >= self._line:
            return
        self._bytes += charged_bytes
        if self._bytes >= self._bytes_limit:
            self._bytes -= self._bytes_limit
            self._byte_stage += 1
            self._increase()

    def advance(self, now: int) -> None:
        """Let the timers that have run out since the last call act, in their order."""
        if self.rate >= self._line and self.alpha < LEAST:
            return
        while self.cuts and self._alpha_at <= now:
            self.alpha *= 1 - G
            self._alpha_at += self._alpha_ns
        while self.rate < self._line and self._increase_at <= now:
            self._increase_at += self._increase_ns
            self._time_stage += 1
            self._increase()

    def _increase(self) -> None:
        first, last = min(self._time_stage, self._byte_stage), max(self._time_stage, self._byte_stage)
        if first > FAST_RECOVERY:
            self._target += (first - FAST_RECOVERY) * HYPER * self._line
        elif last > FAST_RECOVERY:
            self._target += ADDITIVE * self._line
        self._target = min(self._target, self._line)
        self.rate = (self.rate + self._target) / 2
        if self.rate > 0.999 * self._line:
            self.rate = self._line
