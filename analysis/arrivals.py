"""What was placed, when: from packets where the transport is ours, from samples where it is the kernel's.

A sample says what came in order in its interval, not when: it counts in the middle of it. Times of TCP and MPTCP flows are so
known to half an interval.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analysis.arrays import Ints, ints, is_text
from analysis.packets import Packets, UsedPath, used_path
from analysis.results import Run
from testbed.model.flows import Flow
from testbed.model.paths import paths
from testbed.model.topology import Topology


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Columns of equal length, in order of time within each flow. `flow` indexes the run's flows; `size` in bytes."""

    flow: Ints
    placed_ns: Ints
    size: Ints


def arrivals(run: Run, packets: Packets, flows: Sequence[Flow]) -> Arrivals:
    """Unique payload: each PSN's first arrival, or what a connection delivered in order."""
    if not run.scenario.transport.kind.is_kernels:
        first = packets.first_arrival
        return Arrivals(packets.flow[first], packets.placed_ns[first], packets.size[first])
    whole = run.samples[is_text(run.samples, "role", "stream")]
    ids, ends, sizes = (ints(whole, name) for name in ("flow", "t_ns", "bytes"))
    found = []
    for at, flow in enumerate(flows):
        mine = np.flatnonzero(ids == flow.id)
        mine = mine[np.argsort(ends[mine], kind="stable")]
        starts = np.concatenate([ends[mine][:1] - run.scenario.measure.interval_ns, ends[mine][:-1]])
        found.append((np.full(len(mine), at), (starts + ends[mine]) // 2, sizes[mine]))
    columns = [np.concatenate(column) if column else np.zeros(0) for column in zip(*found, strict=True)]
    return Arrivals(*(column.astype(np.int64) for column in columns))


def kernels_paths(run: Run, topology: Topology, flows: Sequence[Flow]) -> tuple[UsedPath, ...]:
    """Paths that TCP and MPTCP flows took: those that were traced or chosen before the start, or all where nobody can know."""
    known = {int(one["flow"]): one.get("evs") or () for one in run.manifest.get("kernel_flows", ())}
    return tuple(
        used_path(topology, flows, at, ev)
        for at, flow in enumerate(flows)
        for ev in known.get(flow.id) or [path.ev for path in paths(topology, flow.source, flow.target)]
    )
