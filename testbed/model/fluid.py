"""The ideal: max-min fair fluid rates over every usable path, computed as a sequence of linear programs (HiGHS).

What no transport can beat on average, given who sends to whom and which links are dead. Payload bits only: a link's rate
times payload / charged bytes. Control packets are not charged, so a measured ratio of 1 is just out of reach.

Max-min fair: no flow can get more without taking from one that has no more than it has. Each round raises the rate of all
open flows together as far as it goes; a flow whose constraint has a positive dual value is tight in every optimum, so its
rate is final; the rest go on (progressive filling, Bertsekas and Gallager, Data Networks, 6.5.2, with free routing).
The graph is made small first: `lumps.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from testbed.model.lumps import Edge, Lumps, Shares, Way, lump
from testbed.model.scenario import LinkSpec, TopologySpec
from testbed.model.topology import Topology, build

Mode = Literal["free", "equal_planes"]

TOLERANCE = 1e-7  # HiGHS' own feasibility tolerance; rates are scaled so that the fastest link is 1


def ideal_rates(
    topology: Topology,
    links: LinkSpec,
    demands: Sequence[tuple[int, int]],
    dead_links: Collection[str],
    *,
    payload: int,
    header_bytes: int,
    mode: Mode = "free",
    shares: Mapping[str, float] | None = None,
    allowed: Sequence[Collection[int] | None] | None = None,
    offers: Sequence[float | None] | None = None,
) -> tuple[float, ...]:
    """Payload bit/s of each (source, target) demand, in order; 0.0 for one that no path is left for.

    `dead_links` holds `lower:upper` for a link dead both ways and `from>to` for one dead in that direction only, as
    `faults.dead_links` gives them, `shares` what is left of a link that carries less than its rate, as `faults.shares` does;
    ValueError for a name that is no link. `header_bytes` is what a frame on the link has
    beside payload and `links.overhead_bytes`. In mode `free` a flow splits over its paths as it likes; in `equal_planes` it
    puts the same on every plane it can still use. `allowed` holds the EVs that each demand may use, None for all: one EV each
    is a fabric that hashes every flow onto one path. `offers`: payload bit/s that a demand does not exceed, None where it takes
    what it gets. Cached.
    """
    if allowed is not None and len(allowed) != len(demands):
        raise ValueError(f"{len(allowed)} sets of EVs for {len(demands)} demands")
    choice = None if allowed is None else tuple(None if evs is None else frozenset(evs) for evs in allowed)
    share = payload / (payload + header_bytes + links.overhead_bytes)
    left: dict[Edge, float] = {}
    for name, value in (*(shares or {}).items(), *((dead, 0.0) for dead in dead_links)):  # a dead link stays dead
        left |= dict.fromkeys(_edges(topology.spec, name), value)
    most = tuple(None if offer is None else offer / share for offer in offers or (None,) * len(demands))
    rates = _rates(
        topology.spec, links.rate_bps, links.fabric_rate_bps, tuple(demands), frozenset(left.items()), mode, choice, most
    )
    return tuple(rate * share for rate in rates)


@lru_cache(maxsize=8)
def _topology(spec: TopologySpec) -> tuple[Topology, frozenset[str]]:
    topology = build(spec)
    return topology, frozenset(link.name for link in topology.links)


def _edges(spec: TopologySpec, name: str) -> set[Edge]:
    names = _topology(spec)[1]
    source, arrow, target = name.partition(">")
    named = {(name, True), (name, False)} if not arrow else {(f"{source}:{target}", True), (f"{target}:{source}", False)}
    found = {edge for edge in named if edge[0] in names}
    if not found:
        raise ValueError(f"{name} is no link of this topology")
    return found


@lru_cache(maxsize=4096)
def _rates(
    spec: TopologySpec,
    rate: int,
    fabric_rate: int,
    demands: tuple[tuple[int, int], ...],
    shares: Shares,
    mode: Mode,
    allowed: tuple[frozenset[int] | None, ...] | None,
    offers: tuple[float | None, ...],
) -> tuple[float, ...]:
    """Charged bit/s of each demand, none more than it `offers`."""
    scale = max(rate, fabric_rate)
    # flows that are tied to paths tell equal switches apart: nothing can be averaged then
    lumps = lump(_topology(spec)[0], rate / scale, fabric_rate / scale, shares, apart=allowed is not None)
    choice = allowed or (None,) * len(demands)
    usable = [lumps.ways(source, target, evs) for (source, target), evs in zip(demands, choice, strict=True)]
    program = _Program.of(usable, lumps, mode)
    final: dict[int, float] = {flow: 0.0 for flow, ways in enumerate(usable) if not ways}
    alone = [_alone(ways, lumps, mode) for ways in usable]
    while len(final) < len(demands):
        rate_of_open, tight = program.raise_open(final)
        # What a demand leaves over the others can take, so no other is final in the round in which one has its fill.
        full = {
            flow: offer / scale
            for flow, offer in enumerate(offers)
            if offer is not None and flow not in final and offer / scale <= rate_of_open
        }
        if full:
            final |= full
            continue
        for flow in range(len(demands)):
            if flow not in final and (flow in tight or rate_of_open >= alone[flow] - TOLERANCE):
                final[flow] = rate_of_open
    return tuple(final[flow] * scale for flow in range(len(demands)))


def _alone(ways: tuple[Way, ...], lumps: Lumps, mode: Mode) -> float:
    """What a flow gets with the fabric to itself: per plane the least of its two NIC links and all its T1s together.

    Nothing can give it more, so a flow that has reached it is final; without faults that settles every flow in one round.
    """
    by_plane: dict[int, float] = {}
    for plane in {way.plane for way in ways}:
        inside = [[lumps.capacity[edge] for edge in way.edges] for way in ways if way.plane == plane]
        ends = min(inside[0][0], inside[0][-1])
        by_plane[plane] = min(ends, sum(min(edges[1:-1], default=ends) for edges in inside))
    if mode == "equal_planes" and by_plane:
        usable = sum(lumps.planes[plane] for plane in by_plane)
        return usable * min(rate / lumps.planes[plane] for plane, rate in by_plane.items())
    return sum(by_plane.values())


@dataclass(frozen=True, slots=True)
class _Program:
    """The linear program of one fault state. Columns: one per usable way of each flow, then the rate of open flows.

    A share row says: this part of the flow's rate must be carried by these ways. In `free` a flow has one, of the whole
    rate; in `equal_planes` one per lump of planes, of as much as that lump holds of its usable planes.
    """

    links: Any  # sparse, one row per edge: ways crossing it
    limits: Any
    shares: Any  # sparse, one row per share: minus the ways that carry it
    owner: tuple[int, ...]  # the flow of each share
    part: Any  # what part of the flow's rate each share is

    @staticmethod
    def of(usable: list[tuple[Way, ...]], lumps: Lumps, mode: Mode) -> _Program:
        import numpy as np
        from scipy import sparse

        edge_rows: dict[Edge, int] = {}
        share_rows: dict[tuple[int, int], int] = {}
        on_links: list[tuple[int, int]] = []
        on_shares: list[tuple[int, int]] = []
        column = 0
        for flow, ways in enumerate(usable):
            for way in ways:
                share = (flow, way.plane if mode == "equal_planes" else 0)
                on_shares.append((share_rows.setdefault(share, len(share_rows)), column))
                on_links.extend((edge_rows.setdefault(edge, len(edge_rows)), column) for edge in way.edges)
                column += 1

        def matrix(entries: list[tuple[int, int]], value: float, rows: int) -> Any:
            row, col = zip(*entries, strict=True) if entries else ((), ())
            return sparse.csr_array((np.full(len(entries), value), (row, col)), shape=(rows, column))

        weight = {share: lumps.planes[share[1]] if mode == "equal_planes" else 1 for share in share_rows}
        total: Counter[int] = Counter()
        for (flow, _), planes in weight.items():
            total[flow] += planes
        return _Program(
            links=matrix(on_links, 1.0, len(edge_rows)),
            limits=np.array([lumps.capacity[edge] for edge in edge_rows]),
            shares=matrix(on_shares, -1.0, len(share_rows)),
            owner=tuple(flow for flow, _ in share_rows),
            part=np.array([weight[share] / total[share[0]] for share in share_rows]),
        )

    def raise_open(self, final: dict[int, float]) -> tuple[float, set[int]]:
        """The highest rate that every flow not in `final` can have at once, and the flows that can have no more."""
        import numpy as np
        from scipy import sparse
        from scipy.optimize import linprog

        is_open = np.array([flow not in final for flow in self.owner])
        settled = np.array([final.get(flow, 0.0) for flow in self.owner]) * self.part
        rising = np.where(is_open, self.part, 0.0)[:, None]
        rows = sparse.vstack(
            [
                sparse.hstack([self.links, sparse.csr_array((self.links.shape[0], 1))]),
                sparse.hstack([self.shares, sparse.csr_array(rising)]),
            ]
        )
        cost = np.zeros(rows.shape[1])
        cost[-1] = -1.0
        solved = linprog(cost, A_ub=rows, b_ub=np.concatenate([self.limits, -settled]), method="highs")
        if solved.status != 0:
            raise ArithmeticError(f"the fluid ideal has no solution: {solved.message}")
        # The duals of the open shares, each times its part, add up to 1: the largest cannot be zero.
        duals = np.where(is_open, -solved.ineqlin.marginals[self.links.shape[0] :], 0.0)
        floor = min(TOLERANCE, float(duals.max()) / 2)
        return float(solved.x[-1]), {self.owner[row] for row in np.flatnonzero(duals > floor)}
