"""Send one small packet over each of many paths and see where each came out, and over which ports it went.

A probe is what hosts send, only empty: outer IPv6 with the path's uSID list as destination, or the host's own address where
switches choose; inner IPv6 and UDP with a source port of its own, which spreads probes over equal paths.
It travels in the control class. Which switches it crossed is read from the port counters and from the hop limit left.
"""

from __future__ import annotations

import select
import socket
import struct
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv6Address
from itertools import pairwise

from testbed.fabric.namespaces import Namespaces
from testbed.model.codepoints import Dscp, traffic_class
from testbed.model.hashed import ANY_T1
from testbed.model.paths import Path
from testbed.model.topology import host_name
from testbed.model.usid import host_sid, inner_address

HOP_LIMIT = 64
_MAGIC = b"MRC path"
_UDP = 17
_DISCARD = 9  # RFC 863's port
_IPPROTO_IPV6 = 41
_SO_RCVBUFFORCE = 33
_INNER = struct.Struct(">IHBB16s16s")
_PORTS = struct.Struct(">HHHH")  # a UDP header
_BODY = struct.Struct(">8sQ")
_BODY_AT = _INNER.size + _PORTS.size
_FIRST_PORT, _LAST_PORT = 1024, 65535
_BURST_BYTES = 1 << 24


@dataclass(frozen=True, slots=True)
class Route:
    """One path of one host pair: what is probed."""

    source: int
    target: int
    path: Path

    def __str__(self) -> str:
        hops = (host_name(self.source), *self.path.hops, host_name(self.target))
        return " -> ".join(hops)


class Prober:
    """One raw socket per host, each in its host's namespace. Close it: the sockets see every protocol-41 packet."""

    def __init__(self, namespaces: Namespaces, hosts: Sequence[str]) -> None:
        self._sockets: list[socket.socket] = []
        for host in hosts:
            with namespaces.inside(host):
                raw = socket.socket(socket.AF_INET6, socket.SOCK_RAW, _IPPROTO_IPV6)
            raw.setblocking(False)
            raw.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BURST_BYTES)
            raw.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVHOPLIMIT, 1)
            raw.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVPKTINFO, 1)
            raw.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_UNICAST_HOPS, HOP_LIMIT)
            raw.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS, traffic_class(Dscp.CONTROL))
            self._sockets.append(raw)
        self._token = 0

    def close(self) -> None:
        for raw in self._sockets:
            raw.close()

    def probe(self, routes: Sequence[Route], timeout_s: float) -> tuple[set[int], list[str]]:
        """(indices into `routes` whose probe arrived as it should, what was wrong with others that arrived).

        Returns as soon as all have arrived, at the latest after `timeout_s`.
        """
        first = self._token
        self._token += len(routes)
        problems: list[str] = []
        for index, route in enumerate(routes):
            addresses = (inner_address(route.source).packed, inner_address(route.target).packed)
            inner = _INNER.pack(6 << 28, _PORTS.size + _BODY.size, _UDP, 1, *addresses)
            port = _FIRST_PORT + (first + index) % (_LAST_PORT - _FIRST_PORT)
            udp = _PORTS.pack(port, _DISCARD, _PORTS.size + _BODY.size, 0)
            packet = inner + udp + _BODY.pack(_MAGIC, first + index)
            try:
                self._sockets[route.source].sendto(packet, (str(route.path.address), 0))
            except OSError as error:
                problems.append(f"{route}: the host cannot send: {error.strerror}")
        return self._collect(routes, first, timeout_s, problems), problems

    def _collect(self, routes: Sequence[Route], first: int, timeout_s: float, problems: list[str]) -> set[int]:
        arrived: set[int] = set()
        waiting = select.poll()
        by_fd = {raw.fileno(): (host, raw) for host, raw in enumerate(self._sockets)}
        for fd in by_fd:
            waiting.register(fd, select.POLLIN)
        deadline = time.monotonic() + timeout_s
        while len(arrived) < len(routes) and time.monotonic() < deadline:
            for fd, _ in waiting.poll(max(1, 1000 * (deadline - time.monotonic()))):
                host, raw = by_fd[fd]
                for token, hop_limit, destination in _arrivals(raw):
                    index = token - first
                    if 0 <= index < len(routes):
                        arrived.add(index)
                        problems += _judge(routes[index], host, hop_limit, destination)
        return arrived


def _arrivals(raw: socket.socket) -> list[tuple[int, int, IPv6Address]]:
    """(token, hop limit, destination as it arrived) of each probe waiting in `raw`; other packets are passed over."""
    found: list[tuple[int, int, IPv6Address]] = []
    while True:
        try:
            data, ancillary, _, _ = raw.recvmsg(256, 256)
        except BlockingIOError:
            return found
        if len(data) != _BODY_AT + _BODY.size or data[_BODY_AT : _BODY_AT + 8] != _MAGIC:
            continue
        values = {kind: value for _, kind, value in ancillary}
        hop_limit = struct.unpack("=i", values[socket.IPV6_HOPLIMIT])[0]
        destination = IPv6Address(bytes(values[socket.IPV6_PKTINFO][:16]))
        found.append((_BODY.unpack_from(data, _BODY_AT)[1], hop_limit, destination))


def _judge(route: Route, host: int, hop_limit: int, destination: IPv6Address) -> list[str]:
    found: list[str] = []
    if host != route.target:
        found.append(f"{route}: came out at {host_name(host)}")
    if HOP_LIMIT - hop_limit != len(route.path.hops):
        found.append(f"{route}: crossed {HOP_LIMIT - hop_limit} switches instead of {len(route.path.hops)}")
    if destination != host_sid(route.path.plane, route.target):
        found.append(f"{route}: arrived as {destination}, not fully shifted to the host's SID")
    return found


def crossings(routes: Sequence[Route]) -> Counter[tuple[str, str]]:
    """How often each (node, neighbour) port is crossed when every route is probed once; not those that a switch chose."""
    found: Counter[tuple[str, str]] = Counter()
    for route in routes:
        found.update(step for step in steps(route) if not any(node.endswith(ANY_T1) for node in step))
    return found


def steps(route: Route) -> list[tuple[str, str]]:
    """The (node, neighbour) hops of a route in order of travel."""
    names = (host_name(route.source), *route.path.hops, host_name(route.target))
    return list(pairwise(names))
