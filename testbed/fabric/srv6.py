"""SRv6 uSID routes, neighbours and addresses: written with pyroute2 messages, read back from raw attributes.

pyroute2 0.9.7 knows `seg6local End` but drops the NEXT-C-SID flavor in silence (pitfall H-10). The message class here adds
it, and `read` recognises a uN only with its flavor, so a plain End can never pass for one.
"""

from __future__ import annotations

import socket
import struct
from ipaddress import IPv6Address, IPv6Network
from typing import Any, ClassVar

from pyroute2.netlink import nla
from pyroute2.netlink.rtnl.ifaddrmsg import ifaddrmsg
from pyroute2.netlink.rtnl.ndmsg import ndmsg
from pyroute2.netlink.rtnl.rtmsg import rtmsg

from testbed.errors import KernelError
from testbed.fabric.netlink import NLM_F_ACK, NLM_F_CREATE, NLM_F_REPLACE, NLM_F_REQUEST, Netlink, attributes
from testbed.fabric.plan import Address, Flavor, Neighbour, Route, RouteKind

RTM_NEWADDR, RTM_GETADDR = 20, 22
RTM_NEWROUTE, RTM_DELROUTE, RTM_GETROUTE = 24, 25, 26
RTM_NEWNEIGH, RTM_DELNEIGH, RTM_GETNEIGH = 28, 29, 30
_WRITE = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_REPLACE
_MAIN_TABLE = 254
_PROTO_KERNEL, _PROTO_STATIC = 2, 4
_RTN_UNICAST, _RTN_BLACKHOLE = 1, 6
_RTA_DST, _RTA_OIF, _RTA_GATEWAY, _RTA_TABLE, _RTA_ENCAP_TYPE, _RTA_ENCAP = 1, 4, 5, 15, 21, 22
_ENCAP_SEG6, _ENCAP_SEG6_LOCAL = 5, 7
_IPTUNNEL = struct.Struct("=iBBBBBBH16s")
_IPTUNNEL_SRH, _ENCAP_RED, _SRH_TYPE = 1, 3, 4
_ACTION_END_DT6, _SEG6_LOCAL_TABLE, _LOCAL_TABLE = 7, 3, 255
_SEG6_LOCAL_ACTION, _SEG6_LOCAL_FLAVORS = 1, 11
_ACTION_END = 1
_FLV_OPERATION, _FLV_BLOCK_BITS, _FLV_NODE_FUNCTION_BITS = 1, 2, 3
_NEXT_CSID = 1 << 4
_NUD_PERMANENT = 0x80
_IFA_F_NODAD, _IFA_F_TENTATIVE, _IFA_F_DADFAILED = 0x02, 0x40, 0x08
_RTNH_DEAD, _RTNH_LINKDOWN = 1, 16
_RTA_PRIORITY, _RTA_MULTIPATH = 6, 9
_NEXT_HOP = struct.Struct("=HBBi")  # struct rtnexthop
_DAEMONS = frozenset((11, 186))  # zebra's own routes and bgpd's (linux/rtnetlink.h): theirs to keep, not the plan's


class _Seg6Local(rtmsg.seg6local_encap_info):  # type: ignore[misc]
    """pyroute2's attribute table with the two attributes that it lacks, in the kernel's order (linux/seg6_local.h)."""

    __slots__ = ()
    nla_map = (
        *rtmsg.seg6local_encap_info.nla_map,
        ("SEG6_LOCAL_COUNTERS", "hex"),
        ("SEG6_LOCAL_FLAVORS", "flavors"),
    )

    class flavors(nla):  # type: ignore[misc] # noqa: N801 - pyroute2 finds nested attributes by this name
        __slots__ = ()
        nla_map = (
            ("SEG6_LOCAL_FLV_UNSPEC", "none"),
            ("SEG6_LOCAL_FLV_OPERATION", "uint32"),
            ("SEG6_LOCAL_FLV_LCBLOCK_BITS", "uint8"),
            ("SEG6_LOCAL_FLV_LCNODE_FN_BITS", "uint8"),
        )


