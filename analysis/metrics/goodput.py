"""Goodput against the fluid ideal: `goodput_mbps`, `ideal_mbps`, their ratio, the ideals of other path rules and the worst
second.

Goodput is unique payload: the first arrival of each PSN, at the time it was placed. Both sides of every quotient run over
the same moments: those in the window at which the flow's receiver was recording (a gap is left out, pitfall H-22).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analysis.arrays import NS, Floats, Ints
from analysis.ideal import Ideal
from analysis.view import View

SECOND_NS = 10**9


@dataclass(frozen=True, slots=True)
class FlowRates:
    """Per flow over the covered part of the window, in bit/s; NaN for a flow whose receiver never recorded."""

    placed: Floats
    ideal: Floats
    ideal_equal: Floats
    ideal_transport: Floats | None


def flow_rates(view: View) -> FlowRates:
    """Mean rates of each flow in the window."""
    came, count = view.arrivals, len(view.flows)
    counted = (came.placed_ns >= view.start_ns) & (came.placed_ns < view.end_ns)
    counted &= view.receivers_covered(came.flow, came.placed_ns)
    placed = np.bincount(came.flow[counted], weights=came.size[counted], minlength=count)
    spans = [view.spans(flow, view.start_ns, view.end_ns) for flow in range(count)]
    seconds = np.array([float(np.sum(span[:, 1] - span[:, 0])) / NS for span in spans])
    seconds[seconds <= 0] = np.nan

    def rate(fluid: Ideal) -> Floats:
        placed_at_best = np.array([fluid.bytes_in(flow, span) for flow, span in enumerate(spans)])
        return np.asarray(placed_at_best * 8 / seconds, dtype=np.float64)

    tied = view.ideal_transport
    return FlowRates(placed * 8 / seconds, rate(view.ideal), rate(view.ideal_equal), None if tied is None else rate(tied))


def binned(view: View, edges_ns: Ints) -> tuple[Floats, Floats]:
    """(placed, ideal) bytes per [bin, flow]. A bin in which a flow's receiver was not recording throughout is NaN in both."""
    came, count = view.arrivals, len(view.flows)
    bins = len(edges_ns) - 1
    at = np.searchsorted(edges_ns, came.placed_ns, side="right") - 1
    kept = (at >= 0) & (at < bins)
    cell = at[kept] * count + came.flow[kept]
    placed = np.bincount(cell, weights=came.size[kept], minlength=bins * count).astype(np.float64).reshape(bins, count)
    ideal = np.zeros((bins, count))
    for flow in range(count):
        ideal[:, flow] = np.diff(view.ideal.bytes_by(flow, edges_ns))
        gap = ~view.coverage.bins(view.receiver(flow), edges_ns)
        placed[gap, flow] = ideal[gap, flow] = np.nan
    return placed, ideal


def measure(view: View) -> dict[str, float]:
    if "packets" in view.run.missing or not view.flows:
        return {}
    rates = flow_rates(view)
    if np.all(np.isnan(rates.placed)):
        return {}
    placed, ideal = float(np.nansum(rates.placed)), float(np.nansum(rates.ideal))
    found = {
        "goodput_mbps": placed / 1e6,
        "ideal_mbps": ideal / 1e6,
        "ideal_equal_planes_mbps": float(np.nansum(rates.ideal_equal)) / 1e6,
    }
    if rates.ideal_transport is not None:
        found["ideal_transport_mbps"] = float(np.nansum(rates.ideal_transport)) / 1e6
    if ideal > 0:
        found["goodput_ratio"] = placed / ideal
    worst = _worst_second(view)
    if worst is not None:
        found["goodput_ratio_min_1s"] = worst
    return found


def _worst_second(view: View) -> float | None:
    """Lowest total goodput over ideal of the window's whole seconds that were recorded throughout."""
    edges = np.arange(view.start_ns, view.end_ns + 1, SECOND_NS, dtype=np.int64)
    if len(edges) < 2:
        return None
    placed, ideal = (values.sum(axis=1) for values in binned(view, edges))
    usable = ideal > 0  # False for NaN
    return float(np.min(placed[usable] / ideal[usable])) if np.any(usable) else None
