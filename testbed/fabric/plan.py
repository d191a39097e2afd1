"""What the kernel must hold, node by node: addresses, neighbours and routes by interface index. Pure; from testbed.model.

The same objects are what `srv6.read` returns, so a read-back is a comparison of sets.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from ipaddress import IPv6Address, IPv6Network

from testbed.model import hashed, tcp, usid
from testbed.model.scenario import Routing
from testbed.model.tcp import Tunnel
from testbed.model.topology import Link, Port, Tier, Topology

LOOPBACK = 1
# The SIDs of a switch live on a private veth pair: a SID bound to a port dies with it, and one bound to `lo` forwards nothing.
SID_DEVICE, SID_DEVICE_INDEX = "sid0", 2
SID_PEER, SID_PEER_INDEX = "sid1", 3
REST_OF_INNER = IPv6Network("fd00::/16")


class RouteKind(StrEnum):
    UNICAST = "unicast"
    BLACKHOLE = "blackhole"
    UN = "seg6local End flavors next-csid"
    EQUAL = "equal-cost"
    WRAP = "encap seg6 mode encap.red"
    UNWRAP = "seg6local End.DT6 table local"


@dataclass(frozen=True, slots=True, order=True)
class Flavor:
    """The NEXT-C-SID lengths in bits. A uN route has exactly the plan's; a plain End has none."""

    block_bits: int = usid.BLOCK_BITS
    node_function_bits: int = usid.USID_BITS


@dataclass(frozen=True, slots=True)
class Route:
    """`device` is an ifindex, 0 for a blackhole. `gateway` is the neighbour's link-local next hop.

    An equal-cost route has its next hops in `hops` instead, in order of their devices, each with weight 1.
    """

    prefix: IPv6Network
    kind: RouteKind
    device: int
    gateway: IPv6Address | None = None
    flavor: Flavor | None = None
    hops: tuple[tuple[int, IPv6Address], ...] = ()
    segment: IPv6Address | None = None  # of a route that wraps: the outer destination
    metric: int = 1024  # the kernel's default

    @property
    def devices(self) -> tuple[int, ...]:
        """Every port it leaves by."""
        return tuple(device for device, _ in self.hops) if self.hops else (self.device,)

    def __str__(self) -> str:
        parts = [str(self.prefix), str(self.kind)]
        if self.flavor is not None:
            parts.append(f"lblen {self.flavor.block_bits} nflen {self.flavor.node_function_bits}")
        if self.segment is not None:
            parts.append(f"segs {self.segment}")
        if self.gateway is not None:
            parts.append(f"via {self.gateway}")
        if self.device:
            parts.append(f"dev #{self.device}")
        parts += [f"metric {self.metric}"] if self.metric != 1024 else []
        parts += [f"nexthop via {gateway} dev #{device}" for device, gateway in self.hops]
        return " ".join(parts)


@dataclass(frozen=True, slots=True)
class Neighbour:
    address: IPv6Address
    device: int
    mac: bytes

    def __str__(self) -> str:
        return f"neighbour {self.address} {self.mac.hex(':')} dev #{self.device}"


@dataclass(frozen=True, slots=True)
class Address:
    address: IPv6Address
    device: int

    def __str__(self) -> str:
        return f"address {self.address} dev #{self.device}"


@dataclass(frozen=True, slots=True)
class NodePlan:
    """Everything static in one node. `ports` are its links' ends in number order."""

    node: str
    is_host: bool
    ports: tuple[tuple[Port, Link], ...]
    routes: frozenset[Route]
    neighbours: frozenset[Neighbour]
    addresses: frozenset[Address]

    @property
    def devices(self) -> tuple[int, ...]:
        """Every interface that must be up, `lo` aside."""
        ports = tuple(port.ifindex for port, _ in self.ports)
        return ports if self.is_host else (SID_DEVICE_INDEX, SID_PEER_INDEX, *ports)

    def of_device(self, ifindex: int) -> tuple[set[Route], set[Neighbour], set[Address]]:
        """The part that hangs on one port: what the kernel forgets when that port is downed on its own side."""
        return (
            {route for route in self.routes if ifindex in route.devices},
            {neighbour for neighbour in self.neighbours if neighbour.device == ifindex},
            {address for address in self.addresses if address.device == ifindex},
        )


def detour(plan: NodePlan, ifindex: int) -> tuple[set[Route], Neighbour]:
    """What stands in for a switch's port that is down on its own side, so that what it loses is still counted.

    Its prefixes lead to the private device instead, towards the port's own MAC, by which the port program knows the port.
    """
    here = Neighbour(next_hop(ifindex), SID_DEVICE_INDEX, mac_of(ifindex))
    lost = {route for route in plan.routes if route.device == ifindex}
    return {Route(route.prefix, RouteKind.UNICAST, SID_DEVICE_INDEX, here.address) for route in lost}, here


def without(routes: Iterable[Route], devices: Collection[int]) -> list[Route]:
    """What is left of routes while these ports are down on their own side: an equal-cost route keeps its other next hops."""
    left = []
    for route in routes:
        hops = tuple(hop for hop in route.hops if hop[0] not in devices)
        if route.kind is not RouteKind.EQUAL:
            left += [] if route.device in devices else [route]
        elif len(hops) > 1:
            left.append(replace(route, hops=hops))
        elif hops:
            left.append(Route(route.prefix, RouteKind.UNICAST, *hops[0]))
    return left


def mac_of(ifindex: int) -> bytes:
    """A fixed, locally administered MAC from the fabric-wide interface index."""
    return b"\x02\x00" + ifindex.to_bytes(4, "big")


def next_hop(ifindex: int) -> IPv6Address:
    """The link-local next hop that stands for the port with this index; nobody resolves it, a permanent neighbour does."""
    return IPv6Address((0xFE80 << 112) | ifindex)


