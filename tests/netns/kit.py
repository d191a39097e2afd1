"""Small fabrics and raw packets for the tests in this folder."""

from __future__ import annotations

import mmap
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from testbed.fabric.bpf.loader import Array
from testbed.fabric.network import Fabric
from testbed.fabric.ports import PortCounters
from testbed.fabric.queues import full_frame
from testbed.model.codepoints import Dscp, Ecn, traffic_class
from testbed.model.paths import Path as FabricPath
from testbed.model.paths import paths
from testbed.model.scenario import LinkSpec, RoutingSpec, SwitchSpec, TopologySpec
from testbed.model.topology import build

MTU = 4500
OVERHEAD = 24
LATEST_S = 10.0  # a packet that has not come by then is lost, however slow the machine
PROMPT_NS = 1_000_000  # a reading of all counters takes some tens of microseconds
OUTER = 40  # bytes of the outer IPv6 header
FRAME_EXTRA = OUTER + 14 + OVERHEAD  # charged bytes beyond a raw socket's payload
SO_SNDBUFFORCE, SO_RCVBUFFORCE = 32, 33


def links(rate_bps: int, delay_ns: tuple[int, ...], fabric_rate_bps: int | None = None) -> LinkSpec:
    return LinkSpec(rate_bps, fabric_rate_bps or rate_bps, delay_ns, MTU, OVERHEAD)


def switch(*, trimming: bool = False, ecn: bool = False) -> SwitchSpec:
    frame = full_frame(links(1, (0,)))
    return SwitchSpec(trimming, ecn, 2 * frame, 6 * frame, 8 * frame, 12 * frame, 128)


@contextmanager
def fabric(
    shape: tuple[int, int, int, int] = (1, 2, 2, 2),
    rate_bps: int = 100_000_000,
    fabric_rate_bps: int | None = None,
    delay_ns: tuple[int, ...] | None = None,
    spec: SwitchSpec | None = None,
    routing: RoutingSpec | None = None,
) -> Iterator[Fabric]:
    """A fabric that is up. `shape`: planes, T0 groups, T1s per plane, hosts per T0."""
    topology = build(TopologySpec(*shape))
    wire = links(rate_bps, delay_ns or (0,) * shape[0], fabric_rate_bps)
    net = Fabric(topology, wire, spec or switch(), Path("/run"), routing or RoutingSpec())
    net.up()
    try:
        yield net
    finally:
        net.down()


@contextmanager
def raw(net: Fabric, node: str) -> Iterator[socket.socket]:
    """A protocol-41 socket in a node, with what the receiver needs to know switched on."""
    with net.namespaces.inside(node):
        found = socket.socket(socket.AF_INET6, socket.SOCK_RAW, 41)
    with found:
        found.settimeout(LATEST_S)
        found.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 1 << 24)
        found.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, 1 << 24)
        found.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVTCLASS, 1)
        found.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVPKTINFO, 1)
        yield found


def send(source: socket.socket, path: FabricPath, payload: bytes, dscp: Dscp = Dscp.NO_TRIM, ecn: Ecn = Ecn.NOT_ECT) -> None:
    control = [(socket.IPPROTO_IPV6, socket.IPV6_TCLASS, struct.pack("=i", traffic_class(dscp, ecn)))]
    source.sendmsg([payload], control, 0, (str(path.address), 0))


def receive(target: socket.socket) -> tuple[bytes, Dscp, Ecn]:
    """One packet's payload and its outer traffic class."""
    data, ancillary, _, _ = target.recvmsg(65536, 256)
    octet = next(struct.unpack("=i", value)[0] for _, kind, value in ancillary if kind == socket.IPV6_TCLASS)
    return data, Dscp(octet >> 2), Ecn(octet & 3)


