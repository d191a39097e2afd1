"""Which links a fault hits and when: selectors resolved against the topology, seeded where a fault draws links."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass

from testbed.model.scenario import FaultSpec, LinkSelector, Scenario
from testbed.model.topology import Link, Topology

UP = "up"  # towards the T1s: from `link.lower` to `link.upper`
DOWN = "down"
BOTH = "both"


@dataclass(frozen=True, slots=True)
class PlannedFault:
    """A fault with its links. `direction` is both | up | down, seen from the hosts: `spec.direction` with the ends in
    the order the scenario names them. `until_ns` None: to the end of the run.
    """

    index: int
    spec: FaultSpec
    links: tuple[Link, ...]
    at_ns: int
    until_ns: int | None
    direction: str

    def active(self, t_ns: int) -> bool:
        """Whether the fault holds at `t_ns` (times from t = 0; its end is outside)."""
        return self.at_ns <= t_ns and (self.until_ns is None or t_ns < self.until_ns)

    @property
    def directions(self) -> tuple[str, ...]:
        return (UP, DOWN) if self.direction == BOTH else (self.direction,)


def matching(selector: LinkSelector, topology: Topology) -> tuple[Link, ...]:
    """Every link a selector matches, before `count` draws from them; empty when there is none."""
    if selector.ends is not None:
        ends = set(selector.ends)
        return tuple(link for link in topology.links if {link.lower.node, link.upper.node} == ends)
    return tuple(
        link
        for link in topology.links
        if (selector.tier is None or link.tier == selector.tier)
        and (selector.plane is None or link.plane == selector.plane)
        and (selector.switch is None or selector.switch in (link.lower.node, link.upper.node))
    )


def resolve(scenario: Scenario, topology: Topology) -> tuple[PlannedFault, ...]:
    """Every fault of the scenario with its links, in the order of the file. `load` has checked that each has some."""
    return tuple(plan(index, spec, topology, scenario.seed) for index, spec in enumerate(scenario.faults))


def plan(index: int, spec: FaultSpec, topology: Topology, seed: int) -> PlannedFault:
    """One fault. ValueError when fewer links match than it draws."""
    links = matching(spec.link, topology)
    if spec.link.count is not None:
        rng = random.Random(f"{seed}/fault/{index}")
        chosen = rng.sample(range(len(links)), spec.link.count)
        links = tuple(links[place] for place in sorted(chosen))
    until_ns = None if spec.for_ns is None else spec.at_ns + spec.for_ns
    return PlannedFault(index, spec, links, spec.at_ns, until_ns, _direction(spec, links))


def _direction(spec: FaultSpec, links: tuple[Link, ...]) -> str:
    if spec.direction == BOTH:
        return BOTH
    upper_first = spec.link.ends is not None and bool(links) and spec.link.ends[0] == links[0].upper.node
    return UP if (spec.direction == "forward") != upper_first else DOWN


def dead_links(planned: Iterable[PlannedFault], t_ns: int) -> frozenset[str]:
    """What carries nothing at `t_ns`, as `fluid` takes it: `lower:upper`, or `from>to` where one direction is dead."""
    dead: set[str] = set()
    for fault in planned:
        if not fault.active(t_ns):
            continue
        for link in fault.links:
            if fault.direction == BOTH:
                dead.add(link.name)
            else:
                ends = (link.lower.node, link.upper.node)
                dead.add(">".join(ends if fault.direction == UP else ends[::-1]))
    return frozenset(dead)


def overlaps(planned: tuple[PlannedFault, ...]) -> list[tuple[PlannedFault, PlannedFault, Link]]:
    """Pairs of faults with the same action on the same link and direction at the same time.

    Undoing the first would end the second. Different actions compose (carrier and drop flag are separate), and a fault may
    begin the moment another ends.
    """
    found: list[tuple[PlannedFault, PlannedFault, Link]] = []
    for place, first in enumerate(planned):
        for second in planned[place + 1 :]:
            if first.spec.action is not second.spec.action or not set(first.directions) & set(second.directions):
                continue
            starts_late = first.until_ns is not None and first.until_ns <= second.at_ns
            ends_early = second.until_ns is not None and second.until_ns <= first.at_ns
            shared = [link for link in first.links if link in second.links]
            if shared and not starts_late and not ends_early:
                found.append((first, second, shared[0]))
    return found
