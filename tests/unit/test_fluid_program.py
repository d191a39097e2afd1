"""The fluid ideal against linear programs written down link by link: no lumping, no duals, no code of the ideal.

500 random small fabrics with random patterns, dead and slow links, one direction or both; a third of them with flows tied to
some of their paths, down to one path each.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest
from scipy.optimize import linprog

from testbed.model import fluid
from testbed.model.scenario import LinkSpec, TopologySpec
from testbed.model.topology import Topology, build

FABRICS = 500
BATCHES = 10
WITHIN = 1e-3
Array = npt.NDArray[np.float64]
Route = tuple[int, int, tuple[str, ...]]  # EV, plane, directed links `from>to`


@dataclass(frozen=True)
class Case:
    spec: TopologySpec
    links: LinkSpec
    demands: tuple[tuple[int, int], ...]
    dead: tuple[str, ...]
    slow: dict[str, float]
    allowed: tuple[frozenset[int], ...] | None
    mode: fluid.Mode


def some_case(seed: int) -> Case:
    rng = random.Random(f"program/{seed}")
    planes, groups, t1s, below = rng.randint(1, 3), rng.randint(1, 3), rng.randint(1, 4), rng.randint(1, 3)
    spec = TopologySpec(planes, groups, t1s, below if groups > 1 else below + 1)
    topology = build(spec)
    rate = rng.choice([1_000_000, 5_000_000])
    links = LinkSpec(rate, int(rate * rng.choice([0.4, 1, 1, 2])), (1_000_000,) * planes, 4500, rng.choice([0, 24]))
    every = [(a, b) for a in range(spec.hosts) for b in range(spec.hosts) if a != b]
    demands = tuple(rng.choice(every) for _ in range(rng.randint(2, 7)))
    names = [link.name for link in topology.links]
    faulty = rng.sample(names, rng.randint(0, max(1, len(names) // 3)))
    half = len(faulty) // 2
    slow = {one_way(name, rng): rng.choice([0.1, 0.25, 0.5, 0.9]) for name in faulty[half:]}
    allowed = None
    if seed % 3 == 0:
        allowed = tuple(
            frozenset(rng.sample(evs, rng.randint(1, 1 + seed % 2 * (len(evs) - 1)))) for evs in all_evs(topology, demands)
        )
    dead = tuple(one_way(name, rng) for name in faulty[:half])
    return Case(spec, links, demands, dead, slow, allowed, "equal_planes" if seed % 2 else "free")


def one_way(name: str, rng: random.Random) -> str:
    return name if rng.random() < 0.5 else ">".join(rng.sample(name.split(":"), 2))


def all_evs(topology: Topology, demands: Sequence[tuple[int, int]]) -> list[list[int]]:
    return [[ev for ev, _, _ in routes(topology.spec, *demand)] for demand in demands]


def routes(spec: TopologySpec, source: int, target: int) -> list[Route]:
    """Every path by the naming rules of the fabric."""
    here, there = source // spec.hosts_per_t0, target // spec.hosts_per_t0
    found: list[Route] = []
    for plane in range(spec.planes):
        first, last = f"p{plane}t0-{here}", f"p{plane}t0-{there}"
        if here == there:
            found.append((plane << 16, plane, (f"h{source}>{first}", f"{first}>h{target}")))
            continue
        for t1 in range(spec.t1_per_plane):
            top = f"p{plane}t1-{t1}"
            crossed = (f"h{source}>{first}", f"{first}>{top}", f"{top}>{last}", f"{last}>h{target}")
            found.append((plane << 16 | t1, plane, crossed))
    return found


def capacities(case: Case) -> dict[str, float]:
    """Payload bit/s of each direction of each link; dead ones 0."""
    left: dict[str, float] = {}
    for link in build(case.spec).links:
        charged = case.links.rate_bps if link.lower.node.startswith("h") else case.links.fabric_rate_bps
        for name in (f"{link.lower.node}>{link.upper.node}", f"{link.upper.node}>{link.lower.node}"):
            left[name] = charged * 4096 / (4096 + 142 + case.links.overhead_bytes)
    for name, share in (*case.slow.items(), *((name, 0.0) for name in case.dead)):
        for way in (name,) if ">" in name else (name.replace(":", ">"), ">".join(reversed(name.split(":")))):
            left[way] *= share
    return left


@dataclass
class Program:
    """Rates of flows are the sum of their routes' columns. `below @ x <= room`, `same @ x == 0` (equal planes)."""

    below: Array
    room: Array
    same: Array
    of_flow: Array  # [flow, column]

    def best(self, goal: Array, floor: Array) -> Array:
        """The flows' rates that maximise `goal @ rates` with every flow at its `floor` at least."""
        done = linprog(
            -(goal @ self.of_flow),
            A_ub=np.vstack([self.below, -self.of_flow]),
            b_ub=np.concatenate([self.room, -floor * (1 - 1e-9)]),
            A_eq=self.same if len(self.same) else None,
            b_eq=np.zeros(len(self.same)) if len(self.same) else None,
            method="highs",
        )
        assert done.status == 0, done.message
        return np.asarray(self.of_flow @ done.x)

    def together(self, open_flows: Array, floor: Array) -> float:
        """The largest t that all open flows can have at once, the others at their `floor`."""
        columns = self.of_flow.shape[1]
        cost = np.zeros(columns + 1)
        cost[-1] = -1
        wanted = np.hstack([-self.of_flow, open_flows[:, None]])
        rows = np.vstack([np.hstack([self.below, np.zeros((len(self.below), 1))]), wanted])
        same = np.hstack([self.same, np.zeros((len(self.same), 1))]) if len(self.same) else None
        done = linprog(
            cost,
            A_ub=rows,
            b_ub=np.concatenate([self.room, np.where(open_flows > 0, 0, -floor * (1 - 1e-9))]),
            A_eq=same,
            b_eq=None if same is None else np.zeros(len(same)),
            method="highs",
        )
        assert done.status == 0, done.message
        return float(done.x[-1])


