"""A small rtnetlink transport: messages out in bulk, every acknowledgement checked, dumps back as raw attributes.

Messages that write are encoded by pyroute2 (srv6.py); what is read back is decoded here, attribute by attribute, so that a
read-back never shares a mistake with the encoder that wrote it. One socket per `Netlink`, closed with it (pitfall H-11).
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Self

from testbed.errors import KernelError
from testbed.fabric.namespaces import Namespaces

NLM_F_REQUEST, NLM_F_ACK, NLM_F_DUMP = 1, 4, 0x300
NLM_F_REPLACE, NLM_F_CREATE = 0x100, 0x400
NLMSG_ERROR, NLMSG_DONE = 2, 3
_HEADER = struct.Struct("=IHHII")
_ERROR = struct.Struct("=i")
_ATTRIBUTE = struct.Struct("=HH")
_SOL_NETLINK, _EXT_ACK, _STRICT = 270, 11, 12
_NLMSGERR_ATTR_MSG = 1
_TYPE_MASK = 0x3FFF  # without the nested and byte-order flags
_CAPPED = 0x100
_BATCH = 64  # messages per send: their acknowledgements must fit in the receive buffer
_RECEIVE = 1 << 18
_ANSWER_S = 30.0  # the kernel has one lock for all of this, and a namespace that ends may hold it for seconds


def attributes(data: bytes | memoryview, offset: int = 0) -> dict[int, memoryview]:
    """The netlink attributes of `data` from `offset` on: {type: payload}."""
    view = memoryview(data)
    found: dict[int, memoryview] = {}
    while offset + 4 <= len(view):
        length, kind = _ATTRIBUTE.unpack_from(view, offset)
        if length < 4:
            break
        found[kind & _TYPE_MASK] = view[offset + 4 : offset + length]
        offset += (length + 3) & ~3
    return found


def attribute(kind: int, payload: bytes) -> bytes:
    """One encoded attribute, padded."""
    return _ATTRIBUTE.pack(4 + len(payload), kind) + payload + bytes(-len(payload) % 4)


def message(kind: int, flags: int, body: bytes) -> bytes:
    """One netlink message; its sequence number is filled in when it is sent."""
    return _HEADER.pack(_HEADER.size + len(body), kind, flags, 0, 0) + body


class Netlink:
    """A NETLINK_ROUTE socket that lives in one node's network namespace."""

    def __init__(self, namespaces: Namespaces, node: str) -> None:
        self._node = node
        self._sequence = 1
        with namespaces.inside(node):
            self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE)
        self._socket.setsockopt(_SOL_NETLINK, _EXT_ACK, 1)
        self._socket.setsockopt(_SOL_NETLINK, _STRICT, 1)
        self._socket.settimeout(_ANSWER_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def execute(self, requests: Sequence[tuple[str, bytes]]) -> None:
        """Send (operation, message) pairs and wait for every acknowledgement. The first refusal raises KernelError."""
        for start in range(0, len(requests), _BATCH):
            self._execute(requests[start : start + _BATCH])

    def _execute(self, requests: Sequence[tuple[str, bytes]]) -> None:
        first = self._sequence
        self._sequence += len(requests)
        packed = bytearray()
        for number, (_, request) in enumerate(requests):
            offset = len(packed)
            packed += request + bytes(-len(request) % 4)
            struct.pack_into("=II", packed, offset + 8, first + number, 0)
        self._socket.send(packed)
        waiting = len(requests)
        refusals: list[tuple[int, int, str]] = []
        while waiting:
            for kind, sequence, flags, body in self._receive():
                if kind != NLMSG_ERROR or not first <= sequence < first + len(requests):
                    continue
                waiting -= 1
                code = _ERROR.unpack_from(body)[0]
                if code:
                    refusals.append((sequence - first, -code, _extended(body, flags)))
        if refusals:
            number, code, words = min(refusals)
            text = os.strerror(code)
            raise KernelError(self._node, requests[number][0], f"{text}: {words}" if words else text)

    def dump(self, kind: int, body: bytes, operation: str) -> list[memoryview]:
        """Every message body that the dump request returns (without its netlink header)."""
        sequence = self._sequence
        self._sequence += 1
        request = bytearray(message(kind, NLM_F_REQUEST | NLM_F_DUMP, body))
        struct.pack_into("=I", request, 8, sequence)
        self._socket.send(request)
        found: list[memoryview] = []
        while True:
            for answer, answered, flags, payload in self._receive():
                if answered != sequence:
                    continue
                if answer == NLMSG_DONE:
                    return found
                if answer == NLMSG_ERROR:
                    text = os.strerror(-_ERROR.unpack_from(payload)[0])
                    raise KernelError(self._node, operation, f"{text} {_extended(payload, flags)}".strip())
                found.append(payload)

    def get(self, kind: int, body: bytes, operation: str) -> memoryview:
        """The one message that a non-dump request returns."""
        sequence = self._sequence
        self._sequence += 1
        request = bytearray(message(kind, NLM_F_REQUEST, body))
        struct.pack_into("=I", request, 8, sequence)
        self._socket.send(request)
        while True:
            for answer, answered, flags, payload in self._receive():
                if answered != sequence:
                    continue
                if answer == NLMSG_ERROR:
                    text = os.strerror(-_ERROR.unpack_from(payload)[0])
                    raise KernelError(self._node, operation, f"{text} {_extended(payload, flags)}".strip())
                return payload

    def _receive(self) -> Iterator[tuple[int, int, int, memoryview]]:
        try:
            data = memoryview(self._socket.recv(_RECEIVE))
        except TimeoutError as error:
            raise KernelError(self._node, "netlink", f"no answer from the kernel within {_ANSWER_S:g} s") from error
        except OSError as error:
            raise KernelError(self._node, "netlink receive", error.strerror or str(error)) from error
        offset = 0
        while offset + _HEADER.size <= len(data):
            length, kind, flags, sequence, _ = _HEADER.unpack_from(data, offset)
            yield kind, sequence, flags, data[offset + _HEADER.size : offset + length]
            offset += (length + 3) & ~3


def _extended(body: memoryview, flags: int) -> str:
    """The kernel's own words in an error message (extended ACK), if it gave any."""
    offset = 4 + _HEADER.size
    if not flags & _CAPPED:
        original = struct.unpack_from("=I", body, 4)[0]
        offset = 4 + ((original + 3) & ~3)
    words = attributes(body, offset).get(_NLMSGERR_ATTR_MSG)
    return bytes(words).rstrip(b"\0").decode(errors="replace") if words else ""
