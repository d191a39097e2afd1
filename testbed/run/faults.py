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
    """The part of `Fabric` that breaks and mends. Each returns the kernel-confirmed CLOCK_MONOTONIC ns."""

    def apply_fault(self, link: Link, action: FaultAction, direction: str, amount: float) -> int: ...
    def undo_fault(self, link: Link, action: FaultAction, direction: str) -> int: ...
    def reboot(self, switch: str) -> int: ...
    def boot(self, switch: str) -> int: ...


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
        """Of two at one time the end comes first: one fault may begin where another ends."""
        faults = tuple(planned)
        for fault in faults:
            if fault.until_ns is not None:
                timeline.at(t0_ns + fault.until_ns, ACTION, partial(self._end, fault))
        for fault in faults:
            timeline.at(t0_ns + fault.at_ns, ACTION, partial(self._start, fault))

    def _start(self, fault: PlannedFault, planned_ns: int) -> None:
        places, spec = fault.places, fault.spec
        self._active[fault.index] = f"{fault.doing} {', '.join(places[:2])}{', ...' if len(places) > 2 else ''}"
        if spec.action is FaultAction.REBOOT:
            self._record("fault_start", fault, spec.switch, fault.links[0].plane, planned_ns, self._kernel.reboot(spec.switch))
            return
        for link in fault.links:
            amount = spec.ratio or float(spec.to_bps)
            confirmed_ns = self._kernel.apply_fault(link, spec.action, DIRECTIONS[fault.direction], amount)
            self._record("fault_start", fault, link.name, link.plane, planned_ns, confirmed_ns)

    def _end(self, fault: PlannedFault, planned_ns: int) -> None:
        self._active.pop(fault.index, None)
        spec = fault.spec
        if spec.action is FaultAction.REBOOT:
            self._record("fault_end", fault, spec.switch, fault.links[0].plane, planned_ns, self._kernel.boot(spec.switch))
            return
        for link in fault.links:
            confirmed_ns = self._kernel.undo_fault(link, spec.action, DIRECTIONS[fault.direction])
            self._record("fault_end", fault, link.name, link.plane, planned_ns, confirmed_ns)

    def _record(self, kind: str, fault: PlannedFault, where: str, plane: int, planned_ns: int, confirmed_ns: int) -> None:
        self._log.write(
            {
                "t_ns": confirmed_ns,
                "planned_ns": planned_ns,
                "kind": kind,
                "fault": fault.index,
                "where": where,
                "action": fault.spec.action.value,
                "plane": plane,
            }
        )
