"""Carriers lost and regained: one link, or all links of a switch that reboots. Undone, everything is read back as planned.

A link goes down at its upper end: the T0 side of a NIC-T0 link, so the host sees its carrier go, and the T1 side of a T0-T1
link. The lower end keeps its configuration and goes on sending into the void; the upper end loses routes and neighbours, for
which a detour stands in. Both ends so count what they lose as fault drops.
A reboot takes down every port of the switch at the switch itself and empties it: no routes, neighbours or SIDs, nothing in
any queue. Its neighbours keep their static configuration, as at a link that is down.
"""

from __future__ import annotations

from collections.abc import Mapping

from testbed.errors import KernelError
from testbed.fabric import linkstate, queues, srv6, static
from testbed.fabric.namespaces import Namespaces
from testbed.fabric.netlink import Netlink
from testbed.fabric.plan import NodePlan, detour
from testbed.fabric.ports import Ports
from testbed.model.scenario import LinkSpec
from testbed.model.topology import Link, Port


class Carriers:
    """Knows which links have no carrier on purpose. One reason at a time per link: who holds several counts them."""

    def __init__(
        self,
        namespaces: Namespaces,
        plans: Mapping[str, NodePlan],
        links: LinkSpec,
        ports: Ports,
    ) -> None:
        self._namespaces = namespaces
        self._plans = plans
        self._links = links
        self._ports = ports
        self._dark: set[int] = set()  # by the upper end's ifindex

    def take_down(self, link: Link) -> None:
        """Returns once the kernel has taken the carrier from both ends."""
        self._darken([link], link.upper.node)
        with Netlink(self._namespaces, link.upper.node) as upper:
            routes, neighbour = detour(self._plans[link.upper.node], link.upper.ifindex)
            static.install(upper, routes, [neighbour], [])  # each replaces the route that the next line would delete
            linkstate.set_up(upper, link.upper.ifindex, up=False)
        self._wait_lost([link.lower])

    def bring_up(self, link: Link) -> None:
        """Returns once both ends are as planned."""
        plan = self._plans[link.upper.node]
        self._dark.discard(link.upper.ifindex)
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
        self._flag([link], on=False)

    def stop_switch(self, switch: str) -> None:
        """Returns once every neighbour has lost its carrier and the switch is empty."""
        plan = self._plans[switch]
        self._darken([link for _, link in plan.ports], switch)
        with Netlink(self._namespaces, switch) as node:
            linkstate.set_all(node, plan.devices, up=False)  # takes routes, neighbours and what waits in the queues along
            routes, _ = srv6.read_routes(node)
            node.execute([srv6.route_message(route, delete=True) for route in routes])
            node.execute([srv6.neighbour_message(item, delete=True) for item in srv6.read_neighbours(node)])
            left = [*srv6.read_routes(node)[0], *srv6.read_neighbours(node)]
            if left:
                raise KernelError(switch, "reboot", f"still there: {'; '.join(map(str, left))}")
        for port, _ in plan.ports:
            self._ports.forget_queue(port.ifindex)
        self._wait_lost(_far_ends(plan))

    def start_switch(self, switch: str) -> None:
        """Reload the static configuration; returns once switch and neighbours are as planned.

        Ports first, since a route needs its port up; until everything is back their flags keep every packet out.
        """
        plan = self._plans[switch]
        with Netlink(self._namespaces, switch) as node:
            linkstate.set_all(node, plan.devices, up=True)
            for port, _ in plan.ports:
                linkstate.wait_carrier(node, switch, port.ifindex, carrier=True, running=True)
            static.install_plan(node, plan)
            queues.check(plan, self._links, node)
            self._dark -= {link.upper.ifindex for _, link in plan.ports}
            self._check(node, plan)
        for port in _far_ends(plan):
            with Netlink(self._namespaces, port.node) as far:
                linkstate.wait_carrier(far, port.node, port.ifindex, carrier=True, running=True)
                self._check(far, self._plans[port.node])
        self._flag([link for _, link in plan.ports], on=False)

    def _darken(self, links: list[Link], node: str) -> None:
        """The flags first: from here on not one packet is counted as accepted that the kernel then drops."""
        held = [link.name for link in links if link.upper.ifindex in self._dark]
        if held:
            raise KernelError(node, "take the carrier", f"another fault has taken it from {', '.join(held)}")
        self._dark |= {link.upper.ifindex for link in links}
        self._flag(links, on=True)

    def _flag(self, links: list[Link], *, on: bool) -> None:
        for link in links:
            for port in (link.lower, link.upper):
                self._ports.flag(port.ifindex, "FLAG_DOWN", on=on)

    def _wait_lost(self, ports: list[Port]) -> None:
        for port in ports:
            with Netlink(self._namespaces, port.node) as end:
                linkstate.wait_carrier(end, port.node, port.ifindex, carrier=False, running=False)

    def _check(self, end: Netlink, plan: NodePlan) -> None:
        """Equal to the plan, except what other faults still hold down in this node."""
        found = self.problems(end, plan)
        if found:
            raise KernelError(plan.node, "restore the carrier", "; ".join(found))

    def problems(self, end: Netlink, plan: NodePlan) -> list[str]:
        """As `static.problems`, without what follows from a carrier that is down on purpose: routes lost, detours in place."""
        held: set[str] = set()
        for port, link in plan.ports:
            if link.upper.ifindex in self._dark:
                routes, neighbour = detour(plan, port.ifindex)
                held.update(str(item) for group in (*plan.of_device(port.ifindex), routes, [neighbour]) for item in group)
        return [problem for problem in static.problems(end, plan) if not any(item in problem for item in held)]


def _far_ends(plan: NodePlan) -> list[Port]:
    return [link.upper if port is link.lower else link.lower for port, link in plan.ports]
