"""Which EVs a host is given towards another, and which of them the denylist takes away (DESIGN 4.2; mrc-facts 2, 3.5).

The published provisioning modes: AUTO draws a random subset, equal per plane; EXPLICIT (`ev_list`) names the paths; GENERATED
(`ev_fields`) describes an EV's fields.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from testbed.model import flows
from testbed.model.ev_fields import generate
from testbed.model.paths import Path, choose, paths
from testbed.model.scenario import DenySpec, TransportKind, TransportSpec, WorkloadSpec
from testbed.model.topology import Topology

Span = tuple[int, int | None]  # ns after t = 0; None: to the end of the run


def given(transport: TransportSpec, seed: int, topology: Topology, source: int, target: int) -> tuple[Path, ...]:
    """The paths `source` has towards `target`; empty where `ev_list` or `ev_fields` give none of this pair.

    In order of preference: the first of each plane are active, the others its backup. Seeded per ordered pair, so that
    adding a flow changes no other.
    """
    known = paths(topology, source, target)
    if transport.kind is not TransportKind.MRC:  # equal-cost paths, of which a hash or a draw takes one
        return known
    if transport.ev_list:
        by_name = {path.name: path for path in known}
        return tuple(by_name[name] for name in transport.ev_list if name in by_name)
    if transport.ev_fields:
        by_ev = {path.ev: path for path in known}
        return tuple(by_ev[ev] for ev in generate(transport.ev_fields) if ev in by_ev)
    return choose(known, transport.evs, random.Random(f"{seed}:{source}:{target}"))


def active(transport: TransportSpec, found: tuple[Path, ...]) -> frozenset[Path]:
    """Those that are in use at first: `active_evs` of them, equal per plane."""
    planes = {path.plane for path in found}
    share = max(1, transport.active_evs // len(planes)) if transport.active_evs else len(found)
    return frozenset(path for plane in planes for path in [mate for mate in found if mate.plane == plane][:share])


def crossing(spec: DenySpec, found: tuple[Path, ...], source: int, target: int) -> tuple[Path, ...]:
    """Those of a pair's paths that cross the link of a denylist entry."""
    first, second = spec.ends
    names = {f"{first}:{second}", f"{second}:{first}"}
    return tuple(path for path in found if names.intersection(path.links(source, target)))


def denials(transport: TransportSpec, found: tuple[Path, ...], source: int, target: int) -> dict[Path, tuple[Span, ...]]:
    """When each of a pair's paths is denied: spans that neither meet nor overlap, in order."""
    spans: dict[Path, list[Span]] = {}
    for spec in sorted(transport.denylist, key=lambda spec: spec.at_ns):
        end = None if spec.for_ns is None else spec.at_ns + spec.for_ns
        for path in crossing(spec, found, source, target):
            mine = spans.setdefault(path, [])
            if mine and (mine[-1][1] is None or mine[-1][1] >= spec.at_ns):
                start, before = mine.pop()
                mine.append((start, None if end is None or before is None else max(before, end)))
            else:
                mine.append((spec.at_ns, end))
    return {path: tuple(mine) for path, mine in spans.items()}


def denied_at_start(transport: TransportSpec, found: tuple[Path, ...], source: int, target: int) -> tuple[Path, ...]:
    """Those of a pair's paths that are denied before any traffic."""
    spans = denials(transport, found, source, target)
    return tuple(path for path in found if path in spans and spans[path][0][0] == 0)


def pairs(workload: tuple[WorkloadSpec, ...], seed: int, topology: Topology) -> Iterator[tuple[int, int]]:
    """Every ordered pair of hosts that exchanges packets: data one way, control both."""
    seen: set[tuple[int, int]] = set()
    for index, spec in enumerate(workload):
        for source, target in flows.pairs(spec, topology, flows.rng_of(seed, index)):
            for pair in ((source, target), (target, source)):
                if pair not in seen:
                    seen.add(pair)
                    yield pair
