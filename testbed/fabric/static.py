"""Install a node's static state and read it back: addresses, neighbours, routes, SIDs. What differs is named."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from testbed.errors import KernelError
from testbed.fabric.netlink import Netlink
from testbed.fabric.plan import Address, Neighbour, NodePlan, Route
from testbed.fabric.srv6 import (
    address_message,
    neighbour_message,
    read_addresses,
    read_neighbours,
    read_routes,
    route_message,
)


def install(link: Netlink, routes: Iterable[Route], neighbours: Iterable[Neighbour], addresses: Iterable[Address]) -> None:
    """Write everything; what exists already is replaced by itself."""
    link.execute(requests(routes, neighbours, addresses))


def requests(routes: Iterable[Route], neighbours: Iterable[Neighbour], addresses: Iterable[Address]) -> list[tuple[str, bytes]]:
    """(operation, message) of each. Addresses first: a route may need its port's."""
    made = [address_message(address) for address in addresses]
    made += [neighbour_message(neighbour) for neighbour in neighbours]
    return made + [route_message(route) for route in routes]


def install_plan(link: Netlink, plan: NodePlan) -> None:
    """All of a node's static state."""
    install(link, plan.routes, plan.neighbours, plan.addresses)


def problems(link: Netlink, plan: NodePlan) -> list[str]:
    """Every difference between the kernel and the plan, as "node: what". Empty when they are equal."""
    routes, dead = read_routes(link)
    found = _compare(plan.node, "route", plan.routes, routes)
    found += [f"{plan.node}: route {route}: its port has no carrier" for route in sorted(dead & plan.routes, key=str)]
    found += _compare(plan.node, "", plan.neighbours, read_neighbours(link))
    found += _compare(plan.node, "", plan.addresses, read_addresses(link, plan.node))
    return found


def check(link: Netlink, plan: NodePlan) -> None:
    """Raises KernelError with every difference."""
    found = problems(link, plan)
    if found:
        raise KernelError(plan.node, "read-back", "; ".join(found))


def _compare(node: str, what: str, planned: Collection[object], actual: Collection[object]) -> list[str]:
    label = f"{what} " if what else ""
    missing = sorted(str(item) for item in set(planned) - set(actual))
    extra = sorted(str(item) for item in set(actual) - set(planned))
    return [f"{node}: {label}{item} is missing" for item in missing] + [
        f"{node}: {label}{item} is not in the plan" for item in extra
    ]