def receive_all(
    target: socket.socket, expected: int | Callable[[], int], quiet_s: float = 0.3
) -> list[tuple[bytes, Dscp, Ecn]]:
    """As many packets as are expected, however late they come, and what else comes until none has come for `quiet_s`.

    `expected` may be what accounts say at the moment: what was sent less what is known to be lost.
    """
    found: list[tuple[bytes, Dscp, Ecn]] = []
    last = time.monotonic()
    target.settimeout(quiet_s)
    try:
        while True:
            try:
                found.append(receive(target))
                last = time.monotonic()
            except TimeoutError:
                enough = len(found) >= (expected() if callable(expected) else expected)
                if enough or time.monotonic() > last + LATEST_S:
                    return found
    finally:
        target.settimeout(LATEST_S)


def wait_until(true: Callable[[], bool]) -> bool:
    """Whether it came true, for what the kernel does in its own time; False once that can only be never."""
    deadline = time.monotonic() + LATEST_S
    while not (found := true()) and time.monotonic() < deadline:
        time.sleep(0.002)
    return found


class Tap:
    """What arrives at a node's ports, copied as it arrives (a packet ring).

    A plain packet socket would not do: it keeps a reference, and the next switch shifts the address in the same memory.
    """

    BLOCK, FRAME, FRAMES = 1 << 16, 1 << 13, 64

    def __init__(self, net: Fabric, node: str) -> None:
        with net.namespaces.inside(node):
            self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))  # ETH_P_ALL: before IPv6 sees it
        request = struct.pack("=IIII", self.BLOCK, self.FRAME * self.FRAMES // self.BLOCK, self.FRAME, self.FRAMES)
        self._socket.setsockopt(263, 5, request)  # SOL_PACKET, PACKET_RX_RING
        self._ring = mmap.mmap(self._socket.fileno(), self.FRAME * self.FRAMES)

    def frames(self) -> list[bytes]:
        """Every frame that came in (not what the node sent), oldest first, Ethernet header included."""
        found = []
        for start in range(0, len(self._ring), self.FRAME):
            status, _length, kept, mac = struct.unpack_from("=QIIH", self._ring, start)
            packet_type = self._ring[start + 32 + 10]  # of the sockaddr_ll behind the header
            if status & 1 and packet_type != 4:  # TP_STATUS_USER, PACKET_OUTGOING
                found.append(self._ring[start + mac : start + mac + kept])
        return found

    def close(self) -> None:
        self._ring.close()
        self._socket.close()


def path(net: Fabric, source: int, target: int, index: int = 0) -> FabricPath:
    return paths(net.topology, source, target)[index]


def settings(net: Fabric) -> Array:
    """The port program's own memory, to set a port as no scenario would."""
    assert net._program is not None
    return net._program.settings


def ifindex_of(net: Fabric, hop: tuple[str, str]) -> int:
    """Of the port from a node to its neighbour."""
    return next(info.ifindex for info in net.ports if (info.node, info.neighbour) == hop)


def program_counter(net: Fabric, hop: tuple[str, str], member: str) -> int:
    """One member of `struct port_counters`, as the program keeps it."""
    assert net._program is not None
    return net._program.counters.get(ifindex_of(net, hop), member)


def prompt_counters(net: Fabric) -> dict[tuple[str, str], PortCounters]:
    """Counters as they were at `t_ns`: a reading that the machine held up is made again."""
    while True:
        found = counters(net)
        if time.monotonic_ns() - next(iter(found.values())).t_ns < PROMPT_NS:
            return found


def settled_counters(net: Fabric) -> dict[tuple[str, str], PortCounters]:
    """Counters once all that any port has accepted is out at its far end."""
    wait_until(lambda: all(count.packets == count.delivered_packets for count in counters(net).values()))
    return counters(net)


def counters(net: Fabric) -> dict[tuple[str, str], PortCounters]:
    """Counters by (node, neighbour)."""
    values = net.read_ports(time.monotonic_ns())
    return {(info.node, info.neighbour): value for info, value in zip(net.ports, values, strict=True)}
