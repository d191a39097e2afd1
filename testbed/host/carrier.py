"""The carriers of this host's ports, as the kernel tells them: rtnetlink link messages on a socket in the host's own namespace.

The socket joins the link group and then asks once for everything, so no change is missed between the two. When the kernel has
to drop messages because nobody read them, everything is asked for again.
"""

from __future__ import annotations

import errno
import socket
import struct
from collections.abc import Iterator, Mapping

_RTMGRP_LINK = 1
_NLM_F_REQUEST, _NLM_F_DUMP = 1, 0x300
_RTM_NEWLINK, _RTM_GETLINK = 16, 18
_HEADER = struct.Struct("=IHHII")  # struct nlmsghdr: length, type, flags, sequence, port
_INFO = struct.Struct("=BxHiII")  # struct ifinfomsg: family, type, index, flags, change
_IFF_UP, _IFF_RUNNING, _IFF_LOWER_UP = 1, 1 << 6, 1 << 16
# LOWER_UP is the carrier itself; RUNNING comes with it once the port's queue is attached, without which a packet is dropped.
_WORKING = _IFF_UP | _IFF_RUNNING | _IFF_LOWER_UP
_RECEIVE_BYTES = 1 << 16
_BUFFER_BYTES = 1 << 18


class Carriers:
    """Carrier changes of the ports it is given, `planes` by interface index. Never blocks."""

    __slots__ = ("_planes", "_socket", "_up")

    def __init__(self, planes: Mapping[int, int]) -> None:
        self._planes = dict(planes)
        self._up = dict.fromkeys(self._planes.values(), True)  # what has been told; a transport begins with every port up
        sock = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
        sock.bind((0, _RTMGRP_LINK))
        sock.setblocking(False)
        self._socket = sock
        self._ask()

    def fileno(self) -> int:
        """The descriptor to wait on."""
        return self._socket.fileno()

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def changes(self) -> list[tuple[int, bool]]:
        """(plane, up) for each carrier that is other than told before, in order; a port may come twice."""
        found: list[tuple[int, bool]] = []
        missed = False
        while True:
            try:
                data = self._socket.recv(_RECEIVE_BYTES)
            except BlockingIOError:
                if not missed:
                    return found
                missed = False
                self._ask()
                continue
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise
                missed = True  # read what is left first: the kernel answers one such question at a time
                continue
            for index, flags in _links(data):
                plane = self._planes.get(index)
                up = flags & _WORKING == _WORKING
                if plane is not None and self._up[plane] != up:
                    self._up[plane] = up
                    found.append((plane, up))

    def _ask(self) -> None:
        """Have every interface told of once, as if it had changed."""
        length = _HEADER.size + _INFO.size
        header = _HEADER.pack(length, _RTM_GETLINK, _NLM_F_REQUEST | _NLM_F_DUMP, 0, 0)
        self._socket.send(header + _INFO.pack(0, 0, 0, 0, 0))


def _links(data: bytes) -> Iterator[tuple[int, int]]:
    """(interface index, flags) of each link message."""
    offset = 0
    while offset + _HEADER.size <= len(data):
        length, kind, _, _, _ = _HEADER.unpack_from(data, offset)
        if length < _HEADER.size:
            return
        if kind == _RTM_NEWLINK and offset + _HEADER.size + _INFO.size <= len(data):
            _, _, index, flags, _ = _INFO.unpack_from(data, offset + _HEADER.size)
            yield index, flags
        offset += length + 3 & ~3


def of_ports(interfaces: Mapping[str, int]) -> Carriers:
    """Watch the ports named, `interfaces` by name with their planes. OSError when one does not exist."""
    return Carriers({socket.if_nametoindex(name): plane for name, plane in interfaces.items()})
