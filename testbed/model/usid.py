"""The uSID plan (F3216, RFC 9800 NEXT-C-SID): who owns which SID, and every switch's static table.

Block of plane p: 5f00:<p>::/32 (5f00::/16 is the IANA SRv6 SID block, RFC 9602). Each uSID is 16 bits:
T0 i = 0x1000+i, T1 j = 0x2000+j, host h = 0x4000+h. A switch matches its own /48, shifts by 16 bits, looks up again.
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv6Address, IPv6Network

from testbed.model.topology import Tier, Topology

BLOCK_PREFIX = 0x5F00
BLOCK_BITS = 32
USID_BITS = 16
SLOTS = (128 - BLOCK_BITS) // USID_BITS
T0_BASE = 0x1000
T1_BASE = 0x2000
HOST_BASE = 0x4000
SID_SPACE = IPv6Network("5f00::/16")
INNER_PREFIX = IPv6Address("fd00::")  # a NIC's real address: fd00::1:<host>


def compose(plane: int, *usids: int) -> IPv6Address:
    """The destination address naming `usids` in order of travel. At most six fit."""
    if len(usids) > SLOTS:
        raise ValueError(f"{len(usids)} uSIDs do not fit in {SLOTS} slots")
    value = (BLOCK_PREFIX << 16 | plane) << (128 - BLOCK_BITS)
    for slot, usid in enumerate(usids):
        value |= usid << (128 - BLOCK_BITS - USID_BITS * (slot + 1))
    return IPv6Address(value)


def locator(plane: int, usid: int) -> IPv6Network:
    """The /48 that a node owning `usid` matches."""
    return IPv6Network((compose(plane, usid), BLOCK_BITS + USID_BITS))


def host_sid(plane: int, host: int) -> IPv6Address:
    """The address that a fully shifted DA ends as: host h's own SID in plane p."""
    return compose(plane, HOST_BASE + host)


def inner_address(host: int) -> IPv6Address:
    """The NIC's real address, the inner destination (PAPER 2.2)."""
    return IPv6Address(int(INNER_PREFIX) + 0x10000 + host)


def shift(address: IPv6Address) -> IPv6Address:
    """What one uN does to the DA: drop the first uSID, move the rest up, zero-fill the tail."""
    value = int(address)
    block = value >> (128 - BLOCK_BITS) << (128 - BLOCK_BITS)
    rest = value & ((1 << (128 - BLOCK_BITS)) - 1)
    return IPv6Address(block | (rest << USID_BITS & ((1 << (128 - BLOCK_BITS)) - 1)))


def usid_of(node: str) -> int:
    """The uSID a node owns in each plane it is part of."""
    if node.startswith("h"):
        return HOST_BASE + int(node[1:])
    tier, index = node.split("t", 1)[1].split("-")
    return (T0_BASE if tier == "0" else T1_BASE) + int(index)


def plane_of(switch: str) -> int:
    return int(switch[1:].split("t", 1)[0])


def decode(address: IPv6Address) -> tuple[int, tuple[str, ...]]:
    """(plane, node names in order of travel) of a DA. ValueError when it is not of this plan."""
    value = int(address)
    if value >> 112 != BLOCK_PREFIX:
        raise ValueError(f"{address} is outside the SID space {SID_SPACE}")
    plane = value >> 96 & 0xFFFF
    names: list[str] = []
    for slot in range(SLOTS):
        usid = value >> (128 - BLOCK_BITS - USID_BITS * (slot + 1)) & 0xFFFF
        if usid == 0:
            break
        names.append(_name_of(plane, usid))
    return plane, tuple(names)


def _name_of(plane: int, usid: int) -> str:
    kinds = {T0_BASE: f"p{plane}t0-", T1_BASE: f"p{plane}t1-", HOST_BASE: "h"}
    base = usid & 0xF000
    if base not in kinds:
        raise ValueError(f"uSID {usid:#06x} names no node of this plan")
    return f"{kinds[base]}{usid - base}"


@dataclass(frozen=True, slots=True)
class NeighbourRoute:
    """`prefix` leaves through `port` towards `neighbour`."""

    prefix: IPv6Network
    port: str
    neighbour: str


@dataclass(frozen=True, slots=True)
class SwitchTable:
    """All a switch ever knows: its own uN, one /48 per neighbour, a blackhole for the rest of the SID space."""

    switch: str
    own: IPv6Network
    neighbours: tuple[NeighbourRoute, ...]
    blackhole: IPv6Network = SID_SPACE


@dataclass(frozen=True, slots=True)
class HostTable:
    """A host's addresses (its SID on each plane's port, its real address) and one /32 per plane, out of that port."""

    host: str
    inner: IPv6Address
    sids: tuple[tuple[str, IPv6Address], ...]  # (port, SID)
    planes: tuple[NeighbourRoute, ...]


def switch_tables(topology: Topology) -> dict[str, SwitchTable]:
    """Every switch's static table, by name."""
    tables: dict[str, SwitchTable] = {}
    neighbours: dict[str, list[NeighbourRoute]] = {switch: [] for switch in topology.switches}
    for link in topology.links:
        ends = ((link.lower, link.upper), (link.upper, link.lower))
        for here, there in ends:
            if here.node in neighbours:
                prefix = locator(link.plane, usid_of(there.node))
                neighbours[here.node].append(NeighbourRoute(prefix, here.name, there.node))
    for switch, routes in neighbours.items():
        tables[switch] = SwitchTable(switch, locator(plane_of(switch), usid_of(switch)), tuple(routes))
    return tables


def host_tables(topology: Topology) -> dict[str, HostTable]:
    """Every host's addresses and plane routes, by name."""
    nic_links = [link for link in topology.links if link.tier is Tier.NIC_T0]
    tables: dict[str, HostTable] = {}
    for index, host in enumerate(topology.hosts):
        links = [link for link in nic_links if link.lower.node == host]
        sids = tuple((link.lower.name, host_sid(link.plane, index)) for link in links)
        planes = tuple(
            NeighbourRoute(IPv6Network((compose(link.plane), BLOCK_BITS)), link.lower.name, link.upper.node) for link in links
        )
        tables[host] = HostTable(host, inner_address(index), sids, planes)
    return tables
