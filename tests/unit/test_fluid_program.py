"""The fluid ideal against linear programs written down link by link: no lumping, no duals, no code of the ideal.

500 random small fabrics with random patterns, dead and slow links, one direction or both; a third of them with flows tied to
some of their paths, down to one path each.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from testbed.model import fluid
from testbed.model.scenario import LinkSpec, TopologySpec
from testbed.model.topology import Topology, build
from tests.support.fluid_program import HEADERS, Case, max_min, routes

FABRICS = 500
BATCHES = 10
WITHIN = 1e-3


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
            header_bytes=HEADERS,
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
