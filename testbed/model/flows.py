"""Which host sends to which: a scenario's workloads as flows. Seeded, so the same scenario always gives the same flows."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import assert_never

from testbed.model.scenario import Scenario, WorkloadKind, WorkloadSpec
from testbed.model.sizes import equally_likely
from testbed.model.topology import Topology

LANE_BYTES = 4  # of the numbers that a reduction adds; a test compares it with the host's
FLOWS_MAX = 2**16  # QP pairs of one run: far more than one machine has processor time for
SWAPS_PER_HOST = 20  # random transpositions that mix a permutation well past its start


@dataclass(frozen=True, slots=True)
class Flow:
    """Messages from one host to another, `depth` outstanding at a time on each QP. `id` is global; hosts are indices.

    `message` is what one WRITE carries, at most; `workload` the place of its job in the scenario.
    """

    id: int
    source: int
    target: int
    message: int
    depth: int
    start_ns: int
    stop_ns: int | None
    job: str
    workload: int = 0


def flows(scenario: Scenario, topology: Topology) -> tuple[Flow, ...]:
    """Every flow of every workload, numbered in order."""
    found: list[Flow] = []
    for index, spec in enumerate(scenario.workload):
        for source, target in pairs(spec, topology, rng_of(scenario.seed, index)):
            job = f"{spec.job}-bystander" if (source, target) == spec.bystander else spec.job
            size = message_bytes(spec, scenario.transport.qps)
            found.append(Flow(len(found), source, target, size, spec.depth, spec.start_ns, spec.stop_ns, job, index))
    return tuple(found)


def taking_part(workload: Iterable[WorkloadSpec]) -> frozenset[int]:
    """Every host at which a flow begins or ends."""
    found: set[int] = set()
    for spec in workload:
        found.update(spec.hosts, (end for end in (spec.source, spec.target, *(spec.bystander or ())) if end is not None))
    return frozenset(found)


def count(spec: WorkloadSpec) -> int:
    """How many flows one workload makes."""
    everyone = spec.kind in (WorkloadKind.ALL_TO_ALL, WorkloadKind.POISSON) or spec.collective is WorkloadKind.ALL_TO_ALL
    ranks = len(spec.hosts)
    return ranks * (ranks - 1) if everyone else max(1, ranks + (spec.bystander is not None))


def message_bytes(spec: WorkloadSpec, qps: int) -> int:
    """The largest WRITE of a job whose flows have `qps` QPs each.

    What a collective sends at once is cut into one message per QP: a ring's chunk (its buffer has one per rank) into whole
    lanes, an all-to-all's part into bytes, each rounded up.
    """
    ring, all_to_all = WorkloadKind.RING_ALLREDUCE, WorkloadKind.ALL_TO_ALL
    if ring in (spec.kind, spec.collective):
        return -(-spec.message // (len(spec.hosts) * qps * LANE_BYTES)) * LANE_BYTES
    if all_to_all in (spec.kind, spec.collective):
        return -(-spec.message // qps)
    return max(equally_likely(spec.sizes, spec.message)) if spec.kind is WorkloadKind.POISSON else spec.message


def rng_of(seed: int, index: int) -> random.Random:
    """What the choices of workload `index` are drawn from."""
    return random.Random(f"{seed}/workload/{index}")


def pairs(spec: WorkloadSpec, topology: Topology, rng: random.Random) -> tuple[tuple[int, int], ...]:
    """The (source, target) pairs of one workload. An incast's bystander comes last; it is a job of its own in tables."""
    match spec.kind:
        case WorkloadKind.STREAM:
            assert spec.source is not None
            assert spec.target is not None
            return ((spec.source, spec.target),)
        case WorkloadKind.PERMUTATION:
            apart = topology.group_of if spec.cross_group else lambda host: host
            return tuple(zip(sorted(spec.hosts), permutation(spec.hosts, apart, rng), strict=True))
        case WorkloadKind.INCAST:
            assert spec.target is not None
            toward = tuple((sender, spec.target) for sender in spec.hosts)
            return toward if spec.bystander is None else (*toward, spec.bystander)
        case WorkloadKind.RING_ALLREDUCE:
            return _ring(spec.hosts)
        case WorkloadKind.ALL_TO_ALL | WorkloadKind.POISSON:
            return _everyone(spec.hosts)
        case WorkloadKind.TRAINING:
            return _ring(spec.hosts) if spec.collective is WorkloadKind.RING_ALLREDUCE else _everyone(spec.hosts)
        case _:
            assert_never(spec.kind)


def _ring(hosts: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    return tuple(zip(hosts, (*hosts[1:], hosts[0]), strict=True))


def _everyone(hosts: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    return tuple((source, target) for source in hosts for target in hosts if source != target)


def can_permute(hosts: Sequence[int], apart: Callable[[int], int]) -> bool:
    """Whether every host can send to one host of another class: no class may hold more than half of them."""
    return len(hosts) >= 2 and 2 * max(Counter(map(apart, hosts)).values()) <= len(hosts)


def permutation(hosts: Sequence[int], apart: Callable[[int], int], rng: random.Random) -> list[int]:
    """One target per host (in index order), each host a target once, no host sending inside its own class `apart(host)`.

    Classes are T0 groups for a cross-group permutation and single hosts for a plain derangement. Starts from a rotation by
    the largest class, which is valid whenever any permutation is, and mixes it with random transpositions that keep it
    valid. ValueError when none is possible (`can_permute`).
    """
    if not can_permute(hosts, apart):
        raise ValueError("no such permutation: one class holds more than half of the hosts")
    order = sorted(hosts, key=lambda host: (apart(host), host))
    largest = max(Counter(map(apart, hosts)).values())
    targets = [order[(place + largest) % len(order)] for place in range(len(order))]
    for _ in range(SWAPS_PER_HOST * len(order)):
        one, other = rng.sample(range(len(order)), 2)
        if apart(order[one]) != apart(targets[other]) and apart(order[other]) != apart(targets[one]):
            targets[one], targets[other] = targets[other], targets[one]
    by_host = dict(zip(order, targets, strict=True))
    return [by_host[host] for host in sorted(hosts)]