def program(case: Case) -> tuple[Program, list[int]]:
    """The program of the flows that have a live path, and their numbers."""
    room = capacities(case)
    scale = max(room.values())
    usable = []
    for flow, demand in enumerate(case.demands):
        mine = [r for r in routes(case.spec, *demand) if all(room[link] > 0 for link in r[2])]
        if case.allowed is not None:
            mine = [route for route in mine if route[0] in case.allowed[flow]]
        usable.append(mine)
    flows = [flow for flow, mine in enumerate(usable) if mine]
    columns = [(at, route) for at, flow in enumerate(flows) for route in usable[flow]]
    names = list(room)
    below = np.array([[float(name in route[2]) for _, route in columns] for name in names])
    of_flow = np.array([[float(at == mine) for mine, _ in columns] for at in range(len(flows))])
    same = []
    for at, flow in enumerate(flows if case.mode == "equal_planes" else []):
        planes = sorted({route[1] for route in usable[flow]})
        for one, other in pairwise(planes):
            same.append([(route[1] == one) - float(route[1] == other) if mine == at else 0.0 for mine, route in columns])
    return Program(below, np.array([room[name] for name in names]) / scale, np.array(same), of_flow), flows


def max_min(case: Case) -> Array:
    """Water filling: raise all open flows together; who alone cannot rise above the level is settled there."""
    solved, flows = program(case)
    rates = np.zeros(len(case.demands))
    if not flows:
        return rates
    is_open, level = np.ones(len(flows)), np.zeros(len(flows))
    while is_open.any():
        t = solved.together(is_open, level)
        level = np.where(is_open > 0, t, level)
        for at in np.flatnonzero(is_open):
            if solved.best(np.eye(len(flows))[at], level)[at] <= t * (1 + 1e-6):
                is_open[at] = 0
    rates[flows] = level * max(capacities(case).values())
    return rates


@pytest.mark.parametrize("batch", range(BATCHES))
def test_the_ideal_is_the_linear_programs(batch: int) -> None:
    for seed in range(batch, FABRICS, BATCHES):
        case = some_case(seed)
        found = fluid.ideal_rates(
            build(case.spec),
            case.links,
            case.demands,
            case.dead,
            payload=4096,
            header_bytes=142,
            mode=case.mode,
            shares=case.slow,
            allowed=case.allowed,
        )
        assert list(found) == pytest.approx(list(max_min(case)), rel=WITHIN, abs=1), (seed, case)


def test_the_cases_are_worth_solving() -> None:
    """Not all flows alike, not all alive: most cases must have several levels, faults that bite and flows with a choice."""
    cases = [some_case(seed) for seed in range(FABRICS)]
    assert sum(bool(case.dead) for case in cases) > FABRICS / 3
    assert sum(bool(case.slow) for case in cases) > FABRICS / 2
    assert sum(case.allowed is not None and all(len(evs) == 1 for evs in case.allowed) for case in cases) > FABRICS / 8
    levels = [len({round(rate) for rate in max_min(case)}) for case in cases[::10]]
    assert sum(count > 1 for count in levels) > len(levels) / 2
