"""Whether the faults of a scenario can happen: the place exists and takes part, the time is inside the run, nothing is dead.

As in `checks.py`: each check is left out when a section it looks at is broken.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain

from testbed.model import faults as plans
from testbed.model import fields, flows, units
from testbed.model import tree as t
from testbed.model.fields import Problems, Values
from testbed.model.scenario import FaultSpec, LinkSelector, LinkSpec, MeasureSpec
from testbed.model.topology import Topology


def check(root: t.Mapping, done: Values, topology: Topology | None, problems: Problems) -> None:
    """Every entry by itself, then what earlier ones leave of it."""
    measure: MeasureSpec | None = done.get("measure")
    specs = [(index, spec) for index, spec in enumerate(done.get("faults", ())) if spec]
    if measure:
        for index, spec in specs:
            _times(root, index, spec, measure, problems)
    if topology is None:
        return
    workload = done.get("workload", [None])
    busy = None if None in workload else flows.taking_part(workload)
    places = _Places(root, topology, plans.matcher(topology), busy, problems)
    specs = [(index, spec) for index, spec in specs if places.check(index, spec)]
    if measure and "seed" in done:
        planned = _events(root, specs, places.matching, done["seed"], measure, problems)
        if "links" in done:
            _rates(root, planned, done["links"], problems)
        for kill, other in plans.after_a_kill(planned):
            message = f"{other.spec.host} was killed by fault {kill.entry} at {units.format_time(kill.at_ns)}"
            problems.at(root, f"faults.{other.entry}", message, "a killed host stays dead")


def _events(
    root: t.Mapping,
    specs: list[tuple[int, FaultSpec]],
    matching: plans.Matcher,
    seed: int,
    measure: MeasureSpec,
    problems: Problems,
) -> list[plans.PlannedFault]:
    """All events, up to an entry that makes too many."""
    planned: list[plans.PlannedFault] = []
    hits = 0
    for index, spec in specs:
        events = plans.plan(index, spec, matching(spec.link), seed, measure.duration_ns)
        mine = sum(len(event.links) for event in events)
        hits += mine
        if len(planned) + len(events) >= plans.EVENTS_MAX or hits > plans.HITS_MAX:
            rhythm = ".period" if spec.period_ns else ".poisson_per_minute" if spec.per_minute else ""
            many = (
                f"{plans.EVENTS_MAX} events or more" if hits <= plans.HITS_MAX else f"more than {plans.HITS_MAX} links to hit"
            )
            alone = len(events) >= plans.EVENTS_MAX or mine > plans.HITS_MAX
            what = "makes" if alone else "makes, with the faults before it,"
            problems.at(root, f"faults.{index}{rhythm}", f"{what} {many}", "a longer period, a shorter run or fewer links")
            break
        planned += events
    return planned


def _rates(root: t.Mapping, planned: list[plans.PlannedFault], links: LinkSpec, problems: Problems) -> None:
    """A link renegotiates downwards."""
    said: set[int] = set()
    for fault in planned:
        if not fault.spec.to_bps or fault.entry in said:
            continue
        for link in fault.links:
            if fault.share_left(link, links) == 1.0:
                message = f"{units.format_rate(fault.spec.to_bps)} is no less than the rate of {link.name}"
                problems.at(root, f"faults.{fault.entry}.to", message, "`rate` lowers a link's rate")
                said.add(fault.entry)
                break


def _times(root: t.Mapping, index: int, spec: FaultSpec, measure: MeasureSpec, problems: Problems) -> None:
    duration = units.format_time(measure.duration_ns)
    if spec.at_ns >= measure.duration_ns:
        problems.at(root, f"faults.{index}.at", f"at {units.format_time(spec.at_ns)} the run of {duration} is over")
    elif spec.until_ns is not None and spec.until_ns > measure.duration_ns:
        message = f"until {units.format_time(spec.until_ns)}, after the run of {duration}"
        problems.at(root, f"faults.{index}.until", message, "leave `until` out to go on until the end")
    elif spec.for_ns is not None and spec.at_ns + spec.for_ns > measure.duration_ns:
        message = f"the fault would end at {units.format_time(spec.at_ns + spec.for_ns)}, after the run of {duration}"
        problems.at(root, f"faults.{index}.for", message, "leave `for` out to keep it until the end")


@dataclass(frozen=True, slots=True)
class _Places:
    """Whether a place exists; says what is wrong when not. `busy`: the hosts with a flow, None when that is not known."""

    root: t.Mapping
    topology: Topology
    matching: plans.Matcher
    busy: frozenset[int] | None
    problems: Problems

    def check(self, index: int, spec: FaultSpec) -> bool:
        path = f"faults.{index}"
        if spec.action in plans.OF_SWITCHES:
            return self._switch(f"{path}.switch", spec.switch)
        if spec.action in plans.OF_HOSTS:
            return self._host(f"{path}.host", spec)
        if spec.plane is not None:
            return self._plane(f"{path}.plane", spec.plane)
        return self._links(f"{path}.link", spec.link)

    def _wrong(self, path: str, message: str, hint: str = "") -> bool:
        self.problems.at(self.root, path, message, hint)
        return False

    def _host(self, path: str, spec: FaultSpec) -> bool:
        hosts = self.topology.hosts
        if spec.host not in self.topology.links_of or spec.host in self.topology.switches:
            return self._wrong(path, f"there is no host {units.shown(spec.host)}", f"the topology has h0 to h{len(hosts) - 1}")
        if self.busy is not None and hosts.index(spec.host) not in self.busy:
            message = f"no flow begins or ends at {spec.host}: it has no process to {spec.action}"
            return self._wrong(path, message, "give it a workload, or name a host that has one")
        return True

    def _plane(self, path: str, plane: int) -> bool:
        planes = self.topology.spec.planes
        return plane < planes or self._wrong(path, f"there is no plane {plane}", f"planes are 0 to {planes - 1}")

    def _switch(self, path: str, switch: str) -> bool:
        known = switch in self.topology.links_of and switch not in self.topology.hosts
        hint = "" if known else fields.close(switch, self.topology.switches)
        return known or self._wrong(path, f"there is no switch {units.shown(switch)}", hint)

    def _links(self, path: str, selector: LinkSelector) -> bool:
        links = self.matching(selector)
        if selector.ends is not None:
            name = ":".join(selector.ends)
            hint = "" if links else nearest_link(selector.ends, self.topology)
            return bool(links) or self._wrong(path, f"there is no link {units.shown(name)}", hint)
        if selector.plane is not None and not self._plane(f"{path}.plane", selector.plane):
            return False
        if selector.switch is not None and not self._switch(f"{path}.switch", selector.switch):
            return False
        if not links:
            return self._wrong(path, "no link is of this tier, plane and switch at once")
        if selector.count is not None and selector.count > len(links):
            return self._wrong(f"{path}.count", f"{selector.count} links asked for, {len(links)} match")
        return True


def nearest_link(ends: tuple[str, str], topology: Topology) -> str:
    """A hint with the nearest link name, in the order the ends were given; `a:b` and `b:a` are one link."""
    mine = topology.links_of.get(ends[0], ())
    if mine and ends[1] in topology.links_of:
        peers = sorted(link.upper.node if link.lower.node == ends[0] else link.lower.node for link in mine)
        return f"{ends[0]} is linked to {', '.join(peers[:8])}{', ...' if len(peers) > 8 else ''}"
    forward = (link.name for link in topology.links)
    backward = (f"{link.upper.node}:{link.lower.node}" for link in topology.links)
    return fields.close(":".join(ends), chain(forward, backward))
