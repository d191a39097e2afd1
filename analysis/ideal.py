"""The fluid ideal over time: each flow's max-min rate at each moment, with the faults that held then (DESIGN 4.4 `ideal_mbps`).

Between two changes (a fault, a flow's start or stop) the rates are constant, so bytes over time are piecewise linear and an
integral over any span is two interpolations.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from analysis.arrays import NS, Floats, Ints
from analysis.confirmed import Fault
from testbed.model.faults import composed
from testbed.model.flows import Flow
from testbed.model.fluid import Mode
from testbed.model.jobs import ideal_rates
from testbed.model.paths import paths
from testbed.model.scenario import Scenario, TransportKind
from testbed.model.topology import Topology


@dataclass(frozen=True, slots=True)
class Ideal:
    """`rates[k, f]`: payload bit/s of flow f between `edges_ns[k]` and `edges_ns[k + 1]`; zero outside."""

    edges_ns: Ints
    rates: Floats
    cumulative: Floats  # [k, f]: bytes that flow f could have placed by edges_ns[k]

    def bytes_by(self, flow: int, times_ns: Ints) -> Floats:
        """Bytes that flow index `flow` could have placed by each of `times_ns`."""
        origin = self.edges_ns[0]  # floats hold ns since the origin exactly, not since boot
        at, knots = ((values - origin).astype(np.float64) for values in (times_ns, self.edges_ns))
        return np.asarray(np.interp(at, knots, self.cumulative[:, flow]), dtype=np.float64)

    def bytes_in(self, flow: int, spans_ns: Ints) -> float:
        """Bytes over an (n, 2) array of spans."""
        return float(np.sum(self.bytes_by(flow, spans_ns[:, 1]) - self.bytes_by(flow, spans_ns[:, 0])))

    def steps(self) -> tuple[Ints, Floats]:
        """(edges, total bit/s in each step), for drawing."""
        return self.edges_ns, self.rates.sum(axis=1)


def ideal(
    scenario: Scenario,
    topology: Topology,
    flows: Sequence[Flow],
    faults: Sequence[Fault],
    t0_ns: int,
    end_ns: int,
    mode: Mode,
    over_ns: Mapping[int, int],
    allowed: Sequence[Collection[int] | None] | None = None,
    done_ns: Sequence[int] | None = None,
) -> Ideal:
    """Rates from `t0_ns` to `end_ns`. `allowed`: the EVs of each flow where not all are open to it.

    A flow's `stop` ends its posting, not its traffic: it has bytes to send until the last message that it had posted is
    complete, at `done_ns` (per flow; None: at its stop).
    `over_ns`: when a job of so many steps had done them all, by its place in the scenario.
    """
    spans = []
    for index, flow in enumerate(flows):
        stop = end_ns if flow.stop_ns is None else t0_ns + flow.stop_ns
        stop = max(stop, done_ns[index]) if done_ns else stop
        spans.append((t0_ns + flow.start_ns, min(end_ns, stop, over_ns.get(flow.workload, end_ns))))
    moments = {t0_ns, end_ns}
    moments.update(moment for span in spans for moment in span)
    for fault in faults:
        moments.add(fault.start_ns)
        moments.add(fault.end_ns if fault.end_ns is not None else end_ns)
    edges = sorted(moment for moment in moments if t0_ns <= moment <= end_ns)
    rates = np.zeros((len(edges) - 1, len(flows)))
    known: dict[tuple[tuple[int, ...], frozenset[str], frozenset[tuple[str, float]]], tuple[float, ...]] = {}
    for step, (start, stop) in enumerate(pairwise(edges)):
        active = tuple(index for index, span in enumerate(spans) if span[0] <= start and stop <= span[1])
        held = [fault for fault in faults if fault.start_ns <= start and (fault.end_ns is None or stop <= fault.end_ns)]
        dead = frozenset(name for fault in held for name in fault.dead)
        shares = composed((fault.action, name, share) for fault in held for name, share in fault.shares)
        state = (active, dead, frozenset(shares.items()))
        if state not in known:
            known[state] = ideal_rates(
                scenario,
                topology,
                [flows[index] for index in active],
                dead,
                mode=mode,
                shares=shares,
                allowed=None if allowed is None else [allowed[index] for index in active],
            )
        rates[step, list(active)] = known[state]
    widths = np.diff(np.array(edges, dtype=np.int64)) / NS
    cumulative = np.vstack([np.zeros((1, len(flows))), np.cumsum(rates * widths[:, None] / 8, axis=0)])
    return Ideal(np.array(edges, dtype=np.int64), rates, cumulative)


def tied_to(
    scenario: Scenario, topology: Topology, flows: Sequence[Flow], used: Sequence[Collection[int]]
) -> tuple[Collection[int] | None, ...] | None:
    """The EVs that the transport allows each flow, where its path rule leaves some out; None where every flow has all.

    Which ones they are is a draw of the sender; `used` holds those it sent on. A flow that sent nothing may have any.
    """
    spec = scenario.transport
    hashed = spec.kind is not TransportKind.MRC
    chosen = hashed or spec.policy == "single_path" or spec.ev_list or spec.ev_fields or spec.denylist
    if not chosen and all(spec.evs >= len(paths(topology, flow.source, flow.target)) for flow in flows):
        return None
    return tuple(evs or None for evs in used)
