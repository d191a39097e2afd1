"""Link faults: carrier loss and silent blackholes, confirmed by the kernel, undone completely.

`down` takes the link's upper end down on its own side: the T0 side of a NIC-T0 link, so the host sees its carrier go, and
the T1 side of a T0-T1 link. The lower end keeps its configuration and goes on sending into the void; the upper end loses
routes and neighbours, for which a detour stands in. Both ends so count what they lose as fault drops.
`blackhole` is the port program dropping everything while the carrier stays up.
Direction: "forward" is from the link's lower end to its upper end, "backward" the other way.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping

from testbed.errors import KernelError
from testbed.fabric import linkstate, srv6, static
from testbed.fabric.namespaces import Namespaces
from testbed.fabric.netlink import Netlink
from testbed.fabric.plan import NodePlan, detour
from testbed.fabric.ports import Ports
from testbed.model.scenario import FaultAction
from testbed.model.topology import Link, Port


class LinkFaults:
    """Applies and undoes faults. Overlapping faults of one kind on one place end with the last of them."""

    def __init__(self, namespaces: Namespaces, plans: Mapping[str, NodePlan], ports: Ports) -> None:
        self._namespaces = namespaces
        self._plans = plans
        self._ports = ports
        self._active: Counter[tuple[FaultAction, int]] = Counter()

    def apply(self, link: Link, action: FaultAction, direction: str) -> int:
        """CLOCK_MONOTONIC ns at which the kernel had confirmed the fault."""
        if action is FaultAction.DOWN:
            if self._enter(action, link.upper):
                self._take_down(link)
            return time.monotonic_ns()
        for port in _senders(link, direction):
            if self._enter(action, port):
                self._ports.flag(port.ifindex, "FLAG_BLACKHOLE", on=True)
        return time.monotonic_ns()

    def undo(self, link: Link, action: FaultAction, direction: str) -> int:
        """CLOCK_MONOTONIC ns at which the kernel had confirmed that everything is as before."""
        if action is FaultAction.DOWN:
            if self._leave(action, link.upper):
                self._bring_up(link)
            return time.monotonic_ns()
        for port in _senders(link, direction):
            if self._leave(action, port):
                self._ports.flag(port.ifindex, "FLAG_BLACKHOLE", on=False)
        return time.monotonic_ns()

    def _enter(self, action: FaultAction, port: Port) -> bool:
        self._active[action, port.ifindex] += 1
        return self._active[action, port.ifindex] == 1

    def _leave(self, action: FaultAction, port: Port) -> bool:
        if not self._active[action, port.ifindex]:
            raise KernelError(port.node, f"undo {action} at {port.name}", "no such fault is active")
        self._active[action, port.ifindex] -= 1
        return not self._active[action, port.ifindex]

    def _take_down(self, link: Link) -> None:
        # The flags first: from here on not one packet is counted as accepted that the kernel then drops.
        for port in (link.lower, link.upper):
            self._ports.flag(port.ifindex, "FLAG_DOWN", on=True)
        with Netlink(self._namespaces, link.upper.node) as upper:
            routes, neighbour = detour(self._plans[link.upper.node], link.upper.ifindex)
            static.install(upper, routes, [neighbour], [])  # each replaces the route that the next line would delete
            linkstate.set_up(upper, link.upper.ifindex, up=False)
        with Netlink(self._namespaces, link.lower.node) as lower:
            linkstate.wait_carrier(lower, link.lower.node, link.lower.ifindex, carrier=False, running=False)

    def _bring_up(self, link: Link) -> None:
        plan = self._plans[link.upper.node]
        with (
            Netlink(self._namespaces, link.upper.node) as upper,
            Netlink(self._namespaces, link.lower.node) as lower,
        ):
            linkstate.set_up(upper, link.upper.ifindex, up=True)
            for end, port in ((upper, link.upper), (lower, link.lower)):
                linkstate.wait_carrier(end, port.node, port.ifindex, carrier=True, running=True)
            static.install(upper, *plan.of_device(link.upper.ifindex))  # each route replaces its detour
            upper.execute([srv6.neighbour_message(detour(plan, link.upper.ifindex)[1], delete=True)])
            self._check(upper, plan)
            self._check(lower, self._plans[link.lower.node])
        for port in (link.lower, link.upper):
            self._ports.flag(port.ifindex, "FLAG_DOWN", on=False)

    def _check(self, end: Netlink, plan: NodePlan) -> None:
        """Equal to the plan, except what other faults still hold down in this node."""
        held: set[str] = set()
        for port, link in plan.ports:
            if self._active[FaultAction.DOWN, link.upper.ifindex]:
                routes, neighbour = detour(plan, port.ifindex)
                held.update(str(item) for group in (*plan.of_device(port.ifindex), routes, [neighbour]) for item in group)
        found = [problem for problem in static.problems(end, plan) if not any(item in problem for item in held)]
        if found:
            raise KernelError(plan.node, "restore after link down", "; ".join(found))


def _senders(link: Link, direction: str) -> tuple[Port, ...]:
    senders = {"forward": (link.lower,), "backward": (link.upper,), "both": (link.lower, link.upper)}
    return senders[direction]
