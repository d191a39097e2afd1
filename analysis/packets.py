"""The packets table as flat arrays, one entry per transmission, and the paths that they took.

Every later question (per flow, plane, path, fault) is a mask or a `bincount` over these; no loop ever runs over packets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analysis.arrays import Bools, Ints, bools, index_in, ints
from analysis.confirmed import Fault, Way, ways_of
from analysis.results import Run
from testbed.model.flows import Flow
from testbed.model.paths import paths
from testbed.model.topology import Topology

FATES = ("unknown", "acknowledged", "marked", "trimmed", "lost", "refused")
UNKNOWN, ACKNOWLEDGED, MARKED, TRIMMED, LOST, REFUSED = range(len(FATES))


@dataclass(frozen=True, slots=True)
class UsedPath:
    """A path of one flow on which it sent at least one packet. `flow` is an index into the run's flows."""

    flow: int
    ev: int
    plane: int
    name: str
    ways: frozenset[Way]


@dataclass(frozen=True, slots=True)
class Packets:
    """Columns of equal length. `flow` indexes the run's flows, `path` `paths`; `placed_ns` is 0 for one that never arrived."""

    flow: Ints
    path: Ints
    plane: Ints
    qp: Ints
    psn: Ints
    size: Ints
    sent_ns: Ints
    placed_ns: Ints
    fate: Ints
    retransmission: Bools
    duplicate: Bools
    paths: tuple[UsedPath, ...]

    @property
    def first_arrival(self) -> Bools:
        """The transmission that placed its PSN: goodput counts these and nothing else."""
        return np.asarray((self.placed_ns > 0) & ~self.duplicate & (self.fate != TRIMMED), dtype=np.bool_)

    @property
    def never_arrived(self) -> Bools:
        """Vanished on the way: not placed, and neither acknowledged nor reported as trimmed."""
        return np.asarray((self.placed_ns == 0) & ((self.fate == LOST) | (self.fate == UNKNOWN)), dtype=np.bool_)

    def crossing(self, fault: Fault) -> Bools:
        """Packets whose path crosses a link of `fault` in a direction it affected."""
        hit = np.array([bool(path.ways & fault.ways) for path in self.paths] + [False], dtype=np.bool_)
        return hit[self.path]


def packets(run: Run, topology: Topology, flows: Sequence[Flow]) -> Packets:
    """Rows of flows that the scenario does not have are left out (there are none in a sound run)."""
    at_of = {flow.id: at for at, flow in enumerate(flows)}
    ids, ids_at = np.unique(ints(run.packets, "flow"), return_inverse=True)
    flow = np.array([at_of.get(int(one), -1) for one in ids] + [-1], dtype=np.int64)[ids_at]
    known = flow >= 0
    flow = flow[known]
    ev = ints(run.packets, "ev")[known]
    pairs, path = np.unique(
        flow << 32 | ev, return_inverse=True
    )  # an EV has 32 bits; sorting rows would take ten times as long
    used = tuple(used_path(topology, flows, int(pair) >> 32, int(pair) & 0xFFFFFFFF) for pair in pairs)
    return Packets(
        flow=flow,
        path=np.asarray(path, dtype=np.int64).reshape(-1),
        plane=ints(run.packets, "plane")[known],
        qp=ints(run.packets, "qp")[known],
        psn=ints(run.packets, "psn")[known],
        size=ints(run.packets, "bytes")[known],
        sent_ns=ints(run.packets, "sent_ns")[known],
        placed_ns=ints(run.packets, "placed_ns")[known],
        fate=np.maximum(index_in(run.packets, "fate", FATES), UNKNOWN)[known],
        retransmission=bools(run.packets, "retransmission")[known],
        duplicate=bools(run.packets, "duplicate")[known],
        paths=used,
    )


def used_path(topology: Topology, flows: Sequence[Flow], flow: int, ev: int) -> UsedPath:
    """A path of flow index `flow`, by its EV."""
    source, target = flows[flow].source, flows[flow].target
    for path in paths(topology, source, target):
        if path.ev == ev:
            return UsedPath(flow, ev, path.plane, path.name, frozenset(ways_of(path, source, target)))
    return UsedPath(flow, ev, ev >> 16, f"EV {ev}", frozenset())
