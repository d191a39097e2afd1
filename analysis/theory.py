"""Measured goodput beside what theory allows, state by state: the window cut wherever a fault or a flow began or ended.

Within a state the fluid rates are constant, so each row is an experiment of its own: so many uplinks dead, so much goodput.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from analysis.arrays import NS
from analysis.view import View


@dataclass(frozen=True, slots=True)
class State:
    """Mean rates in bit/s of a span of the window, all flows together. `flows`: those with a path; `faults`: what held."""

    start_s: float
    end_s: float
    faults: tuple[str, ...]
    flows: int
    placed_bps: float
    ideal_bps: float
    equal_bps: float
    transport_bps: float | None  # None: the transport leaves no path out

    @property
    def ratio(self) -> float | None:
        return self.placed_bps / self.ideal_bps if self.ideal_bps > 0 else None


def states(view: View) -> tuple[State, ...]:
    """One per span, in order. None at all when packets were not recorded, or some receiver did not record throughout."""
    if "packets" in view.run.missing or view.end_ns <= view.start_ns:
        return ()
    spans = (view.spans(at, view.start_ns, view.end_ns) for at in range(len(view.flows)))
    if any(int(np.sum(np.diff(span))) < view.end_ns - view.start_ns for span in spans):
        return ()
    edges = np.unique(np.clip(view.ideal.edges_ns, view.start_ns, view.end_ns))
    return tuple(_state(view, int(start), int(end)) for start, end in pairwise(edges))


def _state(view: View, start: int, end: int) -> State:
    packets, seconds = view.packets, (end - start) / NS
    placed = packets.first_arrival & (packets.placed_ns >= start) & (packets.placed_ns < end)
    step = int(np.searchsorted(view.ideal.edges_ns, start, side="right")) - 1
    held = (fault for fault in view.faults if fault.start_ns <= start and (fault.end_ns is None or fault.end_ns >= end))
    return State(
        start_s=(start - view.t0_ns) / NS,
        end_s=(end - view.t0_ns) / NS,
        faults=tuple(fault.what for fault in held),
        flows=int(np.count_nonzero(view.ideal.rates[step])),
        placed_bps=float(np.sum(packets.size[placed])) * 8 / seconds,
        ideal_bps=float(np.sum(view.ideal.rates[step])),
        equal_bps=float(np.sum(view.ideal_equal.rates[step])),
        transport_bps=None if view.ideal_transport is None else float(np.sum(view.ideal_transport.rates[step])),
    )
