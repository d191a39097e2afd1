"""Metrics of summary.json (DESIGN 4.4), one file per topic. Each `measure(view)` returns those that apply; others are absent.

Works from `analysis.view.View` only; reads no file.
"""

from __future__ import annotations

import math

from analysis.metrics import delay, faults, flows, goodput, machine, messages, packets, steps
from analysis.metrics.definitions import DEFINITIONS
from analysis.view import View

_TOPICS = (goodput, flows, messages, steps, delay, packets, faults, machine)


def measure(view: View) -> dict[str, float | int]:
    """Every metric that applies, in the order of their definitions. Counts are integers; no value is NaN."""
    found: dict[str, float] = {}
    for topic in _TOPICS:
        found |= topic.measure(view)
    unknown = found.keys() - {definition.name for definition in DEFINITIONS}
    assert not unknown, f"metrics without a definition: {sorted(unknown)}"
    ordered = ((definition, found.get(definition.name, math.nan)) for definition in DEFINITIONS)
    return {d.name: int(value) if d.count else value for d, value in ordered if math.isfinite(value)}