class _Seg6(nla):  # type: ignore[misc]
    """pyroute2 turns `encap.red` into `encap`: here the kernel's struct goes in as it is (linux/seg6_iptunnel.h)."""

    __slots__ = ()
    nla_map = (("SEG6_IPTUNNEL_UNSPEC", "none"), ("SEG6_IPTUNNEL_SRH", "cdata"))


class _Route(rtmsg):  # type: ignore[misc]
    __slots__ = ()
    encaps: ClassVar[dict[int, Any]] = {**rtmsg.encaps, _ENCAP_SEG6: _Seg6, _ENCAP_SEG6_LOCAL: _Seg6Local}


def _encode(message: Any, kind: int, flags: int) -> bytes:
    message["header"] = {"type": kind, "flags": flags, "sequence_number": 0, "pid": 0}
    message.encode()
    return bytes(message.data)


def route_message(route: Route, *, delete: bool = False) -> tuple[str, bytes]:
    """(operation, netlink message) that installs or deletes `route`."""
    message = _Route()
    message["family"] = socket.AF_INET6
    message["dst_len"] = route.prefix.prefixlen
    message["table"] = _MAIN_TABLE
    message["proto"] = _PROTO_STATIC
    message["type"] = _RTN_BLACKHOLE if route.kind is RouteKind.BLACKHOLE else _RTN_UNICAST
    attrs: list[tuple[str, Any]] = [("RTA_DST", str(route.prefix.network_address))]
    if route.device:
        attrs.append(("RTA_OIF", route.device))
    if route.gateway is not None:
        attrs.append(("RTA_GATEWAY", str(route.gateway)))
    if route.kind is RouteKind.WRAP:
        attrs.append(("RTA_PRIORITY", route.metric))
    if route.kind is RouteKind.EQUAL:
        attrs.append(("RTA_MULTIPATH", [_hop(*hop) for hop in route.hops]))
    if route.kind is RouteKind.WRAP and route.segment is not None:
        # struct seg6_iptunnel_encap: mode, then an SRH of one segment, which this mode leaves out of the packet
        srh = _IPTUNNEL.pack(_ENCAP_RED, 0, 2, _SRH_TYPE, 0, 0, 0, 0, route.segment.packed)
        attrs += [("RTA_ENCAP_TYPE", _ENCAP_SEG6), ("RTA_ENCAP", {"attrs": [("SEG6_IPTUNNEL_SRH", srh)]})]
    if route.kind is RouteKind.UNWRAP:
        local = [("SEG6_LOCAL_ACTION", {"value": "End.DT6"}), ("SEG6_LOCAL_TABLE", {"value": _LOCAL_TABLE})]
        attrs += [("RTA_ENCAP_TYPE", _ENCAP_SEG6_LOCAL), ("RTA_ENCAP", {"attrs": local})]
    if route.kind is RouteKind.UN:
        if route.flavor is None:
            raise ValueError(f"{route}: a uN without its flavor would be a plain End")
        flavors = [
            ("SEG6_LOCAL_FLV_OPERATION", _NEXT_CSID),
            ("SEG6_LOCAL_FLV_LCBLOCK_BITS", route.flavor.block_bits),
            ("SEG6_LOCAL_FLV_LCNODE_FN_BITS", route.flavor.node_function_bits),
        ]
        local = [("SEG6_LOCAL_ACTION", {"value": "End"}), ("SEG6_LOCAL_FLAVORS", {"attrs": flavors})]
        attrs += [("RTA_ENCAP_TYPE", _ENCAP_SEG6_LOCAL), ("RTA_ENCAP", {"attrs": local})]
    message["attrs"] = attrs
    if delete:
        return f"route del {route}", _encode(message, RTM_DELROUTE, NLM_F_REQUEST | NLM_F_ACK)
    return f"route add {route}", _encode(message, RTM_NEWROUTE, _WRITE)


def _hop(device: int, gateway: IPv6Address) -> dict[str, Any]:
    """One next hop of weight 1 (struct rtnexthop counts weights from 0)."""
    return {"oif": device, "hops": 0, "attrs": [("RTA_GATEWAY", str(gateway))]}


