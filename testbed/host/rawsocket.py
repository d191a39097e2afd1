"""The wire: one raw IPv6 socket per host that sends and receives protocol 41, IPv6 in IPv6 (DESIGN section 2).

The kernel builds the outer header: destination = the uSID list, flow label from the destination tuple, traffic class
from a control message. What a packet carries from the inner IPv6 header on comes from and goes to the transport.
A packet the kernel refuses is a packet the NIC lost: it is counted, never raised, for the transport recovers from it.
"""

from __future__ import annotations

import errno
import socket
import struct
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from testbed.host.receiver import BatchReceiver, Take

IPPROTO_IPV6_IN_IPV6 = 41
IPV6_FLOWINFO_SEND = 33  # linux/in6.h; not in Python's socket module
IPV6_MTU_DISCOVER = 23
IPV6_PMTUDISC_PROBE = 3
SO_SNDBUFFORCE = 32  # asm-generic/socket.h: like SO_SNDBUF, but not limited by net.core.wmem_max; needs CAP_NET_ADMIN
SO_RCVBUFFORCE = 33
SO_MEMINFO = 55  # asm-generic/socket.h
_MEMINFO = struct.Struct("9I")
_MEMINFO_DROPS = 8  # linux/sock_diag.h: SK_MEMINFO_DROPS

# A frame of 4 KiB costs about 9 KB of socket memory: 4 MiB is some 450 frames, 0.7 s of four 5 Mbit/s planes.
BUFFER_BYTES = 4 * 1024 * 1024

_FULL = (errno.ENOBUFS, errno.EAGAIN, errno.ENOMEM)
_UNREACHABLE = (errno.ENETUNREACH, errno.ENETDOWN, errno.EHOSTUNREACH, errno.ENODEV, errno.EADDRNOTAVAIL)

Destination = tuple[str, int, int, int]


Datagram = tuple[Destination, int, Sequence[bytes | bytearray | memoryview]]


class _ClassMessages(dict[int, list[tuple[int, int, bytes]]]):
    """The control messages that set an outer traffic class, made on first use."""

    def __missing__(self, tclass: int) -> list[tuple[int, int, bytes]]:
        made = self[tclass] = [(socket.IPPROTO_IPV6, socket.IPV6_TCLASS, struct.pack("=i", tclass))]
        return made


class RawSocket:
    """Sends and receives what is inside the outer IPv6 header. Never blocks."""

    __slots__ = (
        "_ancillary",
        "_batch",
        "_plane_of",
        "_sendmsg",
        "_socket",
        "dropped_full",
        "dropped_other",
        "dropped_unreachable",
        "refused",
        "sent",
    )

    def __init__(self, plane_of: Mapping[str, int]) -> None:
        """`plane_of` gives the plane of each outer destination address: refusals are counted per plane."""
        sock = socket.socket(socket.AF_INET6, socket.SOCK_RAW | socket.SOCK_CLOEXEC, IPPROTO_IPV6_IN_IPV6)
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVTCLASS, 1)
        sock.setsockopt(socket.IPPROTO_IPV6, IPV6_FLOWINFO_SEND, 1)
        # A packet larger than its port's MTU is an error, not two fragments that no switch could trim (IPV6_PMTUDISC_PROBE).
        sock.setsockopt(socket.IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_PROBE)
        _enlarge(sock, SO_RCVBUFFORCE, socket.SO_RCVBUF)
        _enlarge(sock, SO_SNDBUFFORCE, socket.SO_SNDBUF)
        self._socket = sock
        self._sendmsg = sock.sendmsg
        self._batch = BatchReceiver(sock.fileno())
        self._ancillary = _ClassMessages()
        self._plane_of = plane_of
        self.sent = 0  # refused ones included
        self.refused = 0
        self.dropped_full = 0
        self.dropped_unreachable: dict[int, int] = {}
        self.dropped_other = 0

    def fileno(self) -> int:
        """The descriptor to wait on."""
        return self._socket.fileno()

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def send(self, datagrams: Iterable[Datagram]) -> int:
        """Send packets, each (destination, outer traffic class, buffers); a refusal counts as a loss in the NIC.

        A destination is (address, 0, flow label, 0). Returns how many there were.
        """
        sendmsg, ancillary = self._sendmsg, self._ancillary
        count = 0
        for destination, tclass, buffers in datagrams:
            count += 1
            try:
                sendmsg(buffers, ancillary[tclass], 0, destination)
            except OSError as error:
                self.refused += 1
                self._refused(error, destination[0])
        self.sent += count
        return count

    def receive(self, take: Take) -> int:
        """Give `take(packet, outer class, now)` what has arrived, a batch at most; returns how many packets."""
        try:
            return self._batch.receive(take)
        except OSError as error:  # left by an earlier send (a port went down); the next call reads on
            self._refused(error, "")
            return 0

    @property
    def receive_drops(self) -> int:
        """Packets the kernel dropped because this socket's receive buffer was full: the machine's fault, not the fabric's."""
        return int(_MEMINFO.unpack(self._socket.getsockopt(socket.SOL_SOCKET, SO_MEMINFO, _MEMINFO.size))[_MEMINFO_DROPS])

    def counters(self) -> dict[str, int]:
        """Packets sent, packets refused by cause, and receive buffer drops."""
        counted = {
            "wire_sent": self.sent - self.refused,
            "wire_dropped_full": self.dropped_full,
            "wire_dropped_other": self.dropped_other,
            "receive_buffer_drops": self.receive_drops,
        }
        for plane, count in sorted(self.dropped_unreachable.items()):
            counted[f"wire_dropped_unreachable_plane{plane}"] = count
        return counted

    def _refused(self, error: OSError, address: str) -> None:
        if error.errno in _FULL:
            self.dropped_full += 1
        elif error.errno in _UNREACHABLE:
            plane = self._plane_of.get(address, -1)
            self.dropped_unreachable[plane] = self.dropped_unreachable.get(plane, 0) + 1
        elif error.errno in (errno.EMSGSIZE, errno.EINVAL, errno.EPERM, errno.EBADF):
            raise error  # not the network's doing: a packet too large for the port or a bug here; the run must say so
        else:
            self.dropped_other += 1


def _enlarge(sock: socket.socket, force: int, plain: int) -> None:
    """Ask for a large buffer, past the system's limit where we may."""
    try:
        sock.setsockopt(socket.SOL_SOCKET, force, BUFFER_BYTES)
    except PermissionError:
        with suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, plain, BUFFER_BYTES)
