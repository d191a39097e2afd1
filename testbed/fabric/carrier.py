"""Carriers lost and regained: of single links, or of all links of a switch that reboots. Undone, all is read back as planned.

A link goes down at one end, the upper one unless told otherwise: the T0 side of a NIC-T0 link, so the host sees its carrier
go, and the T1 side of a T0-T1 link. The far end keeps its configuration and goes on sending into the void; a switch's port
that is down itself loses routes and neighbours, for which a detour stands in. Both ends so count what they lose as fault
drops. A host's port that is down itself has no detour: the host's own sends fail, as a NIC's do.
A reboot takes down every port of the switch at the switch itself and empties it: no routes, neighbours or SIDs, nothing in
any queue. Its neighbours keep their static configuration, as at a link that is down.
A link is dark while any port of it is down for either reason; reasons may end in any order.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence

from testbed.errors import KernelError
from testbed.fabric import linkstate, queues, srv6, static
from testbed.fabric.namespaces import Namespaces
from testbed.fabric.netlink import Netlink
from testbed.fabric.plan import NodePlan, detour, without
from testbed.fabric.ports import Ports
from testbed.model.scenario import LinkSpec
from testbed.model.topology import Link, Port

End = tuple[Port, Link]  # the port that is taken down, and its link


class Carriers:
    """Knows which ports are down on purpose and which switches are off. Who holds several reasons of a kind counts them."""

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
        self._down: set[int] = set()
        self._off: set[str] = set()

    def take_down(self, ends: Sequence[End]) -> dict[int, int]:
        """Node by node; returns for each port, by ifindex, when the kernel had taken the carrier from both its ends."""
        confirmed: dict[int, int] = {}
        for node, mine in _by_node(ends).items():
            # The flags first: from here on not one packet is counted as accepted that the kernel then drops.
            self._flag([link for _, link in mine], on=True)
            self._down |= {port.ifindex for port, _ in mine}
            if node not in self._off:
                with Netlink(self._namespaces, node) as here:
                    for port, _ in mine:
                        self._detour(here, port)
                    linkstate.set_all(here, [port.ifindex for port, _ in mine], up=False)
                for port, link in mine:
                    self._wait_lost(_far(port, link))
            confirmed |= dict.fromkeys((port.ifindex for port, _ in mine), time.monotonic_ns())
        return confirmed

    def bring_up(self, ends: Sequence[End]) -> dict[int, int]:
        """Returns for each port when it, and the far end unless something else holds it, was as planned."""
        confirmed: dict[int, int] = {}
        for node, mine in _by_node(ends).items():
            self._down -= {port.ifindex for port, _ in mine}
            if node not in self._off:
                self._raise(node, mine)
                for port, link in mine:
                    self._restored(port, link)
            confirmed |= dict.fromkeys((port.ifindex for port, _ in mine), time.monotonic_ns())
        return confirmed

    def stop_switch(self, switch: str) -> None:
        """Returns once every neighbour has lost its carrier and the switch is empty."""
        plan = self._plans[switch]
        self._off.add(switch)
        self._flag([link for _, link in plan.ports], on=True)
        with Netlink(self._namespaces, switch) as node:
            linkstate.set_all(node, plan.devices, up=False)  # takes routes, neighbours and what waits in the queues along
            routes, _ = srv6.read_routes(node)
            node.execute([srv6.route_message(route, delete=True) for route in routes])
            node.execute([srv6.neighbour_message(item, delete=True) for item in srv6.read_neighbours(node)])
            left = [*srv6.read_routes(node)[0], *srv6.read_neighbours(node)]
            if left:
                raise KernelError(switch, "reboot", f"still there: {'; '.join(map(str, left))}")
        for port, link in plan.ports:
            self._ports.forget_queue(port.ifindex)
            self._wait_lost(_far(port, link))

    def start_switch(self, switch: str, lowered: Mapping[int, int]) -> None:
        """Reload the static configuration; returns once switch and neighbours are as planned.

        Ports first, since a route needs its port up; until everything is back their flags keep every packet out. `lowered`:
        bit/s of ports that another fault holds below their rate.
        """
        plan = self._plans[switch]
        self._off.discard(switch)
        held = [end for end in plan.ports if end[0].ifindex in self._down]
        closed = {port.ifindex for port, _ in held}
        with Netlink(self._namespaces, switch) as node:
            linkstate.set_all(node, [device for device in plan.devices if device not in closed], up=True)
            for port, link in plan.ports:
                if not self._is_dark(link):
                    linkstate.wait_carrier(node, switch, port.ifindex, carrier=True, running=True)
            static.install(
                node,
                without(plan.routes, closed),
                [neighbour for neighbour in plan.neighbours if neighbour.device not in closed],
                plan.addresses,
            )
            for port, _ in held:
                self._detour(node, port)
            queues.check(plan, self._links, node, lowered)
            self._check(node, plan)
        for port, link in plan.ports:
            self._restored(port, link)

    def _raise(self, node: str, mine: Sequence[End]) -> None:
        plan = self._plans[node]
        with Netlink(self._namespaces, node) as here:
            linkstate.set_all(here, [port.ifindex for port, _ in mine], up=True)
            for port, link in mine:
                if not self._is_dark(link):
                    linkstate.wait_carrier(here, node, port.ifindex, carrier=True, running=True)
            for port, _ in mine:
                routes, neighbours, addresses = plan.of_device(port.ifindex)
                static.install(here, without(routes, self._down), neighbours, addresses)  # each route replaces its detour
                if not plan.is_host:
                    here.execute([srv6.neighbour_message(detour(plan, port.ifindex)[1], delete=True)])
            self._check(here, plan)

    def _restored(self, port: Port, link: Link) -> None:
        """The far end, as planned; then packets may pass. Not while something else holds the link."""
        if self._is_dark(link):
            return
        far = _far(port, link)
        with Netlink(self._namespaces, far.node) as there:
            linkstate.wait_carrier(there, far.node, far.ifindex, carrier=True, running=True)
            self._check(there, self._plans[far.node])
        self._flag([link], on=False)

    def _detour(self, node: Netlink, port: Port) -> None:
        plan = self._plans[port.node]
        if not plan.is_host:
            routes, neighbour = detour(plan, port.ifindex)
            static.install(node, routes, [neighbour], [])  # each replaces the route that the port's end would delete

    def _is_dark(self, link: Link) -> bool:
        return any(port.ifindex in self._down or port.node in self._off for port in (link.lower, link.upper))

    def _flag(self, links: Iterable[Link], *, on: bool) -> None:
        for link in links:
            for port in (link.lower, link.upper):
                self._ports.flag(port.ifindex, "FLAG_DOWN", on=on)

    def _wait_lost(self, port: Port) -> None:
        with Netlink(self._namespaces, port.node) as end:
            linkstate.wait_carrier(end, port.node, port.ifindex, carrier=False, running=False)

    def _check(self, end: Netlink, plan: NodePlan) -> None:
        """Equal to the plan, except what other faults still hold down in this node."""
        held = self._detours(plan)
        for port, link in plan.ports:
            if self._is_dark(link):
                held.update(str(item) for group in plan.of_device(port.ifindex) for item in group)
        found = [problem for problem in static.problems(end, plan) if not any(item in problem for item in held)]
        if found:
            raise KernelError(plan.node, "restore the carrier", "; ".join(found))

    def problems(self, end: Netlink, plan: NodePlan) -> list[str]:
        """As `static.problems`: what a fault took away is named, the detours that stand in for it are not."""
        detours = self._detours(plan)
        return [problem for problem in static.problems(end, plan) if not any(item in problem for item in detours)]

    def _detours(self, plan: NodePlan) -> set[str]:
        """What may be in a node besides its plan while carriers are down on purpose."""
        found = {str(route) for route in without(plan.routes, self._down)} - {str(route) for route in plan.routes}
        for port, link in plan.ports:
            if self._is_dark(link):
                routes, neighbour = detour(plan, port.ifindex)
                found.update(str(item) for item in (*routes, neighbour))
        return found


def _far(port: Port, link: Link) -> Port:
    return link.upper if port is link.lower else link.lower


def _by_node(ends: Iterable[End]) -> dict[str, list[End]]:
    found: dict[str, list[End]] = {}
    for port, link in ends:
        found.setdefault(port.node, []).append((port, link))
    return found