def neighbour_message(neighbour: Neighbour, *, delete: bool = False) -> tuple[str, bytes]:
    """(operation, message) that sets or deletes a permanent neighbour: never resolved, never counted by the table (H-09)."""
    message = ndmsg()
    message["family"] = socket.AF_INET6
    message["ifindex"] = neighbour.device
    message["state"] = _NUD_PERMANENT
    message["attrs"] = [("NDA_DST", str(neighbour.address)), ("NDA_LLADDR", neighbour.mac.hex(":"))]
    if delete:
        return f"del {neighbour}", _encode(message, RTM_DELNEIGH, NLM_F_REQUEST | NLM_F_ACK)
    return f"add {neighbour}", _encode(message, RTM_NEWNEIGH, _WRITE)


def address_message(address: Address) -> tuple[str, bytes]:
    """(operation, message) for a /128 that is usable at once: no duplicate address detection (pitfall H-07)."""
    message = ifaddrmsg()
    message["family"] = socket.AF_INET6
    message["prefixlen"] = 64 if address.address.is_link_local else 128  # a neighbour's is to be on the link
    message["flags"] = _IFA_F_NODAD
    message["index"] = address.device
    message["attrs"] = [("IFA_ADDRESS", str(address.address)), ("IFA_LOCAL", str(address.address))]
    return f"add {address}", _encode(message, RTM_NEWADDR, _WRITE)


def read_routes(link: Netlink) -> tuple[set[Route], set[Route]]:
    """(routes of the main table that are not the kernel's own, those among them marked dead or linkdown)."""
    request = struct.pack("=BBBBBBBBI", socket.AF_INET6, 0, 0, 0, 0, 0, 0, 0, 0)
    found: set[Route] = set()
    dead: set[Route] = set()
    for body in link.dump(RTM_GETROUTE, request, "read routes"):
        _family, length, _, _, _table, proto, _scope, kind, flags = struct.unpack_from("=BBBBBBBBI", body)
        values = attributes(body, 12)
        if proto == _PROTO_KERNEL or struct.unpack("=I", values[_RTA_TABLE])[0] != _MAIN_TABLE:
            continue
        if proto in _DAEMONS:
            continue
        route = _route(kind, length, values)
        found.add(route)
        if (flags | _hop_flags(values)) & (_RTNH_DEAD | _RTNH_LINKDOWN):
            dead.add(route)
    return found, dead


def _route(kind: int, length: int, values: dict[int, memoryview]) -> Route:
    destination = bytes(values[_RTA_DST]) if _RTA_DST in values else bytes(16)
    prefix = IPv6Network((destination, length))
    if kind == _RTN_BLACKHOLE:
        return Route(prefix, RouteKind.BLACKHOLE, 0)
    if _RTA_MULTIPATH in values:
        return Route(prefix, RouteKind.EQUAL, 0, hops=tuple(sorted((hop[0], hop[1]) for hop in _hops(values))))
    device = struct.unpack("=I", values[_RTA_OIF])[0] if _RTA_OIF in values else 0
    gateway = IPv6Address(bytes(values[_RTA_GATEWAY])) if _RTA_GATEWAY in values else None
    if _RTA_ENCAP not in values:
        return Route(prefix, RouteKind.UNICAST, device, gateway)
    if struct.unpack_from("=H", values[_RTA_ENCAP_TYPE])[0] == _ENCAP_SEG6:
        metric = struct.unpack("=I", values[_RTA_PRIORITY])[0]
        return Route(prefix, RouteKind.WRAP, device, gateway, segment=_segment(values), metric=metric)
    local = attributes(values[_RTA_ENCAP])
    if struct.unpack("=I", local[_SEG6_LOCAL_ACTION])[0] == _ACTION_END_DT6:
        table = struct.unpack("=I", local[_SEG6_LOCAL_TABLE])[0]
        return Route(prefix, RouteKind.UNWRAP if table == _LOCAL_TABLE else RouteKind.UNICAST, device, gateway)
    return Route(prefix, RouteKind.UN, device, gateway, _flavor(values))


