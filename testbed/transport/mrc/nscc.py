"""NSCC, the window-based congestion control of Ultra Ethernet 1.0 that MRC names (mrc-facts 3.6; docs/protocol.md, "NSCC").

A SACK's ECN mark says what the queue is doing now, its round trip what it was one queue ago. The four combinations:

    no mark, delay below target     proportional increase, after a quiet window fast increase
    no mark, delay at target        fair increase: the same for every sender, however small its window
    mark, delay at target           multiplicative decrease by the average delay, at most once per base round trip
    mark, delay below target        nothing: the balance between paths is at fault, and their selection sees to it

A trimmed packet takes its size off the window; where little arrives at all, quick adapt sets the window to what did arrive.
"""

from __future__ import annotations

from dataclasses import dataclass

from testbed.transport.mrc.window import Window

REFERENCE_FRAMES = 36.6  # the round trip of UEC's reference path in 4 KiB frames: 100 Gbit/s x 12 us
TARGET = 0.75  # target queueing delay, in base round trips; the value for fabrics that trim
ALPHA = 4.0  # proportional increase, frames per round trip at no delay at all and a target of one base round trip
FAIR = 2.5  # fair increase, frames per round trip: half of UEC's 5, as last hops do not mark (docs/protocol.md)
ETA = 0.15  # frames per round trip, whatever else happens
FAST = 0.25  # share of the acknowledged bytes by which fast increase widens the window
FAST_BELOW = 12  # fast increase wants delays below a twelfth of a base round trip (UETSIM: 1 us of 12)
GAMMA = 0.8  # a multiplicative decrease takes this share of the excess
MAX_DECREASE = 0.5  # and never more than half the window
ADJUST_FRAMES = 8  # increases are applied each so many frames, or each base round trip
QUICK_GATE = 3  # quick adapt is for windows that got less than 1/2^3 of the largest through
QUICK_TARGETS = 4  # and for delays above four targets
DRAINED = 4  # an unmarked packet with a delay above target enters the average as a quarter of a base round trip
AVERAGE_BDPS = 2  # the average delay is over the last two BDPs


@dataclass(frozen=True, slots=True)
class NsccParameters:
    """What NSCC is given: bytes of payload and ns. `derive` makes it from a path's round trip and BDP."""

    mtu: int
    base_rtt_ns: int
    bdp: int
    max_window: int
    target_ns: int
    alpha: float  # bytes of increase per round trip and ns below target
    fair: float  # bytes of increase per round trip
    eta: float  # bytes per base round trip
    fast: float
    quick_adapt: bool = True

    @classmethod
    def derive(cls, *, mtu: int, base_rtt_ns: int, bdp: int, max_window: int) -> NsccParameters:
        """UEC's defaults for a path of `bdp` bytes over all planes; increases grow with the BDP, as UEC's do."""
        scale = bdp / (REFERENCE_FRAMES * mtu)
        return cls(
            mtu=mtu,
            base_rtt_ns=base_rtt_ns,
            bdp=bdp,
            max_window=max_window,
            target_ns=int(TARGET * base_rtt_ns),
            alpha=ALPHA * mtu * scale / base_rtt_ns,
            fair=FAIR * mtu * scale,
            eta=ETA * mtu * scale,
            fast=FAST * scale,
        )


