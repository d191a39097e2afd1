"""What the kernel knows of this namespace's TCP and MPTCP connections, by sock_diag: only what is read here is believed."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from ipaddress import IPv6Address
from typing import NamedTuple

_NETLINK_SOCK_DIAG, _SOCK_DIAG_BY_FAMILY = 4, 20
_REQUEST, _DUMP, _ERROR, _DONE = 1, 0x300, 2, 3
_TCP, _MPTCP = 6, 262
_INFO, _CONG, _ULP, _PROTOCOL = 2, 4, 19, 3  # INET_DIAG_INFO, _CONG, _ULP_INFO; INET_DIAG_REQ_PROTOCOL
_ULP_MPTCP, _TOKEN_LOCAL = 3, 2
_FELL_BACK = 1  # MPTCP_INFO_FLAG_FALLBACK
_STATES = 1 << 1 | 1 << 4 | 1 << 5 | 1 << 8  # ESTABLISHED and what a closing connection may still be in
_HEADER = struct.Struct("=IHHII")
_CHUNK = 1 << 18


class Info(NamedTuple):
    """One TCP connection, or one subflow of an MPTCP connection, whose `token` it then has (0 for plain TCP).

    Bytes: `received` in order so far, `sent` first transmissions only; `window` and `unacked` in segments of `mss`; `rtt_us`
    smoothed.
    """

    local: str
    local_port: int
    remote: str
    remote_port: int
    token: int
    mss: int
    window: int
    unacked: int
    rtt_us: int
    retransmissions: int
    segments: int
    sent: int
    received: int
    congestion: str


class Whole(NamedTuple):
    """One MPTCP connection. `received`: the sequence number up to which all data have come; `fell_back`: it is plain TCP."""

    local_port: int
    remote_port: int
    fell_back: bool
    token: int
    received: int


class Sockets:
    """Reads this process's own namespace."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_SOCK_DIAG)
        self._sequence = 0

    def connections(self) -> list[Info]:
        """TCP connections and subflows."""
        found = []
        for body in self._dump(_TCP, 1 << (_INFO - 1) | 1 << (_CONG - 1)):
            ends, values = _ends(body), _attributes(body[72:])
            info = bytes(values.get(_INFO, b""))
            if len(info) >= 216:
                control = bytes(values.get(_CONG, b"")).rstrip(b"\0").decode()
                found.append(_connection(ends, info, _token(values), control))
        return found

    def mptcp(self) -> list[Whole]:
        """MPTCP connections; empty where the kernel knows none."""
        found = []
        for body in self._dump(_MPTCP, 1 << (_INFO - 1)):
            (_, local_port, _, remote_port), values = _ends(body), _attributes(body[72:])
            info = bytes(values.get(_INFO, b""))
            if len(info) >= 40:
                flags, token = struct.unpack_from("=II", info, 8)
                received = struct.unpack_from("=Q", info, 32)[0]
                found.append(Whole(local_port, remote_port, bool(flags & _FELL_BACK), token, received))
        return found

    def _dump(self, protocol: int, extensions: int) -> Iterator[memoryview]:
        self._sequence += 1
        body = struct.pack("=BBBxI48x", socket.AF_INET6, protocol & 0xFF, extensions, _STATES)
        if protocol > 0xFF:
            body += struct.pack("=HHI", 8, _PROTOCOL, protocol)
        self._socket.send(_HEADER.pack(16 + len(body), _SOCK_DIAG_BY_FAMILY, _REQUEST | _DUMP, self._sequence, 0) + body)
        while True:
            data = memoryview(self._socket.recv(_CHUNK))
            offset = 0
            while offset + 16 <= len(data):
                length, kind, _flags, sequence, _ = _HEADER.unpack_from(data, offset)
                if kind in (_DONE, _ERROR) and sequence == self._sequence:
                    return
                if sequence == self._sequence:
                    yield data[offset + 16 : offset + length]
                offset += (length + 3) & ~3


def _ends(body: memoryview) -> tuple[str, int, str, int]:
    """Of struct inet_diag_msg: family, state, timer, retransmissions, then ports and addresses."""
    local_port, remote_port = struct.unpack_from(">HH", body, 4)
    return str(IPv6Address(bytes(body[8:24]))), local_port, str(IPv6Address(bytes(body[24:40]))), remote_port


def _connection(ends: tuple[str, int, str, int], info: bytes, token: int, control: str) -> Info:
    """Of struct tcp_info (linux/tcp.h)."""
    mss, unacked = struct.unpack_from("=I", info, 16)[0], struct.unpack_from("=I", info, 24)[0]
    rtt, window = struct.unpack_from("=I", info, 68)[0], struct.unpack_from("=I", info, 80)[0]
    again = struct.unpack_from("=I", info, 100)[0]
    received = struct.unpack_from("=Q", info, 128)[0]
    sent, resent = struct.unpack_from("=QQ", info, 200)
    segments = struct.unpack_from("=I", info, 156)[0]
    return Info(*ends, token, mss, window, unacked, rtt, again, segments, sent - resent, received, control)


def _token(values: dict[int, memoryview]) -> int:
    if _ULP not in values:
        return 0
    inside = _attributes(values[_ULP])
    if _ULP_MPTCP not in inside:
        return 0
    mine = _attributes(inside[_ULP_MPTCP])
    return int(struct.unpack("=I", mine[_TOKEN_LOCAL])[0]) if _TOKEN_LOCAL in mine else 0


def _attributes(data: memoryview) -> dict[int, memoryview]:
    found: dict[int, memoryview] = {}
    offset = 0
    while offset + 4 <= len(data):
        length, kind = struct.unpack_from("=HH", data, offset)
        if length < 4:
            break
        found[kind & 0x3FFF] = data[offset + 4 : offset + length]
        offset += (length + 3) & ~3
    return found
