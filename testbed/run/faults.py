"""Planned faults -> timeline actions. Each is applied in the kernel, which says when; that and the plan go to the event log."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Protocol

from testbed.model.faults import BOTH, DOWN, UP, PlannedFault
from testbed.model.scenario import FaultAction
from testbed.model.topology import Link
from testbed.run.telemetry import EventLog
from testbed.run.timeline import Timeline

ACTION = "fault"
# The plan sees a direction from the hosts, the kernel's side from a link's lower end.
DIRECTIONS = {BOTH: "both", UP: "forward", DOWN: "backward"}


class Kernel(Protocol):
    """The part of `Fabric` that breaks and mends links. Both return the kernel-confirmed CLOCK_MONOTONIC ns."""

    def apply_fault(self, link: Link, action: FaultAction, direction: str) -> int: ...
    def undo_fault(self, link: Link, action: FaultAction, direction: str) -> int: ...


class Faults:
    """What is broken at the moment, for the display; and the scheduling."""

    def __init__(self, kernel: Kernel, log: EventLog) -> None:
        self._kernel = kernel
        self._log = log
        self._active: dict[int, str] = {}

    @property
    def active(self) -> tuple[str, ...]:
        return tuple(self._active.values())

    def schedule(self, timeline: Timeline, planned: Iterable[PlannedFault], t0_ns: int) -> None:
        for fault in planned:
            timeline.at(t0_ns + fault.at_ns, ACTION, partial(self._start, fault))
            if fault.until_ns is not None:
                timeline.at(t0_ns + fault.until_ns, ACTION, partial(self._end, fault))

    def _start(self, fault: PlannedFault, planned_ns: int) -> None:
        names = [link.name for link in fault.links]
        self._active[fault.index] = f"{fault.spec.action.value} {', '.join(names[:2])}{', ...' if len(names) > 2 else ''}"
        for link in fault.links:
            confirmed_ns = self._kernel.apply_fault(link, fault.spec.action, DIRECTIONS[fault.direction])
            self._record("fault_start", fault, link, planned_ns, confirmed_ns)

    def _end(self, fault: PlannedFault, planned_ns: int) -> None:
        self._active.pop(fault.index, None)
        for link in fault.links:
            confirmed_ns = self._kernel.undo_fault(link, fault.spec.action, DIRECTIONS[fault.direction])
            self._record("fault_end", fault, link, planned_ns, confirmed_ns)

    def _record(self, kind: str, fault: PlannedFault, link: Link, planned_ns: int, confirmed_ns: int) -> None:
        self._log.write(
            {
                "t_ns": confirmed_ns,
                "planned_ns": planned_ns,
                "kind": kind,
                "fault": fault.index,
                "where": link.name,
                "action": fault.spec.action.value,
                "plane": link.plane,
            }
        )
