"""Max-min fair rates of a faulty fabric by linear programs written down link by link: no lumping, no duals, no code of the
product beyond its specification types. What the fluid ideal and the metrics made of it are held against.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from scipy.optimize import linprog

from testbed.model import fluid
from testbed.model.scenario import LinkSpec, TopologySpec

HEADERS = 142  # bytes of a frame beside payload and `links.overhead`, docs/protocol.md

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
    payload: int = 4096


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
    spec = case.spec
    below = [(f"h{h}", f"p{p}t0-{h // spec.hosts_per_t0}") for p in range(spec.planes) for h in range(spec.hosts)]
    above = [
        (f"p{p}t0-{g}", f"p{p}t1-{j}")
        for p in range(spec.planes)
        for g in range(spec.t0_groups)
        for j in range(spec.t1_per_plane)
    ]
    for lower, upper in (*below, *above):
        charged = case.links.rate_bps if lower.startswith("h") else case.links.fabric_rate_bps
        for name in (f"{lower}>{upper}", f"{upper}>{lower}"):
            left[name] = charged * case.payload / (case.payload + HEADERS + case.links.overhead_bytes)
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
