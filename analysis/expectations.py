"""`metric op value` against measured metrics. A metric that is absent never passes.

What is always expected (no message corrupt or incomplete, DESIGN 4.2) is part of a loaded scenario's `expect` already.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from testbed.model.scenario import Expectation

COMPARE: Mapping[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    ">": operator.gt,
    "<": operator.lt,
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """One line of summary.json's `expectations`. `actual` is None when the metric does not apply."""

    text: str
    actual: float | None
    passed: bool


def evaluate(expected: Sequence[Expectation], metrics: Mapping[str, float]) -> tuple[Outcome, ...]:
    """Each expectation with its actual value. The comparison is exact: rounding is for people, not for verdicts."""
    outcomes: list[Outcome] = []
    for one in expected:
        actual = metrics.get(one.metric)
        if actual is None or not math.isfinite(actual):
            outcomes.append(Outcome(one.text, None, passed=False))
        else:
            outcomes.append(Outcome(one.text, actual, COMPARE[one.op](actual, one.value)))
    return tuple(outcomes)
