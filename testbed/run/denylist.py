"""The denylist while a run is up: at its times the runner tells hosts which EVs to deny and to allow, as an operator would.

What is denied from the start stands in the hosts' plans.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, Protocol

from testbed.model import evs
from testbed.model.scenario import Scenario
from testbed.model.topology import Topology, host_name
from testbed.run.timeline import Timeline

ACTION = "denylist"
Change = tuple[int, str, str, list[list[int]]]  # ns after t = 0, host, deny | allow, [peer, EV] of each


class Teller(Protocol):
    """Where messages go."""

    def tell(self, host: str, message: dict[str, Any]) -> None: ...


def changes(scenario: Scenario, topology: Topology) -> Iterator[Change]:
    """Every message to a host, in no particular order."""
    found: dict[tuple[int, str, str], list[list[int]]] = {}
    if not scenario.transport.denylist:
        return
    for source, target in evs.pairs(scenario.workload, scenario.seed, topology):
        paths = evs.given(scenario.transport, scenario.seed, topology, source, target)
        for path, spans in evs.denials(scenario.transport, paths, source, target).items():
            for start_ns, end_ns in spans:
                if start_ns:
                    found.setdefault((start_ns, host_name(source), "deny"), []).append([target, path.ev])
                if end_ns is not None:
                    found.setdefault((end_ns, host_name(source), "allow"), []).append([target, path.ev])
    for (at_ns, host, kind), changed in found.items():
        yield at_ns, host, kind, changed


def schedule(timeline: Timeline, teller: Teller, scenario: Scenario, topology: Topology, t0_ns: int) -> None:
    """Put every change on the timeline."""
    for at_ns, host, kind, changed in changes(scenario, topology):
        timeline.at(t0_ns + at_ns, ACTION, partial(_tell, teller, host, {"type": kind, "evs": changed}))


def _tell(teller: Teller, host: str, message: dict[str, Any], _planned_ns: int) -> None:
    teller.tell(host, message)
