"""The invariant CRC of RoCEv2 (IBTA annex A17), over the inner packet: what a switch may change counts as ones.

CRC-32 (as Ethernet's) over 64 ones, the inner IPv6 header with traffic class, flow label and hop limit as ones, the UDP header
with its checksum as ones, the BTH with its reserved byte as ones, and all that follows. Sent least significant byte first.
"""

from __future__ import annotations

import struct
from zlib import crc32

IPV6_BYTES = 40
UDP_BYTES = 8
MASKED_PREFIX = IPV6_BYTES + UDP_BYTES + 5  # up to and with the BTH's reserved byte
ICRC_BYTES = 4
ONES_64 = b"\xff" * 8
_CRC = struct.Struct("<I")


def seed(prefix: bytes | bytearray | memoryview) -> int:
    """The CRC over the ones and the masked first MASKED_PREFIX bytes of an inner packet; constant per flow, so kept."""
    head = bytearray(prefix[:MASKED_PREFIX])
    head[0] |= 0x0F  # traffic class, first half
    head[1:4] = b"\xff\xff\xff"  # traffic class, second half; flow label
    head[7] = 0xFF  # hop limit
    head[46:48] = b"\xff\xff"  # UDP checksum
    head[52] = 0xFF  # BTH reserved byte
    return crc32(head, crc32(ONES_64))


def icrc(packet: bytes | bytearray | memoryview) -> bytes:
    """The four ICRC bytes of a whole inner packet given without them."""
    return crc32(packet[MASKED_PREFIX:], seed(packet)).to_bytes(4, "little")


class Checker:
    """Verifies ICRCs; remembers the masked part of heads already seen."""

    __slots__ = ("_seeds",)
    _MOST = 4096

    def __init__(self) -> None:
        self._seeds: dict[bytes, int] = {}

    def valid(self, packet: memoryview) -> bool:
        key = bytes(packet[:MASKED_PREFIX])
        known = self._seeds.get(key)
        if known is None:
            if len(self._seeds) >= self._MOST:
                self._seeds.clear()
            known = self._seeds[key] = seed(key)
        crc: int = _CRC.unpack_from(packet, len(packet) - 4)[0]
        return crc32(packet[MASKED_PREFIX:-4], known) == crc