class NsccWindow(Window):
    """One destination's NSCC. Starts at its maximum, 1.5 BDP unless the scenario says otherwise; never below one packet."""

    __slots__ = (
        "_adjusted_at",
        "_average_ns",
        "_cwnd",
        "_decreased_at",
        "_eta_at",
        "_fast",
        "_gains",
        "_quick_achieved",
        "_quick_at",
        "_quick_ignored",
        "_quick_peak",
        "_quick_to_ignore",
        "_quick_wanted",
        "_quiet",
        "_since_adjusted",
        "parameters",
    )

    def __init__(self, parameters: NsccParameters) -> None:
        super().__init__(parameters.max_window, parameters.mtu)
        self.parameters = parameters
        self._cwnd = float(parameters.max_window)
        self._average_ns = 0.0
        self._gains = 0.0  # of the SACKs since the last adjustment: bytes x bytes, divided by the window when applied
        self._since_adjusted = 0
        self._adjusted_at = 0
        self._eta_at = 0
        self._decreased_at = -parameters.base_rtt_ns
        self._quiet = 0  # bytes in a row whose delay was next to nothing
        self._fast = False
        self._quick_at = 0  # when quick adapt may act next
        self._quick_achieved = 0  # bytes acknowledged since it last looked
        self._quick_wanted = False  # a packet was trimmed or lost since it last looked
        self._quick_peak = 0  # most bytes in flight since it last looked
        self._quick_to_ignore = 0  # bytes in flight when it last acted: their marks and trims tell of the window before
        self._quick_ignored = 0

    @property
    def average_delay_ns(self) -> float:
        return self._average_ns

    def lost(self, size: int, now: int) -> None:
        super().lost(size, now)
        self._one_packet_less(size, now)

    def trimmed(self, size: int, now: int) -> None:
        super().trimmed(size, now)
        self._one_packet_less(size, now)

    def _one_packet_less(self, size: int, now: int) -> None:
        self._quick_ignored += size
        self._quick_wanted = True
        if not self._quick_adapt(0, now, congested=True):
            self._set(self._cwnd - size)

    def _observe(self, newly: int, delay_ns: int, *, marked: bool) -> int:
        p = self.parameters
        self._quick_achieved += newly
        self._quick_ignored += newly
        self._quick_peak = max(self._quick_peak, self.inflight + newly)
        if delay_ns < 0:
            return int(self._average_ns)  # an ambiguous round trip says nothing new
        sample = p.base_rtt_ns // DRAINED if not marked and delay_ns > p.target_ns else delay_ns
        self._average_ns += (sample - self._average_ns) * min(1.0, newly / (AVERAGE_BDPS * p.bdp))
        return delay_ns

    def _adjust(self, newly: int, delay: int, now: int, *, marked: bool) -> None:
        p = self.parameters
        if self._quick_adapt(delay, now, congested=marked):
            return
        self._since_adjusted += newly
        if marked:
            self._quiet = 0
            self._fast = False
            if delay >= p.target_ns:
                self._decrease(now)
        elif delay >= p.target_ns:
            self._gains += p.fair * newly
        elif not self._fast_increase(newly, delay):
            self._gains += p.alpha * (p.target_ns - delay) * newly
        if self._since_adjusted > ADJUST_FRAMES * p.mtu or now - self._adjusted_at > p.base_rtt_ns:
            self._apply(now)

    def _fast_increase(self, newly: int, delay: int) -> bool:
        """After a whole window without delay: grow exponentially, until a first sign of a queue."""
        p = self.parameters
        if delay * FAST_BELOW >= p.base_rtt_ns:
            self._quiet = 0
            self._fast = False
            return False
        self._quiet += newly
        self._fast = self._fast or self._quiet > self._cwnd
        if self._fast:
            self._set(self._cwnd + newly * p.fast)
        return self._fast

    def _decrease(self, now: int) -> None:
        p = self.parameters
        average = self._average_ns
        if average > p.target_ns and now - self._decreased_at > p.base_rtt_ns:
            self._set(self._cwnd * max(1 - GAMMA * (average - p.target_ns) / average, 1 - MAX_DECREASE))
            self._decreased_at = now

    def _apply(self, now: int) -> None:
        p = self.parameters
        gain = self._gains / self._cwnd
        if now - self._eta_at >= p.base_rtt_ns:
            gain += p.eta
            self._eta_at = now
        self._set(self._cwnd + gain)
        self._gains = 0.0
        self._since_adjusted = 0
        self._adjusted_at = now

    def _quick_adapt(self, delay: int, now: int, *, congested: bool) -> bool:
        """True when it has just acted, or while `congested` feedback still tells of the window before it did."""
        p = self.parameters
        if not p.quick_adapt:
            return False
        acted = False
        if congested and self._quick_ignored < self._quick_to_ignore:
            acted = True
        elif now > self._quick_at:
            pressed = self._quick_wanted or delay > QUICK_TARGETS * p.target_ns
            used = 2 * self._quick_peak >= self._cwnd  # else it is the application that had little to send
            if self._quick_at and pressed and used and self._quick_achieved < p.max_window >> QUICK_GATE:
                self._set(min(self._cwnd, self._quick_achieved))
                self._quick_to_ignore = self.inflight
                self._quick_ignored = 0
                acted = True
            self._quick_wanted = False
            self._quick_achieved = 0
            self._quick_peak = self.inflight
            self._quick_at = now + p.base_rtt_ns + p.target_ns
        if acted:
            self._gains = 0.0
            self._since_adjusted = 0
        return acted

    def _resize(self, limit: int) -> None:
        self._set(float(limit))

    def _set(self, cwnd: float) -> None:
        p = self.parameters
        self._cwnd = min(max(cwnd, float(p.mtu)), float(p.max_window))
        self.limit = int(self._cwnd)
