"""SRv6 uSID routes, neighbours and addresses as netlink messages, and what the kernel holds, read back.

Written by hand because pyroute2 0.9.7 drops the NEXT-C-SID flavor in silence (pitfall H-10) and takes most of the bring-up of a
large fabric. `read` recognises a uN only with its flavor, so a plain End can never pass for one; tests read with iproute2.
"""

from __future__ import annotations

import socket
import struct
from ipaddress import IPv6Address, IPv6Network

from testbed.errors import KernelError
from testbed.fabric.netlink import (
    NLM_F_ACK,
    NLM_F_CREATE,
    NLM_F_REPLACE,
    NLM_F_REQUEST,
    Netlink,
    attribute,
    attributes,
    message,
)
from testbed.fabric.plan import Address, Flavor, Neighbour, Route, RouteKind

RTM_NEWADDR, RTM_GETADDR = 20, 22
RTM_NEWROUTE, RTM_DELROUTE, RTM_GETROUTE = 24, 25, 26
RTM_NEWNEIGH, RTM_DELNEIGH, RTM_GETNEIGH = 28, 29, 30
_WRITE = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_REPLACE
_MAIN_TABLE = 254
_PROTO_KERNEL, _PROTO_STATIC = 2, 4
_RTN_UNICAST, _RTN_BLACKHOLE = 1, 6
_RTA_DST, _RTA_OIF, _RTA_GATEWAY, _RTA_TABLE, _RTA_ENCAP_TYPE, _RTA_ENCAP = 1, 4, 5, 15, 21, 22
_ENCAP_SEG6_LOCAL = 7
_SEG6_LOCAL_ACTION, _SEG6_LOCAL_FLAVORS = 1, 11
_ACTION_END = 1
_FLV_OPERATION, _FLV_BLOCK_BITS, _FLV_NODE_FUNCTION_BITS = 1, 2, 3
_NEXT_CSID = 1 << 4
_NUD_PERMANENT = 0x80
_NDA_DST, _NDA_LLADDR = 1, 2
_IFA_ADDRESS, _IFA_LOCAL = 1, 2
_NESTED = 0x8000
_IFA_F_NODAD, _IFA_F_TENTATIVE, _IFA_F_DADFAILED = 0x02, 0x40, 0x08
_RTNH_DEAD, _RTNH_LINKDOWN = 1, 16


def route_message(route: Route, *, delete: bool = False) -> tuple[str, bytes]:
    """(operation, netlink message) that installs or deletes `route`."""
    kind = _RTN_BLACKHOLE if route.kind is RouteKind.BLACKHOLE else _RTN_UNICAST
    length = route.prefix.prefixlen
    body = struct.pack("=BBBBBBBBI", socket.AF_INET6, length, 0, 0, _MAIN_TABLE, _PROTO_STATIC, 0, kind, 0)
    body += attribute(_RTA_DST, route.prefix.network_address.packed)
    if route.device:
        body += attribute(_RTA_OIF, struct.pack("=I", route.device))
    if route.gateway is not None:
        body += attribute(_RTA_GATEWAY, route.gateway.packed)
    if route.kind is RouteKind.UN:
        body += _un(route)
    if delete:
        return f"route del {route}", message(RTM_DELROUTE, NLM_F_REQUEST | NLM_F_ACK, body)
    return f"route add {route}", message(RTM_NEWROUTE, _WRITE, body)


def _un(route: Route) -> bytes:
    """The encapsulation of a uN. ValueError without its flavor: the kernel would take it for a plain End."""
    if route.flavor is None:
        raise ValueError(f"{route}: a uN without its flavor would be a plain End")
    flavors = attribute(_FLV_OPERATION, struct.pack("=I", _NEXT_CSID))
    flavors += attribute(_FLV_BLOCK_BITS, bytes([route.flavor.block_bits]))
    flavors += attribute(_FLV_NODE_FUNCTION_BITS, bytes([route.flavor.node_function_bits]))
    local = attribute(_SEG6_LOCAL_ACTION, struct.pack("=I", _ACTION_END))
    local += attribute(_SEG6_LOCAL_FLAVORS | _NESTED, flavors)
    return attribute(_RTA_ENCAP_TYPE, struct.pack("=H", _ENCAP_SEG6_LOCAL)) + attribute(_RTA_ENCAP | _NESTED, local)


def neighbour_message(neighbour: Neighbour, *, delete: bool = False) -> tuple[str, bytes]:
    """(operation, message) that sets or deletes a permanent neighbour: never resolved, never counted by the table (H-09)."""
    body = struct.pack("=BxxxiHBB", socket.AF_INET6, neighbour.device, _NUD_PERMANENT, 0, 0)
    body += attribute(_NDA_DST, neighbour.address.packed) + attribute(_NDA_LLADDR, neighbour.mac)
    if delete:
        return f"del {neighbour}", message(RTM_DELNEIGH, NLM_F_REQUEST | NLM_F_ACK, body)
    return f"add {neighbour}", message(RTM_NEWNEIGH, _WRITE, body)


def address_message(address: Address) -> tuple[str, bytes]:
    """(operation, message) that adds a /128, usable at once: no duplicate address detection (pitfall H-07)."""
    body = struct.pack("=BBBBi", socket.AF_INET6, 128, _IFA_F_NODAD, 0, address.device)
    body += attribute(_IFA_ADDRESS, address.address.packed) + attribute(_IFA_LOCAL, address.address.packed)
    return f"add {address}", message(RTM_NEWADDR, _WRITE, body)


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
        route = _route(kind, length, values)
        found.add(route)
        if flags & (_RTNH_DEAD | _RTNH_LINKDOWN):
            dead.add(route)
    return found, dead


def _route(kind: int, length: int, values: dict[int, memoryview]) -> Route:
    destination = bytes(values[_RTA_DST]) if _RTA_DST in values else bytes(16)
    prefix = IPv6Network((destination, length))
    if kind == _RTN_BLACKHOLE:
        return Route(prefix, RouteKind.BLACKHOLE, 0)
    device = struct.unpack("=I", values[_RTA_OIF])[0] if _RTA_OIF in values else 0
    gateway = IPv6Address(bytes(values[_RTA_GATEWAY])) if _RTA_GATEWAY in values else None
    if _RTA_ENCAP not in values:
        return Route(prefix, RouteKind.UNICAST, device, gateway)
    return Route(prefix, RouteKind.UN, device, gateway, _flavor(values))


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
