"""Which T1 the switches' hash gives a 5-tuple: a packet of it is sent over the idle fabric, and the counters say where it went.

Nothing else can say: under a policy that hashes fields, `ip route get` does not predict the path that a forwarded packet takes.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
import time
from collections.abc import Callable

from testbed.errors import KernelError
from testbed.fabric.network import Fabric
from testbed.model.codepoints import Dscp, traffic_class
from testbed.model.paths import ev_of
from testbed.model.scenario import Routing
from testbed.model.topology import Tier, host_name, t0_name
from testbed.model.usid import host_sid, inner_address

_IPPROTO_IPV6, _UDP = 41, 17
_INNER = struct.Struct(">IHBB16s16sHHHH")
_PATIENCE_S = 3.0
_TRIES = 20


class Tracer:
    """Sends from any host; use it while nothing but routing sends. Times are short: a packet takes well under a millisecond."""

    def __init__(self, fabric: Fabric) -> None:
        self._fabric = fabric
        self._sockets: dict[int, socket.socket] = {}
        self._uplinks: dict[str, list[tuple[int, int]]] = {}  # by T0: (place in the counters, T1)
        for place, info in enumerate(fabric.ports):
            if info.tier is Tier.T0_T1 and info.direction == "up":
                self._uplinks.setdefault(info.node, []).append((place, int(info.neighbour.rpartition("-")[2])))

    def close(self) -> None:
        for raw in self._sockets.values():
            raw.close()

    def tunnelled(self, source: int, target: int, plane: int, source_port: int, target_port: int) -> int:
        """The T1 that UDP of these ports takes in `plane`, carried in IPv6 to the target's address there (two groups)."""
        head = _INNER.pack(
            6 << 28, 8, _UDP, 1, inner_address(source).packed, inner_address(target).packed, source_port, target_port, 8, 0
        )
        t0 = t0_name(plane, self._fabric.topology.group_of(source))

        def once() -> int | None:
            before = self._counts(t0)
            self._socket(source).sendto(head, (str(host_sid(plane, target)), 0))
            return self._chosen(t0, before)

        return self._agreed(once, t0, "trace a flow")

    def tcp(self, source: int, target: int, ends: tuple[tuple[str, int], tuple[str, int]]) -> int:
        """The EV of a TCP connection between `ends`, (address, port) each: one that nobody accepts takes its way first."""
        what = f"trace TCP to {ends[1][0]} port {ends[1][1]}"
        return self._agreed(lambda: self._tried(source, target, ends, what), host_name(source), what)

    def _agreed(self, once: Callable[[], int | None], node: str, what: str) -> int:
        """Over static routes the first answer that means something; beside routing that talks (router advertisements do not
        count as control packets) two in a row must be the same.
        """
        last: int | None = None
        for _ in range(_TRIES):
            answer = once()
            if answer is not None and (answer == last or self._fabric.routing.kind is not Routing.BGP):
                return answer
            last = answer
        raise KernelError(node, what, f"no two answers of {_TRIES} agree: other traffic is under way")

    def _tried(self, source: int, target: int, ends: tuple[tuple[str, int], tuple[str, int]], what: str) -> int | None:
        group = self._fabric.topology.group_of(source)
        before = self._fabric.read_ports()
        with self._fabric.namespaces.inside(host_name(source)):
            probe = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
        with probe:
            probe.settimeout(_PATIENCE_S)
            probe.bind(ends[0])
            answer = probe.connect_ex(ends[1])
        if answer != errno.ECONNREFUSED:
            raise KernelError(host_name(source), what, os.strerror(answer))
        after = self._fabric.read_ports()
        crossed = [
            info
            for info, old, new in zip(self._fabric.ports, before, after, strict=True)
            if info.direction == "up" and new.packets - new.control_packets > old.packets - old.control_packets
        ]
        planes = {info.plane for info in crossed if info.node == host_name(source)}
        if group == self._fabric.topology.group_of(target):
            return ev_of(planes.pop(), 0) if len(planes) == 1 else None
        t0s = {t0_name(plane, group) for plane in planes}
        uplinks = {int(info.neighbour.rpartition("-")[2]) for info in crossed if info.node in t0s}
        return ev_of(planes.pop(), uplinks.pop()) if len(planes) == len(uplinks) == 1 else None

    def _socket(self, host: int) -> socket.socket:
        if host not in self._sockets:
            with self._fabric.namespaces.inside(host_name(host)):
                raw = socket.socket(socket.AF_INET6, socket.SOCK_RAW, _IPPROTO_IPV6)
            raw.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS, traffic_class(Dscp.NO_TRIM))
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 0)
            self._sockets[host] = raw
        return self._sockets[host]

    def _counts(self, t0: str) -> dict[int, int]:
        """Data packets accepted so far on the way to each T1; what routing sends is control."""
        counters = self._fabric.read_ports()
        return {t1: counters[place].packets - counters[place].control_packets for place, t1 in self._uplinks[t0]}

    def _chosen(self, t0: str, before: dict[int, int]) -> int | None:
        """None when several uplinks sent something."""
        deadline = time.monotonic() + _PATIENCE_S
        while time.monotonic() < deadline:
            after = self._counts(t0)
            risen = [t1 for t1, count in after.items() if count != before[t1]]
            if risen:
                return risen[0] if len(risen) == 1 else None
        raise KernelError(t0, "trace a flow", f"the packet took no uplink within {_PATIENCE_S:g} s")