def _segment(values: dict[int, memoryview]) -> IPv6Address | None:
    """The one segment of an `encap.red`; None for any other mode or number of segments."""
    data = bytes(attributes(values[_RTA_ENCAP])[_IPTUNNEL_SRH])
    if len(data) != _IPTUNNEL.size:
        return None
    mode, *_, segment = _IPTUNNEL.unpack(data)
    return IPv6Address(segment) if mode == _ENCAP_RED else None


def _hops(values: dict[int, memoryview]) -> list[tuple[int, IPv6Address, int]]:
    """(device, gateway, flags) of each next hop. ValueError for weights other than 1: no plan has any."""
    data = values[_RTA_MULTIPATH]
    found = []
    offset = 0
    while offset + _NEXT_HOP.size <= len(data):
        length, flags, weight, device = _NEXT_HOP.unpack_from(data, offset)
        inside = attributes(data[: offset + length], offset + _NEXT_HOP.size)
        if weight:
            raise ValueError(f"a next hop of weight {weight + 1} on #{device}")
        found.append((device, IPv6Address(bytes(inside[_RTA_GATEWAY])), flags))
        offset += (length + 3) & ~3
    return found


def ways_of(length: int, values: dict[int, memoryview]) -> tuple[IPv6Network, int]:
    """(prefix, number of next hops) of a route's attributes."""
    prefix = IPv6Network((bytes(values[_RTA_DST]) if _RTA_DST in values else bytes(16), length))
    return prefix, len(_hops(values)) if _RTA_MULTIPATH in values else 1


def _hop_flags(values: dict[int, memoryview]) -> int:
    flags = 0
    for _, _, own in _hops(values) if _RTA_MULTIPATH in values else ():
        flags |= own
    return flags


def _flavor(values: dict[int, memoryview]) -> Flavor | None:
    """The NEXT-C-SID flavor of an `End`; None for any other encapsulation, action or set of flavors."""
    if struct.unpack_from("=H", values[_RTA_ENCAP_TYPE])[0] != _ENCAP_SEG6_LOCAL:
        return None
    local = attributes(values[_RTA_ENCAP])
    if struct.unpack("=I", local[_SEG6_LOCAL_ACTION])[0] != _ACTION_END or _SEG6_LOCAL_FLAVORS not in local:
        return None
    flavors = attributes(local[_SEG6_LOCAL_FLAVORS])
    if struct.unpack("=I", flavors[_FLV_OPERATION])[0] != _NEXT_CSID:
        return None
    return Flavor(flavors[_FLV_BLOCK_BITS][0], flavors[_FLV_NODE_FUNCTION_BITS][0])


def read_neighbours(link: Netlink) -> set[Neighbour]:
    """Every permanent IPv6 neighbour."""
    found: set[Neighbour] = set()
    for body in link.dump(RTM_GETNEIGH, struct.pack("=BxxxiHBB", socket.AF_INET6, 0, 0, 0, 0), "read neighbours"):
        _family, device, state, _flags, _kind = struct.unpack_from("=BxxxiHBB", body)
        if state != _NUD_PERMANENT:
            continue
        values = attributes(body, 12)
        found.add(Neighbour(IPv6Address(bytes(values[1])), device, bytes(values[2])))
    return found


def read_addresses(link: Netlink, node: str) -> set[Address]:
    """Every IPv6 address but ::1. A tentative or failed one raises KernelError: it could not be bound."""
    found: set[Address] = set()
    for body in link.dump(RTM_GETADDR, struct.pack("=BBBBi", socket.AF_INET6, 0, 0, 0, 0), "read addresses"):
        _family, _length, flags, _scope, device = struct.unpack_from("=BBBBi", body)
        address = IPv6Address(bytes(attributes(body, 8)[1]))
        if address.is_loopback:
            continue
        if flags & (_IFA_F_TENTATIVE | _IFA_F_DADFAILED):
            raise KernelError(node, f"address {address}", "still tentative or failed duplicate address detection")
        found.add(Address(address, device))
    return found
