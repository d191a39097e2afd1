"""RoCEv2 packets inside the outer header: inner IPv6, UDP, BTH, [RETH], [ImmDt], payload, ICRC (IBTA volume 1, 9.2; annex A17).

The UDP source port is the QP's own, so that every packet of a QP hashes alike. The inner flow label says which path the hash
gave and whether the packet is a retransmission (that << 18 | plane << 12 | uplink): records need it, nothing else reads it.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from zlib import crc32

from testbed.transport.common import icrc
from testbed.transport.common.codepoints import P_KEY, TCLASS_PROBE, UDP_PORT

Buffers = list[bytes | memoryview]

TCLASS_DATA = TCLASS_PROBE  # ECN-capable and not to be trimmed: a RoCE NIC knows no trimming

_NETWORK = struct.Struct(">IHBB16s16sHHHH")
_BTH = struct.Struct(">BBHII")  # opcode, flags, P_Key, reserved and QP number, acknowledge request and PSN
_RETH = struct.Struct(">QII")
_WORD = struct.Struct(">I")
_CRC = struct.Struct("<I")

BTH_AT = icrc.IPV6_BYTES + icrc.UDP_BYTES
BODY_AT = BTH_AT + 12
ACK_REQUEST = 1 << 31
UPLINK_BITS = 12
AGAIN = 1 << 18
_HOP_LIMIT = 64
_PADDING = (b"", b"\0", b"\0\0", b"\0\0\0")


class Opcode(IntEnum):
    """BTH opcodes of the reliable connection service, and RoCEv2's congestion notification."""

    WRITE_FIRST = 0x06
    WRITE_MIDDLE = 0x07
    WRITE_LAST = 0x08
    WRITE_LAST_IMM = 0x09
    WRITE_ONLY = 0x0A
    WRITE_ONLY_IMM = 0x0B
    ACKNOWLEDGE = 0x11
    CNP = 0x81


STARTS = frozenset((int(Opcode.WRITE_FIRST), int(Opcode.WRITE_ONLY), int(Opcode.WRITE_ONLY_IMM)))
WITH_IMMEDIATE = frozenset((int(Opcode.WRITE_LAST_IMM), int(Opcode.WRITE_ONLY_IMM)))
ENDS = frozenset((int(Opcode.WRITE_LAST), int(Opcode.WRITE_ONLY))) | WITH_IMMEDIATE
WRITES = STARTS | ENDS | frozenset((int(Opcode.WRITE_MIDDLE),))


class Syndrome(IntEnum):
    """AETH syndromes (IBTA table 45)."""

    ACK = 0x1F  # no credits told
    NAK_SEQUENCE = 0x60
    NAK_REMOTE_ACCESS = 0x62


def write_opcode(first: bool, last: bool, immediate: bool) -> Opcode:
    """The opcode of a message's packet, by its place in the message."""
    if first and last:
        return Opcode.WRITE_ONLY_IMM if immediate else Opcode.WRITE_ONLY
    if last:
        return Opcode.WRITE_LAST_IMM if immediate else Opcode.WRITE_LAST
    return Opcode.WRITE_FIRST if first else Opcode.WRITE_MIDDLE


def full_inner_bytes(payload: int) -> int:
    """Bytes of a middle packet, the most frequent kind."""
    return BODY_AT + payload + icrc.ICRC_BYTES


def packet(
    source: bytes,
    target: bytes,
    source_port: int,
    label: int,
    *,
    opcode: int,
    dqp: int,
    psn: int,
    extra: bytes,
    payload: memoryview | None = None,
) -> tuple[Buffers, int]:
    """(buffers, inner bytes). `psn` holds the acknowledge request too; `extra` is what follows the BTH."""
    size = 0 if payload is None else len(payload)
    pad = -size & 3
    udp_bytes = icrc.UDP_BYTES + 12 + len(extra) + size + pad + icrc.ICRC_BYTES
    head = _NETWORK.pack(
        6 << 28 | label, udp_bytes, 17, _HOP_LIMIT, source, target, source_port, UDP_PORT, udp_bytes, 0
    ) + _BTH.pack(opcode, pad << 4, P_KEY, dqp, psn)
    crc = crc32(extra, crc32(head[icrc.MASKED_PREFIX :], icrc.seed(head)))
    if payload is None:
        return [head + extra + _CRC.pack(crc)], icrc.IPV6_BYTES + udp_bytes
    crc = crc32(_PADDING[pad], crc32(payload, crc))
    return [head + extra, payload, _PADDING[pad] + _CRC.pack(crc)], icrc.IPV6_BYTES + udp_bytes


def reth(address: int, rkey: int, length: int) -> bytes:
    """Where a message goes: in its first packet only."""
    return _RETH.pack(address, rkey, length)


def read_reth(packet: memoryview) -> tuple[int, int, int]:
    """(address, rkey, length) behind the BTH."""
    address, rkey, length = _RETH.unpack_from(packet, BODY_AT)
    return address, rkey, length


def word(value: int) -> bytes:
    """An immediate, or an AETH: syndrome << 24 | MSN."""
    return _WORD.pack(value)


def read_word(packet: memoryview, at: int) -> int:
    """A word at `at`."""
    value: int = _WORD.unpack_from(packet, at)[0]
    return value
