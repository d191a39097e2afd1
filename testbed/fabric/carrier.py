"""Carriers lost and regained: of single links, or of all links of a switch that reboots. What was undone is read back.

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
from dataclasses import dataclass

from testbed.errors import KernelError
from testbed.fabric import linkstate, queues, srv6, static
from testbed.fabric.namespaces import Namespaces
from testbed.fabric.netlink import Netlink
from testbed.fabric.plan import NodePlan, detour, without
from testbed.fabric.ports import Ports
from testbed.model.scenario import LinkSpec
from testbed.model.topology import Link, Port

End = tuple[Port, Link]  # the port that is taken down, and its link


@dataclass(frozen=True, slots=True)
class _Requests:
    """To the kernel: what stands in for a port that goes down, and what a port that has come up needs."""

    detour: list[tuple[str, bytes]]
    restore: list[tuple[str, bytes]]


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
        self._sockets: dict[str, Netlink] = {}
        self._ready: dict[int, _Requests] = {}  # by ifindex
        self._unchecked: set[str] = set()  # nodes in which something was undone that has not been read back

    def take_down(self, ends: Sequence[End]) -> dict[int, int]:
        """Returns for each port, by ifindex, when the kernel had acknowledged it; its far end is then read as without carrier.

        The flags of all go first: from here on nothing passes, and not one packet is counted as accepted that the kernel then
        drops. The carriers follow node by node; the kernel takes one at a time.
        """
        self._flag([link for _, link in ends], on=True)
        self._down |= {port.ifindex for port, _ in ends}
        running = self._running(ends)
        confirmed: dict[int, int] = {}
        for node, mine in running.items():
            detours = [request for port, _ in mine for request in self._requests(port).detour]
            self._socket(node).execute([*detours, *(linkstate.change(port.ifindex, up=False) for port, _ in mine)])
            confirmed |= dict.fromkeys((port.ifindex for port, _ in mine), time.monotonic_ns())
        for mine in running.values():
            confirmed |= {port.ifindex: time.monotonic_ns() for port, link in mine if self._wait_lost(_far(port, link))}
        return confirmed

    def bring_up(self, ends: Sequence[End]) -> dict[int, int]:
        """Returns for each port, unless something else holds the link, when the kernel showed the carrier at both ends.

        All nodes are asked before any is waited for: the kernel then looks at all new carriers together.
        """
        self._down -= {port.ifindex for port, _ in ends}
        running = self._running(ends)
        for node, mine in running.items():
            self._raise(node, mine)
        return self._let_pass([end for mine in running.values() for end in mine])

    def compare(self, lowered: Mapping[int, int]) -> None:
        """Read back every node in which something was undone since the last call. KernelError where it is not as planned.

        `lowered`: bit/s of ports that another fault holds below their rate.
        """
        nodes, self._unchecked = self._unchecked, set()
        for node in sorted(nodes - self._off):
            end, plan = self._socket(node), self._plans[node]
            self._check(end, plan)
            queues.check(plan, self._links, end, lowered)

    def stop_switch(self, switch: str) -> None:
        """Returns once every neighbour has lost its carrier and the switch is empty."""
        plan = self._plans[switch]
        self._off.add(switch)
        self._flag([link for _, link in plan.ports], on=True)
        node = self._socket(switch)
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

    def start_switch(self, switch: str) -> int:
        """Reload the static configuration. Returns when, as `bring_up`.

        Ports first, since a route needs its port up; until everything is back their flags keep every packet out.
        """
        plan = self._plans[switch]
        self._off.discard(switch)
        held = [end for end in plan.ports if end[0].ifindex in self._down]
        closed = {port.ifindex for port, _ in held}
        node = self._socket(switch)
        linkstate.set_all(node, [device for device in plan.devices if device not in closed], up=True)
        neighbours = [neighbour for neighbour in plan.neighbours if neighbour.device not in closed]
        static.install(node, without(plan.routes, closed), neighbours, plan.addresses)
        for port, _ in held:
            node.execute(self._requests(port).detour)
        self._let_pass(plan.ports)
        return time.monotonic_ns()

    def _raise(self, node: str, mine: Sequence[End]) -> None:
        """In one batch, for which the kernel's lock is waited for once: the ports, then what needs them up."""
        requests = [linkstate.change(port.ifindex, up=True) for port, _ in mine]
        for port, _ in mine:
            requests += self._requests(port).restore
        self._socket(node).execute(requests)

    def _let_pass(self, ends: Iterable[End]) -> dict[int, int]:
        """Packets may pass once both ends of a link have their carrier; returns when. Not while something else holds it."""
        passed: dict[int, int] = {}
        for port, link in ends:
            both = (port, _far(port, link))
            self._unchecked |= {end.node for end in both}
            if not self._is_dark(link):
                for end in both:
                    linkstate.wait_carrier(self._socket(end.node), end.node, end.ifindex, carrier=True, running=True)
                self._flag([link], on=False)
                passed[port.ifindex] = time.monotonic_ns()
        return passed

    def prepare(self, ends: Sequence[End]) -> None:
        """What can be made ready before the time of a fault."""
        for port, link in ends:
            self._requests(port)
            for node in (port.node, _far(port, link).node):
                self._socket(node)

    def _socket(self, node: str) -> Netlink:
        if node not in self._sockets:
            self._sockets[node] = Netlink(self._namespaces, node)
        return self._sockets[node]

    def _requests(self, port: Port) -> _Requests:
        """Of a port whose routes have several next hops those that are left now; of any other always the same."""
        if port.ifindex not in self._ready:
            plan = self._plans[port.node]
            routes, neighbours, addresses = plan.of_device(port.ifindex)
            made = _Requests([], static.requests(without(routes, self._down - {port.ifindex}), neighbours, addresses))
            if not plan.is_host:
                detours, here = detour(plan, port.ifindex)  # each replaces the route that the port's end would delete
                made.detour.extend(static.requests(detours, [here], []))
                made.restore.append(srv6.neighbour_message(here, delete=True))
            if any(route.hops for route in routes):
                return made
            self._ready[port.ifindex] = made
        return self._ready[port.ifindex]

    def close(self) -> None:
        for socket in self._sockets.values():
            socket.close()
        self._sockets.clear()

    def _running(self, ends: Iterable[End]) -> dict[str, list[End]]:
        """Those whose node no reboot holds off, by node."""
        found: dict[str, list[End]] = {}
        for port, link in ends:
            if port.node not in self._off:
                found.setdefault(port.node, []).append((port, link))
        return found

    def _is_dark(self, link: Link) -> bool:
        return any(port.ifindex in self._down or port.node in self._off for port in (link.lower, link.upper))

    def _flag(self, links: Iterable[Link], *, on: bool) -> None:
        for link in links:
            for port in (link.lower, link.upper):
                self._ports.flag(port.ifindex, "FLAG_DOWN", on=on)

    def _wait_lost(self, port: Port) -> bool:
        return linkstate.wait_carrier(self._socket(port.node), port.node, port.ifindex, carrier=False, running=False)

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
