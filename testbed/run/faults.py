"""Planned faults -> timeline actions. Each is applied, and the kernel says when; that and the plan go to the event log.

Faults of links and switches are the fabric's, those of hosts are signals to their processes. One that cannot be applied
breaks the run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Protocol

from testbed.model.faults import BOTH, DOWN, OF_HOSTS, OF_SWITCHES, UP, PlannedFault
from testbed.model.scenario import FaultAction
from testbed.model.topology import Link
from testbed.run.telemetry import EventLog
from testbed.run.timeline import Timeline

ACTION = "fault"
NO_PLANE = -1  # a host has a port in each
# The plan sees a direction from the hosts, the kernel's side from a link's lower end.
DIRECTIONS = {BOTH: "both", UP: "forward", DOWN: "backward"}


class Kernel(Protocol):
    """The part of `Fabric` that breaks and mends. Each returns the kernel-confirmed CLOCK_MONOTONIC ns, of each link."""

    def apply_faults(
        self, links: Sequence[Link], action: FaultAction, direction: str, amount: float, side: str
    ) -> list[int]: ...
    def undo_faults(
        self, links: Sequence[Link], action: FaultAction, direction: str, amount: float, side: str
    ) -> list[int]: ...
    def prepare(self, links: Sequence[Link], action: FaultAction, side: str) -> None: ...
    def compare(self) -> None: ...
    def reboot(self, switch: str) -> int: ...
    def boot(self, switch: str) -> int: ...
    def hang(self, switch: str) -> int: ...
    def wake(self, switch: str) -> int: ...


class Processes(Protocol):
    """The part of `Hosts` that stops and ends. Each returns when the kernel had done it."""

    def pause(self, name: str) -> int: ...
    def resume(self, name: str) -> int: ...
    def kill(self, name: str) -> int: ...


class Faults:
    """What is broken at the moment, for the display; and the scheduling."""

    def __init__(self, kernel: Kernel, processes: Processes, log: EventLog) -> None:
        self._kernel = kernel
        self._log = log
        self._active: dict[int, str] = {}
        self._of_hosts: set[int] = set()
        self._starts: dict[FaultAction, Callable[[str], int]] = {
            FaultAction.REBOOT: kernel.reboot,
            FaultAction.HANG: kernel.hang,
            FaultAction.PAUSE: processes.pause,
            FaultAction.KILL: processes.kill,
        }
        self._ends: dict[FaultAction, Callable[[str], int]] = {
            FaultAction.REBOOT: kernel.boot,
            FaultAction.HANG: kernel.wake,
            FaultAction.PAUSE: processes.resume,
        }

    @property
    def active(self) -> tuple[str, ...]:
        return tuple(self._active.values())

    @property
    def in_fabric(self) -> bool:
        """Whether one of them holds something of the fabric: a host that is stopped or dead does not."""
        return bool(self._active.keys() - self._of_hosts)

    def schedule(self, timeline: Timeline, planned: Iterable[PlannedFault], t0_ns: int) -> None:
        """Of two at one time the end comes first: one fault may begin where another ends."""
        faults = tuple(planned)
        for fault in faults:
            self._kernel.prepare(fault.links, fault.spec.action, fault.spec.side)
        for fault in faults:
            if fault.until_ns is not None:
                timeline.at(t0_ns + fault.until_ns, ACTION, partial(self._end, fault, timeline), punctual=True)
        for fault in faults:
            timeline.at(t0_ns + fault.at_ns, ACTION, partial(self._start, fault), punctual=True)

    def _start(self, fault: PlannedFault, planned_ns: int) -> None:
        places = fault.places
        if fault.spec.action in OF_HOSTS:
            self._of_hosts.add(fault.index)
        self._active[fault.index] = f"{fault.doing} {', '.join(places[:2])}{', ...' if len(places) > 2 else ''}"
        self._do("fault_start", fault, planned_ns, self._starts, self._kernel.apply_faults)

    def _end(self, fault: PlannedFault, timeline: Timeline, planned_ns: int) -> None:
        """Reading back what is as before comes after everything else of this moment."""
        self._active.pop(fault.index, None)
        self._do("fault_end", fault, planned_ns, self._ends, self._kernel.undo_faults)
        if fault.spec.action not in OF_HOSTS:
            timeline.at(planned_ns, "compare", lambda _: self._kernel.compare())

    def _do(
        self,
        kind: str,
        fault: PlannedFault,
        planned_ns: int,
        whole: dict[FaultAction, Callable[[str], int]],
        of_links: Callable[[Sequence[Link], FaultAction, str, float, str], list[int]],
    ) -> None:
        spec = fault.spec
        if spec.action in OF_SWITCHES:
            self._record(kind, fault, spec.switch, fault.links[0].plane, planned_ns, whole[spec.action](spec.switch))
        elif spec.action in OF_HOSTS:
            self._record(kind, fault, spec.host, NO_PLANE, planned_ns, whole[spec.action](spec.host))
        else:
            amount = spec.ratio or float(spec.to_bps)
            confirmed = of_links(fault.links, spec.action, DIRECTIONS[fault.direction], amount, spec.side)
            for link, confirmed_ns in zip(fault.links, confirmed, strict=True):
                self._record(kind, fault, link.name, link.plane, planned_ns, confirmed_ns)

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
