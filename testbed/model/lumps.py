"""The fabric as the fluid ideal needs to see it: switches that faults do not tell apart are one, with their links added up.

T1s of a plane with the same faulty links are interchangeable, and so are planes with the same faulty links throughout: any
split of traffic among them can be averaged, so one column and one summed capacity stand for all. Without it the program of
64 hosts on 8 planes has 4,096 columns instead of 64; the optimum is the same.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection
from dataclasses import dataclass

from testbed.model.paths import paths
from testbed.model.topology import Tier, Topology, t0_name, t1_name
from testbed.model.usid import plane_of

Edge = tuple[str, bool]  # link name `lower:upper`, and whether it is crossed upwards
Shares = frozenset[tuple[Edge, float]]  # what is left of edges that do not carry their whole rate; 0: dead


@dataclass(frozen=True, slots=True)
class Way:
    """One or several interchangeable paths: the lump of planes it is in, and the edges crossed, in order."""

    plane: int
    edges: tuple[Edge, ...]


@dataclass(frozen=True, slots=True)
class Lumps:
    """`names`: node -> the node that stands for it. `capacity`: of all live edges that an edge stands for. `planes`: the
    number of planes that a plane stands for.
    """

    topology: Topology
    dead: frozenset[Edge]
    names: dict[str, str]
    capacity: dict[Edge, float]
    planes: Counter[int]

    def ways(self, source: int, target: int, evs: Collection[int] | None = None) -> tuple[Way, ...]:
        """Every live way of a host pair, in a fixed order; with `evs` only those paths."""
        found: dict[Way, None] = {}
        for path in paths(self.topology, source, target):
            if evs is not None and path.ev not in evs:
                continue
            links = path.links(source, target)
            edges = tuple((name, place < len(links) // 2) for place, name in enumerate(links))  # the first half goes up
            if self.dead.isdisjoint(edges):
                plane = plane_of(self.names[path.hops[0]])
                found[Way(plane, tuple((_renamed(name, self.names), up) for name, up in edges))] = None
        return tuple(found)


def lump(topology: Topology, rate: float, fabric_rate: float, shares: Shares, *, apart: bool = False) -> Lumps:
    """Find what faults do not tell apart; `rate` and `fabric_rate` are those of NIC-T0 and T0-T1 links, in any one unit.

    With `apart` every node stands for itself alone.
    """
    names = {node: node for node in (*topology.hosts, *topology.switches)} if apart else _names(topology, shares)
    left = dict(shares)
    dead = frozenset(edge for edge, share in shares if not share)
    capacity: dict[Edge, float] = defaultdict(float)
    for link in topology.links:
        for up in (True, False):
            edge = (link.name, up)
            if edge not in dead:
                whole = rate if link.tier is Tier.NIC_T0 else fabric_rate
                capacity[_renamed(link.name, names), up] += whole * left.get(edge, 1.0)
    planes = Counter(plane_of(names[t0_name(plane, 0)]) for plane in range(topology.spec.planes))
    return Lumps(topology, dead, names, dict(capacity), planes)


def _renamed(link: str, names: dict[str, str]) -> str:
    lower, upper = link.split(":")
    return f"{names[lower]}:{names[upper]}"


def _names(topology: Topology, shares: Shares) -> dict[str, str]:
    """Each node's stand-in: the first with the same marks, where a mark is a faulty edge seen without its plane and T1."""
    spec = topology.spec
    t1_marks: dict[str, set[tuple[str, bool, float]]] = defaultdict(set)
    nic_marks: dict[int, set[tuple[str, bool, float]]] = defaultdict(set)
    for (name, up), share in shares:
        lower, upper = name.split(":")
        if lower.startswith("h"):
            nic_marks[plane_of(upper)].add((lower, up, share))
        else:
            t1_marks[upper].add((lower.split("t0-")[1], up, share))
    names = {host: host for host in topology.hosts}
    first_plane: dict[object, int] = {}
    for plane in range(spec.planes):
        marks = [frozenset(t1_marks[t1_name(plane, index)]) for index in range(spec.t1_per_plane)]
        stand_in = first_plane.setdefault((frozenset(Counter(marks).items()), frozenset(nic_marks[plane])), plane)
        names |= {t0_name(plane, group): t0_name(stand_in, group) for group in range(spec.t0_groups)}
        theirs = [frozenset(t1_marks[t1_name(stand_in, index)]) for index in range(spec.t1_per_plane)]
        names |= {t1_name(plane, index): t1_name(stand_in, theirs.index(mark)) for index, mark in enumerate(marks)}
    return names
