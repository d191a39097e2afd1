"""Which links a fault hits and when: selectors resolved against the topology, seeded where a fault draws links.

Also what is left of a link while a fault holds. Faults on one object compose and may end in any order.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache

from testbed.model import units
from testbed.model.scenario import FaultAction, FaultSpec, LinkSelector, LinkSpec, Scenario
from testbed.model.topology import Link, Tier, Topology

UP = "up"  # towards the T1s: from `link.lower` to `link.upper`
DOWN = "down"
BOTH = "both"
MINUTE_NS = 60 * 10**9

OF_HOSTS = (FaultAction.PAUSE, FaultAction.KILL)
OF_SWITCHES = (FaultAction.REBOOT, FaultAction.HANG)
CARRIERS = (FaultAction.DOWN, FaultAction.FLAP)  # one link loses its carrier
DEADLY = (*CARRIERS, FaultAction.BLACKHOLE, *OF_SWITCHES, *OF_HOSTS)
HITS_MAX = 2**18  # links that all events take together
EVENTS_MAX = 2000  # of all entries; more is a mistyped period, and no run has room for them


@dataclass(frozen=True, slots=True)
class PlannedFault:
    """One event: a fault with its links. `direction` is both | up | down, seen from the hosts: `spec.direction` with the
    ends in the order the scenario names them. `until_ns` None: to the end of the run. `index` counts the events of a
    scenario, `entry` the entries of its `faults`: a repeated one makes several events.
    """

    index: int
    entry: int
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
        """What was hit, in words: the switch, the host, the plane, or the links."""
        if self.spec.plane is not None and not self.spec.per_minute:
            return (f"plane {self.spec.plane}",)
        whole = self.spec.switch or self.spec.host
        return (whole,) if whole else tuple(link.name for link in self.links)

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


Matcher = Callable[[LinkSelector], tuple[Link, ...]]


def matcher(topology: Topology) -> Matcher:
    """Every link a selector matches, before `count` draws from them; empty when there is none."""

    @cache
    def chosen(tier: str | None, plane: int | None, switch: str | None) -> tuple[Link, ...]:
        return tuple(
            link
            for link in (topology.links if switch is None else topology.links_of.get(switch, ()))
            if (tier is None or link.tier == tier) and (plane is None or link.plane == plane)
        )

    def matching(selector: LinkSelector) -> tuple[Link, ...]:
        if selector.ends is None:
            return chosen(selector.tier, selector.plane, selector.switch)
        return (topology.link(*selector.ends),) if topology.has_link(*selector.ends) else ()

    return matching


def resolve(scenario: Scenario, topology: Topology) -> tuple[PlannedFault, ...]:
    """Every event of the scenario's faults with its links, in the order of the file. `load` has checked that each has some."""
    matching = matcher(topology)
    every = [
        event
        for entry, spec in enumerate(scenario.faults)
        for event in plan(entry, spec, matching(spec.link), scenario.seed, scenario.measure.duration_ns)
    ]
    return tuple(replace(event, index=index) for index, event in enumerate(every))


def plan(entry: int, spec: FaultSpec, links: tuple[Link, ...], seed: int, duration_ns: int) -> tuple[PlannedFault, ...]:
    """The events of one entry on the `links` it matches, numbered from 0. ValueError when those are fewer than it draws."""
    if spec.link.count is not None:
        rng = random.Random(f"{seed}/fault/{entry}")
        chosen = rng.sample(range(len(links)), spec.link.count)
        links = tuple(links[place] for place in sorted(chosen))
    found: list[PlannedFault] = []
    draws = random.Random(f"{seed}/fault/{entry}/links")
    for at_ns, until_ns in times(entry, spec, seed, duration_ns):
        hit = (draws.choice(links),) if spec.per_minute else links
        found.append(PlannedFault(len(found), entry, spec, hit, at_ns, until_ns, _direction(spec, hit)))
    return tuple(found)


def times(entry: int, spec: FaultSpec, seed: int, duration_ns: int) -> list[tuple[int, int | None]]:
    """(start, end) of every event of an entry, at most EVENTS_MAX: one; or one per period; or a seeded Poisson process."""
    last_ns = duration_ns if spec.until_ns is None else spec.until_ns
    found: list[tuple[int, int | None]] = []
    if spec.per_minute and spec.for_ns is not None:
        rng, at = random.Random(f"{seed}/fault/{entry}/times"), float(spec.at_ns)
        while len(found) < EVENTS_MAX and (at := at + rng.expovariate(spec.per_minute / MINUTE_NS)) + spec.for_ns <= last_ns:
            found.append((round(at), round(at) + spec.for_ns))
    elif spec.period_ns:
        length = round(spec.period_ns * spec.duty)
        starts = range(spec.at_ns, last_ns, spec.period_ns)[:EVENTS_MAX]
        found += [(start, min(start + length, last_ns)) for start in starts]
    else:
        found.append((spec.at_ns, None if spec.for_ns is None else spec.at_ns + spec.for_ns))
    return found


def _direction(spec: FaultSpec, links: tuple[Link, ...]) -> str:
    if spec.direction == BOTH:
        return BOTH
    upper_first = spec.link.ends is not None and bool(links) and spec.link.ends[0] == links[0].upper.node
    return UP if (spec.direction == "forward") != upper_first else DOWN


def shares(planned: Iterable[PlannedFault], links: LinkSpec, t_ns: int) -> dict[str, float]:
    """What is left at `t_ns` of link directions that carry less than their rate but not nothing, as `fluid` takes it:
    `from>to` -> 0..1.
    """
    parts: list[tuple[str, str, float]] = []
    for fault in planned:
        if not fault.active(t_ns) or fault.spec.action in DEADLY:
            continue
        for link in fault.links:
            for way in fault.directions:
                ends = (link.lower.node, link.upper.node)
                name = ">".join(ends if way == UP else ends[::-1])
                parts.append((fault.spec.action, name, fault.share_left(link, links)))
    return composed(parts)


def composed(parts: Iterable[tuple[str, str, float]]) -> dict[str, float]:
    """What faults that hold at one time leave of each direction, from (action, `from>to`, what each leaves by itself).

    Of several rates the lowest holds; shares of packets that are lost multiply.
    """
    slowest: dict[str, float] = {}
    kept: dict[str, float] = {}
    for action, name, share in parts:
        slowest.setdefault(name, 1.0)
        kept.setdefault(name, 1.0)
        if action == FaultAction.RATE:
            slowest[name] = min(slowest[name], share)
        else:
            kept[name] *= share
    return {name: slowest[name] * kept[name] for name in kept}


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


def after_a_kill(planned: Iterable[PlannedFault]) -> list[tuple[PlannedFault, PlannedFault]]:
    """(kill, later event) where something happens to a host that was killed before. All else composes."""
    mine = sorted((fault for fault in planned if fault.spec.action in OF_HOSTS), key=lambda fault: (fault.at_ns, fault.entry))
    killed: dict[str, PlannedFault] = {}
    found = []
    for fault in mine:
        if fault.spec.host in killed:
            found.append((killed[fault.spec.host], fault))
        elif fault.spec.action is FaultAction.KILL:
            killed[fault.spec.host] = fault
    return found