def build(topology: Topology, routing: Routing = Routing.SRV6, tunnels: Sequence[Tunnel] = ()) -> dict[str, NodePlan]:
    """Every node's plan, hosts first. With `tunnels`, over SRv6, hosts wrap and unwrap what their kernels send."""
    ports: dict[str, list[tuple[Port, Link]]] = {name: [] for name in (*topology.hosts, *topology.switches)}
    for link in topology.links:
        ports[link.lower.node].append((link.lower, link))
        ports[link.upper.node].append((link.upper, link))
    for ends in ports.values():
        ends.sort(key=lambda end: end[0].number)
    tables = _srv6(topology, ports) if routing is Routing.SRV6 else _hashed(topology, ports, routing)
    plans: dict[str, NodePlan] = {}
    for host, host_table in usid.host_tables(topology).items():
        peers = _peers(host, ports[host])
        addresses = {Address(sid, peers[port][0].ifindex) for port, sid in host_table.sids}
        addresses.add(Address(host_table.inner, LOOPBACK))
        routes = tables[host]
        if tunnels:
            index = topology.hosts.index(host)
            addresses = {Address(host_table.inner, LOOPBACK)} | {
                Address(tcp.plane_address(link.plane, index), port.ifindex) for port, link in ports[host]
            }
            routes |= _tunnelled(index, ports[host], [tunnel for tunnel in tunnels if tunnel.host == index])
        plans[host] = NodePlan(host, True, tuple(ports[host]), routes, _neighbours(peers), frozenset(addresses))
    for switch in topology.switches:
        neighbours = _neighbours(_peers(switch, ports[switch]))
        own = _link_locals(ports[switch]) if routing is Routing.BGP else frozenset()
        plans[switch] = NodePlan(switch, False, tuple(ports[switch]), tables[switch], neighbours, own)
    return plans


Ports = dict[str, list[tuple[Port, Link]]]


def _srv6(topology: Topology, ports: Ports) -> dict[str, frozenset[Route]]:
    """Static uSID routes of every node."""
    found = {}
    for host, host_table in usid.host_tables(topology).items():
        peers = _peers(host, ports[host])
        found[host] = frozenset(_towards(route, peers) for route in host_table.planes)
    for switch, table in usid.switch_tables(topology).items():
        peers = _peers(switch, ports[switch])
        routes = {_towards(route, peers) for route in table.neighbours}
        routes.add(Route(table.own, RouteKind.UN, SID_DEVICE_INDEX, flavor=Flavor()))
        routes.add(Route(table.blackhole, RouteKind.BLACKHOLE, 0))
        found[switch] = frozenset(routes)
    return found


def _tunnelled(host: int, ends: list[tuple[Port, Link]], mine: Sequence[Tunnel]) -> frozenset[Route]:
    """A host's SID in each plane unwraps what comes; each tunnel wraps what goes to its target. All die with their ports."""
    device = {link.plane: port.ifindex for port, link in ends}
    found = {Route(IPv6Network(usid.host_sid(plane, host)), RouteKind.UNWRAP, port) for plane, port in device.items()}
    for tunnel in mine:
        found.add(
            Route(
                IPv6Network(tunnel.target), RouteKind.WRAP, device[tunnel.plane], segment=tunnel.segment, metric=tunnel.metric
            )
        )
    return frozenset(found)


def _link_locals(ends: list[tuple[Port, Link]]) -> frozenset[Address]:
    """The address that a switch speaks BGP from at each port towards another switch; its neighbour there sends to it."""
    return frozenset(Address(next_hop(port.ifindex), port.ifindex) for port, link in ends if link.tier is Tier.T0_T1)


def _hashed(topology: Topology, ports: Ports, routing: Routing) -> dict[str, frozenset[Route]]:
    """Static equal-cost routes of every node, and in a switch a blackhole for every other address of hosts.

    What BGP finds out is not in it: of a switch only the routes to its own hosts.
    """
    found = {}
    of_switches = hashed.switch_routes(topology) if routing is Routing.ECMP else hashed.own_hosts(topology)
    for node, routes in (*hashed.host_routes(topology).items(), *of_switches.items()):
        peers = _peers(node, ports[node])
        found[node] = frozenset(_equal(route, peers) for route in routes)
    rest = frozenset(Route(prefix, RouteKind.BLACKHOLE, 0) for prefix in (usid.SID_SPACE, REST_OF_INNER))
    for switch in topology.switches:
        found[switch] |= rest
    return found


def _equal(route: hashed.EqualRoute, peers: dict[str, tuple[Port, Port]]) -> Route:
    hops = sorted((peers[port][0].ifindex, next_hop(peers[port][1].ifindex)) for port in route.ports)
    if len(hops) == 1:
        return Route(route.prefix, RouteKind.UNICAST, *hops[0])
    return Route(route.prefix, RouteKind.EQUAL, 0, hops=tuple(hops))


def _peers(node: str, ends: list[tuple[Port, Link]]) -> dict[str, tuple[Port, Port]]:
    """{own port name: (own port, far port)}."""
    return {port.name: (port, link.upper if link.lower.node == node else link.lower) for port, link in ends}


def _neighbours(peers: dict[str, tuple[Port, Port]]) -> frozenset[Neighbour]:
    return frozenset(Neighbour(next_hop(far.ifindex), here.ifindex, mac_of(far.ifindex)) for here, far in peers.values())


def _towards(route: usid.NeighbourRoute, peers: dict[str, tuple[Port, Port]]) -> Route:
    here, far = peers[route.port]
    return Route(route.prefix, RouteKind.UNICAST, here.ifindex, next_hop(far.ifindex))
