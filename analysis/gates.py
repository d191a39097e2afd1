"""How far each metric may move before the regression calls it worse, and which way worse is.

A metric may move by `absolute`, or by `relative` of the baseline's median, whichever is more. The tolerances are what a
difference must exceed to matter, not what repeats scatter by: scatter is measured, and decides through the interval of the
difference (`analysis.regress`). Metrics that describe the machine or restate others are not gated. A baseline file may carry
gates of its own, by metric or by `member.metric`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Better(StrEnum):
    HIGHER = "higher"
    LOWER = "lower"
    SAME = "same"  # either way is a change that somebody must explain


@dataclass(frozen=True, slots=True)
class Gate:
    better: Better
    relative: float = 0.0
    absolute: float = 0.0

    def allowed(self, median: float) -> float:
        """How far from the baseline's median is no regression."""
        return max(self.absolute, self.relative * abs(median))


GATES: Mapping[str, Gate] = {
    # One host of eight at nine tenths of its rate takes 2.5 % off what all place.
    "goodput_mbps": Gate(Better.HIGHER, relative=0.01),
    "goodput_ratio": Gate(Better.HIGHER, absolute=0.01),
    "goodput_ratio_min_1s": Gate(Better.HIGHER, absolute=0.05),
    "flow_goodput_ratio_min": Gate(Better.HIGHER, absolute=0.03),
    "jain_index": Gate(Better.HIGHER, absolute=0.01),
    "message_ms_p50": Gate(Better.LOWER, relative=0.03),
    "message_ms_p99": Gate(Better.LOWER, relative=0.10),
    "step_ms_mean": Gate(Better.LOWER, relative=0.02),
    "step_ms_p99": Gate(Better.LOWER, relative=0.05),
    "busbw_mbps": Gate(Better.HIGHER, relative=0.02),
    "oneway_us_p50": Gate(Better.LOWER, relative=0.05),
    "oneway_us_p99": Gate(Better.LOWER, relative=0.15),
    "retransmit_ratio": Gate(Better.LOWER, relative=0.3, absolute=0.0005),
    "spurious_retransmit_ratio": Gate(Better.LOWER, relative=0.3, absolute=0.0005),
    "packets_trimmed": Gate(Better.LOWER, relative=0.3, absolute=50),
    "packets_dropped_queue": Gate(Better.LOWER, relative=0.3, absolute=10),
    "evs_retired": Gate(Better.LOWER, relative=0.3, absolute=3),
    "evs_restored": Gate(Better.SAME, relative=0.3, absolute=3),
    "plane_imbalance": Gate(Better.LOWER, absolute=0.01),
    # Whole round trips: a fault is late by half a one at most (docs/fidelity.md), and is found within three.
    "recovery_rtts_max": Gate(Better.LOWER, absolute=0.75),
    "stall_rtts_max": Gate(Better.LOWER, relative=0.2, absolute=0.75),
    "messages_incomplete": Gate(Better.LOWER),
    "messages_corrupt": Gate(Better.LOWER),
    "bytes_lost": Gate(Better.LOWER),
}
