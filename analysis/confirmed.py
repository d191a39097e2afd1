"""Faults as they happened: the scenario's plan joined with the times that the kernel confirmed (events table).

A planned fault without a confirmed start did not happen and is not in the list.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from analysis.arrays import ints, is_text
from analysis.results import Run
from testbed.model.faults import DOWN, UP, dead_links, resolve, shares
from testbed.model.paths import Path
from testbed.model.scenario import FaultAction
from testbed.model.topology import Link, Tier, Topology

Way = tuple[str, str]  # (link name, up | down); up is from `lower` to `upper`


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault. `end_ns` is None when it held until the end of the records."""

    index: int
    what: str
    action: str
    places: tuple[str, ...]  # the switch, or the links
    links: tuple[Link, ...]
    ways: frozenset[Way]  # directions of links that it affected
    dead: frozenset[str]  # those that carried nothing, as `testbed.model.fluid` takes it
    shares: frozenset[tuple[str, float]]  # what was left of those that carried less, as `testbed.model.faults.shares`
    start_ns: int
    end_ns: int | None
    planned_ns: int | None

    @property
    def removes_plane(self) -> bool:
        """Whether some host lost a whole plane by it, or a part of one."""
        return any(link.tier is Tier.NIC_T0 for link in self.links)

    @property
    def swallows(self) -> bool:
        """Whether packets that meet it can vanish; a slower link only lets them wait."""
        return self.action != FaultAction.RATE


def confirmed(run: Run, topology: Topology, t0_ns: int) -> tuple[Fault, ...]:
    """Every fault that started, in order of its start."""
    times, index = ints(run.events, "t_ns"), ints(run.events, "fault")
    begun, ended = is_text(run.events, "kind", "fault_start"), is_text(run.events, "kind", "fault_end")
    found: list[Fault] = []
    for plan in resolve(run.scenario, topology):
        starts = times[begun & (index == plan.index)]
        if not len(starts):
            continue
        ends = times[ended & (index == plan.index)]
        always = replace(plan, at_ns=0, until_ns=None)
        direction = "" if plan.spec.direction == "both" else f" ({plan.spec.direction} only)"
        found.append(
            Fault(
                index=plan.index,
                what=f"{plan.doing} {', '.join(plan.places)}{direction}",
                action=str(plan.spec.action),
                places=plan.places,
                links=tuple(plan.links),
                ways=frozenset((link.name, way) for link in plan.links for way in plan.directions),
                dead=dead_links([always], 0),
                shares=frozenset(shares([always], run.scenario.links, 0).items()),
                start_ns=int(np.min(starts)),
                end_ns=int(np.max(ends)) if len(ends) else None,
                planned_ns=t0_ns + plan.at_ns,
            )
        )
    return tuple(sorted(found, key=lambda fault: (fault.start_ns, fault.index)))


def ways_of(path: Path, source: int, target: int) -> tuple[Way, ...]:
    """Links and directions that a packet on `path` crosses, in order."""
    links = path.links(source, target)
    half = len(links) // 2
    return tuple((link, UP if at < half else DOWN) for at, link in enumerate(links))
