"""Which links a fault hits and when: selectors resolved against the topology, seeded where a fault draws links.

Also what is left of a link while a fault holds, and which faults cannot hold on one link at one time.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass

from testbed.model import units
from testbed.model.scenario import FaultAction, FaultSpec, LinkSelector, LinkSpec, Scenario
from testbed.model.topology import Link, Tier, Topology

UP = "up"  # towards the T1s: from `link.lower` to `link.upper`
DOWN = "down"
BOTH = "both"

DEADLY = (FaultAction.DOWN, FaultAction.BLACKHOLE, FaultAction.REBOOT)
# Two of the same action on one link would undo each other, and so would these: a reboot takes every carrier of its switch
# and starts its ports anew. All others are separate settings of a port.
CONFLICTS = (
    {FaultAction.REBOOT, FaultAction.DOWN},
    {FaultAction.REBOOT, FaultAction.RATE},
)


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

    @property
    def places(self) -> tuple[str, ...]:
        """What was hit, in words: the switch, or the links."""
        return (self.spec.switch,) if self.spec.switch else tuple(link.name for link in self.links)

    @property
    def doing(self) -> str:
        """The action with its amount: `down`, `loss 2.5%`, `rate 1mbit`."""
        if self.spec.ratio:
            return f"{self.spec.action} {self.spec.ratio * 100:g}%"
        return f"{self.spec.action} {units.format_rate(self.spec.to_bps)}" if self.spec.to_bps else str(self.spec.action)

    def share_left(self, link: Link, links: LinkSpec) -> float:
        """What a faulty direction of `link` still carries of its rate: a lost or corrupt packet has used the link."""
        if self.spec.action in DEADLY:
            return 0.0
        if self.spec.action is FaultAction.RATE:
            return min(1.0, self.spec.to_bps / (links.rate_bps if link.tier is Tier.NIC_T0 else links.fabric_rate_bps))
        return 1.0 - self.spec.ratio


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


def shares(planned: Iterable[PlannedFault], links: LinkSpec, t_ns: int) -> dict[str, float]:
    """What is left at `t_ns` of link directions that carry less than their rate but not nothing, as `fluid` takes it:
    `from>to` -> 0..1. Faults on one direction multiply.
    """
    left: dict[str, float] = {}
    for fault in planned:
        if not fault.active(t_ns) or fault.spec.action in DEADLY:
            continue
        for link in fault.links:
            for way in fault.directions:
                ends = (link.lower.node, link.upper.node)
                name = ">".join(ends if way == UP else ends[::-1])
                left[name] = left.get(name, 1.0) * fault.share_left(link, links)
    return left


def dead_links(planned: Iterable[PlannedFault], t_ns: int) -> frozenset[str]:
    """What carries nothing at `t_ns`, as `fluid` takes it: `lower:upper`, or `from>to` where one direction is dead."""
    dead: set[str] = set()
    for fault in planned:
        if not fault.active(t_ns) or fault.spec.action not in DEADLY:
            continue
        for link in fault.links:
            if fault.direction == BOTH:
                dead.add(link.name)
            else:
                ends = (link.lower.node, link.upper.node)
                dead.add(">".join(ends if fault.direction == UP else ends[::-1]))
    return frozenset(dead)


def overlaps(planned: tuple[PlannedFault, ...]) -> list[tuple[PlannedFault, PlannedFault, Link]]:
    """Pairs of faults that cannot hold on one link (the third item) at one time: undoing the first would end the second.

    These are two with the same action in the same direction, and CONFLICTS. A fault may begin the moment another ends.
    """
    found: list[tuple[PlannedFault, PlannedFault, Link]] = []
    for place, first in enumerate(planned):
        for second in planned[place + 1 :]:
            actions = {first.spec.action, second.spec.action}
            same = len(actions) == 1 and bool(set(first.directions) & set(second.directions))
            if not same and actions not in CONFLICTS:
                continue
            starts_late = first.until_ns is not None and first.until_ns <= second.at_ns
            ends_early = second.until_ns is not None and second.until_ns <= first.at_ns
            shared = [link for link in first.links if link in second.links]
            if shared and not starts_late and not ends_early:
                found.append((first, second, shared[0]))
    return found
