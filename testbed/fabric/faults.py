"""Faults of links and switches, confirmed by the kernel, undone completely.

`down` and `reboot` take carriers (carrier.py). The others leave the carrier up and act on what a port sends: `blackhole` is
the port program dropping everything, `loss` and `corrupt` hit a share of the packets on the wire, `rate` gives the port's
shaper and virtual queue a lower rate.
Direction: "forward" is from the link's lower end to its upper end, "backward" the other way.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from typing import assert_never

from testbed.errors import KernelError
from testbed.fabric import queues
from testbed.fabric.carrier import Carriers
from testbed.fabric.namespaces import Namespaces
from testbed.fabric.netlink import Netlink
from testbed.fabric.plan import NodePlan
from testbed.fabric.ports import Ports
from testbed.model.scenario import FaultAction, LinkSpec
from testbed.model.topology import Link, Port

COUNTED = (FaultAction.DOWN, FaultAction.BLACKHOLE)  # overlapping ones on one place end with the last of them


class Faults:
    """Applies and undoes faults. Both return CLOCK_MONOTONIC ns at which the kernel had confirmed what was done.

    `amount` is the ratio (0 to 1) of `loss` and `corrupt` and the bit/s of `rate`. Of these only one at a time can hold on a
    port; KernelError for a second one, for the undoing of what does not hold, and for a reboot while a link of the switch
    is down.
    """

    def __init__(self, namespaces: Namespaces, plans: Mapping[str, NodePlan], links: LinkSpec, ports: Ports) -> None:
        self._namespaces = namespaces
        self._links = links
        self._ports = ports
        self._carriers = Carriers(namespaces, plans, links, ports)
        self._active: Counter[tuple[FaultAction, int]] = Counter()
        self._rebooting: set[str] = set()

    def apply(self, link: Link, action: FaultAction, direction: str, amount: float = 0.0) -> int:
        if action is FaultAction.DOWN:
            if self._is_first(action, link.upper):
                self._carriers.take_down(link)
            self._active[action, link.upper.ifindex] += 1
            return time.monotonic_ns()
        for port in _senders(link, direction):
            if self._is_first(action, port):
                self._set(port, link, action, amount)
            self._active[action, port.ifindex] += 1
        return time.monotonic_ns()

    def undo(self, link: Link, action: FaultAction, direction: str) -> int:
        if action is FaultAction.DOWN:
            if self._leave(action, link.upper):
                self._carriers.bring_up(link)
            return time.monotonic_ns()
        for port in _senders(link, direction):
            if self._leave(action, port):
                self._set(port, link, action, None)
        return time.monotonic_ns()

    def reboot(self, switch: str) -> int:
        """Down, until `boot`."""
        if switch in self._rebooting:
            raise KernelError(switch, "reboot", "it is rebooting already")
        self._carriers.stop_switch(switch)
        self._rebooting.add(switch)
        return time.monotonic_ns()

    def boot(self, switch: str) -> int:
        if switch not in self._rebooting:
            raise KernelError(switch, "boot", "no such fault is active")
        self._carriers.start_switch(switch)
        self._rebooting.discard(switch)
        return time.monotonic_ns()

    def static_problems(self, end: Netlink, plan: NodePlan) -> list[str]:
        """How a node differs from its plan, beyond what the faults in force explain."""
        return self._carriers.problems(end, plan)

    def _is_first(self, action: FaultAction, port: Port) -> bool:
        if self._active[action, port.ifindex] and action not in COUNTED:
            raise KernelError(port.node, f"{action} at {port.name}", "another one is active there")
        return not self._active[action, port.ifindex]

    def _leave(self, action: FaultAction, port: Port) -> bool:
        if not self._active[action, port.ifindex]:
            raise KernelError(port.node, f"undo {action} at {port.name}", "no such fault is active")
        self._active[action, port.ifindex] -= 1
        return not self._active[action, port.ifindex]

    def _set(self, port: Port, link: Link, action: FaultAction, amount: float | None) -> None:
        """`amount` None: as it was."""
        match action:
            case FaultAction.BLACKHOLE:
                self._ports.flag(port.ifindex, "FLAG_BLACKHOLE", on=amount is not None)
            case FaultAction.LOSS:
                self._ports.set_loss(port.ifindex, amount or 0.0)
            case FaultAction.CORRUPT:
                self._ports.set_corrupt(port.ifindex, amount or 0.0)
            case FaultAction.RATE:
                rate = queues.rate_of(link, self._links) if amount is None else int(amount)
                queues.set_rate(self._namespaces, port, queues.shaper_at(rate, self._links))
                self._ports.set_rate(port.ifindex, rate // 8)
            case FaultAction.DOWN | FaultAction.REBOOT:
                raise KernelError(port.node, str(action), "is no fault of a port")
            case _:
                assert_never(action)


def _senders(link: Link, direction: str) -> tuple[Port, ...]:
    senders = {"forward": (link.lower,), "backward": (link.upper,), "both": (link.lower, link.upper)}
    return senders[direction]
