"""Ordinary routing, for the baselines: hosts have an address per plane and one of all planes, switches choose among equals.

The addresses are those of the uSID plan: host h is its SID in plane p (uSID 0x4000+h, a /48 of the plane's block), and
`usid.inner_address(h)` in all planes. A T0 knows its hosts and takes any of its T1s for the others; a T1 knows which T0 a host
is at. A host takes any of its planes for an address of all planes.
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv6Network

from testbed.model.paths import Path, ev_of
from testbed.model.topology import Link, Port, Tier, Topology, t0_name
from testbed.model.usid import BLOCK_BITS, HOST_BASE, INNER_PREFIX, compose, host_sid, inner_address, locator

ANY_UPLINK = 0xFFF  # in an EV: the switches choose the uplink
ANY_T1 = "*"
INNER_SPACE = IPv6Network((int(INNER_PREFIX) + 0x10000, 112))  # every host's address of all planes


@dataclass(frozen=True, slots=True)
class EqualRoute:
    """`prefix` leaves through any of `ports`, given by name in port order."""

    prefix: IPv6Network
    ports: tuple[str, ...]


def block(plane: int) -> IPv6Network:
    """Every address of a plane."""
    return IPv6Network((compose(plane), BLOCK_BITS))


def prefixes(plane: int, host: int) -> tuple[IPv6Network, IPv6Network]:
    """What is host `host` in `plane`: its SID's /48 and its address of all planes."""
    return locator(plane, HOST_BASE + host), IPv6Network(inner_address(host))


def host_routes(topology: Topology) -> dict[str, tuple[EqualRoute, ...]]:
    """Each host: a plane's block over that plane's port, the address of all planes over any."""
    found = {}
    ports = _ports(topology, Tier.NIC_T0)
    for host in topology.hosts:
        mine = [(link.plane, port.name) for port, link in ports[host]]
        planes = [EqualRoute(block(plane), (port,)) for plane, port in mine]
        found[host] = (*planes, EqualRoute(INNER_SPACE, tuple(port for _, port in mine)))
    return found


def own_hosts(topology: Topology) -> dict[str, tuple[EqualRoute, ...]]:
    """Each switch: the prefixes of hosts at its own ports; a T1 has none."""
    down = _ports(topology, Tier.NIC_T0)
    found: dict[str, tuple[EqualRoute, ...]] = {}
    for switch in topology.switches:
        hosts = [(int(link.lower.node[1:]), link.plane, port.name) for port, link in down.get(switch, ())]
        found[switch] = tuple(EqualRoute(prefix, (port,)) for host, plane, port in hosts for prefix in prefixes(plane, host))
    return found


def switch_routes(topology: Topology) -> dict[str, tuple[EqualRoute, ...]]:
    """Each switch: its hosts' prefixes, and of a T0 everything else of its plane over any T1."""
    up = _ports(topology, Tier.T0_T1)
    found: dict[str, tuple[EqualRoute, ...]] = {}
    for switch, own in own_hosts(topology).items():
        routes = list(own)
        for port, link in up[switch]:
            if switch == link.upper.node:
                routes += [
                    EqualRoute(prefix, (port.name,))
                    for host in range(len(topology.hosts))
                    if t0_name(link.plane, topology.group_of(host)) == link.lower.node
                    for prefix in prefixes(link.plane, host)
                ]
        if own:
            plane, uplinks = up[switch][0][1].plane, tuple(port.name for port, _ in up[switch])
            routes += [EqualRoute(block(plane), uplinks), EqualRoute(INNER_SPACE, uplinks)]
        found[switch] = tuple(routes)
    return found


def _ports(topology: Topology, tier: Tier) -> dict[str, list[tuple[Port, Link]]]:
    found: dict[str, list[tuple[Port, Link]]] = {}
    for link in topology.links:
        if link.tier is tier:
            for port in (link.lower, link.upper):
                found.setdefault(port.node, []).append((port, link))
    return found


def plane_paths(topology: Topology, source: int, target: int) -> tuple[Path, ...]:
    """One per plane towards the target's address there. Inside a T0 group the way is known; across, the T1 is not: the second
    hop is then `ANY_T1` of its plane.
    """
    group, other = topology.group_of(source), topology.group_of(target)
    found = []
    for plane in range(topology.spec.planes):
        address = host_sid(plane, target)
        if group == other:
            found.append(Path(ev_of(plane, 0), plane, None, address, (t0_name(plane, group),)))
        else:
            hops = (t0_name(plane, group), f"p{plane}t1-{ANY_T1}", t0_name(plane, other))
            found.append(Path(ev_of(plane, ANY_UPLINK), plane, None, address, hops))
    return tuple(found)
