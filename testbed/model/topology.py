"""The multi-plane two-tier Clos as plain data: nodes, ports and links, with the names of DESIGN section 5.

Everything counts from 0. Host h sits in T0 group h // hosts_per_t0 and has one port per plane (port p is plane p).
Ports are numbered in link order, as Mininet does: a T0's ports go to its hosts first, then to the T1s of its plane.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from testbed.model.scenario import TopologySpec

INTERFACE_NAME_MAX = 15  # IFNAMSIZ - 1


class Tier(StrEnum):
    NIC_T0 = "nic-t0"
    T0_T1 = "t0-t1"


def host_name(host: int) -> str:
    return f"h{host}"


def t0_name(plane: int, group: int) -> str:
    return f"p{plane}t0-{group}"


def t1_name(plane: int, index: int) -> str:
    return f"p{plane}t1-{index}"


def port_name(node: str, port: int) -> str:
    return f"{node}-eth{port}"


@dataclass(frozen=True, slots=True)
class Port:
    """One end of a link. `ifindex` is unique in the whole fabric, so one eBPF map can hold every port."""

    node: str
    number: int
    ifindex: int

    @property
    def name(self) -> str:
        return port_name(self.node, self.number)


@dataclass(frozen=True, slots=True)
class Link:
    """A full-duplex link. `lower` is the end nearer to the hosts: the NIC of a NIC-T0 link, the T0 of a T0-T1 link."""

    tier: Tier
    plane: int
    lower: Port
    upper: Port

    @property
    def name(self) -> str:
        return f"{self.lower.node}:{self.upper.node}"


@dataclass(frozen=True, slots=True)
class Topology:
    """Built by `build`. Lists are in creation order: NIC-T0 links of every plane, then T0-T1 links of every plane."""

    spec: TopologySpec
    hosts: tuple[str, ...]
    switches: tuple[str, ...]
    links: tuple[Link, ...]
    links_of: Mapping[str, tuple[Link, ...]] = field(repr=False, compare=False)  # by node

    def group_of(self, host: int) -> int:
        return host // self.spec.hosts_per_t0

    def link(self, end: str, other: str) -> Link:
        """The link between two nodes, whichever is named first. KeyError when there is none."""
        for link in min(self.links_of.get(end, ()), self.links_of.get(other, ()), key=len):
            if {link.lower.node, link.upper.node} == {end, other}:
                return link
        raise KeyError(f"{end}:{other}")

    def has_link(self, end: str, other: str) -> bool:
        try:
            return self.link(end, other) is not None
        except KeyError:
            return False

    def ports_of(self, node: str) -> tuple[tuple[Port, Link], ...]:
        """The node's ports in number order, each with its link."""
        mine = self.links_of.get(node, ())
        ends = ((port, link) for link in mine for port in (link.lower, link.upper) if port.node == node)
        return tuple(sorted(ends, key=lambda end: end[0].number))


FIRST_IFINDEX = 10  # leaves room for lo and a private device in each namespace


def build(spec: TopologySpec) -> Topology:
    """Lay out every node, port and link of `spec`."""
    hosts = tuple(host_name(h) for h in range(spec.hosts))
    t0s = tuple(t0_name(p, g) for p in range(spec.planes) for g in range(spec.t0_groups))
    t1s = tuple(t1_name(p, j) for p in range(spec.planes) for j in range(spec.t1_per_plane))
    next_port = dict.fromkeys((*hosts, *t0s, *t1s), 0)
    links: list[Link] = []

    def connect(tier: Tier, plane: int, lower: str, upper: str) -> None:
        first = FIRST_IFINDEX + 2 * len(links)
        ends = (Port(lower, next_port[lower], first), Port(upper, next_port[upper], first + 1))
        next_port[lower] += 1
        next_port[upper] += 1
        links.append(Link(tier, plane, *ends))

    for plane in range(spec.planes):
        for host in range(spec.hosts):
            connect(Tier.NIC_T0, plane, host_name(host), t0_name(plane, host // spec.hosts_per_t0))
    for plane in range(spec.planes):
        for group in range(spec.t0_groups):
            for index in range(spec.t1_per_plane):
                connect(Tier.T0_T1, plane, t0_name(plane, group), t1_name(plane, index))
    links_of: dict[str, list[Link]] = {node: [] for node in next_port}
    for link in links:
        links_of[link.lower.node].append(link)
        links_of[link.upper.node].append(link)
    of_node = {node: tuple(mine) for node, mine in links_of.items()}
    return Topology(spec, hosts, (*t0s, *t1s), tuple(links), of_node)


def names_too_long(topology: Topology) -> list[str]:
    """Every interface name the kernel would refuse (IFNAMSIZ), before anything is created (pitfall H-02)."""
    ports = (port for link in topology.links for port in (link.lower, link.upper))
    return [port.name for port in ports if len(port.name) > INTERFACE_NAME_MAX]
