"""Whole inner packets, written and read fast: inner IPv6, UDP, BTH and what follows, ICRC. Same bytes as `headers.py`.

The first 53 bytes of a flow's packets and their part of the ICRC repeat, so they are built once per path and kept.
A data packet: IPv6 40 | UDP 8 | BTH 12 | METH 4 | TSETH 4 | RETH 16 | [ImmDt 4] | payload | pad | ICRC 4.
"""

from __future__ import annotations

import struct
from typing import NamedTuple
from zlib import crc32

from testbed.transport.common import icrc
from testbed.transport.common.codepoints import P_KEY, UDP_PORT
from testbed.transport.mrc.codepoints import Opcode
from testbed.transport.mrc.paths import Destination, Path

Buffers = list[bytes | memoryview]
Datagram = tuple[Destination, int, Buffers]  # outer destination, traffic class, inner packet

IPV6_AND_UDP = struct.Struct(">IHBB16s16sHHHH")
BTH_START = struct.Struct(">BBHB")
# From the BTH's QP number to the end of the RETH.
DATA_REST = struct.Struct(">IBHHHHHQII")
BTH_REST = struct.Struct(">IBH")
_CRC = struct.Struct("<I")
_IMM = struct.Struct(">I")

BTH_OFFSET = icrc.IPV6_BYTES + icrc.UDP_BYTES
BTH_BYTES = 12
BODY_OFFSET = BTH_OFFSET + BTH_BYTES
DATA_HEADER_BYTES = BODY_OFFSET + 4 + 4 + 16
IMM_BYTES = 4
HOP_LIMIT = 64
ACK_REQUEST = 0x80
RETRANSMISSION = 0x20
TIMESTAMP = 0x10
TSETH_REST = 1  # ftype 1, no timestamp asked back
TIMESTAMP_UNIT_NS = 1 << 16  # 16 bits then wrap after 4.3 s: many scaled round trips, 65 us resolution
_PADDING = (b"", b"\0", b"\0\0", b"\0\0\0")


def timestamp16(now: int) -> int:
    return now >> 16 & 0xFFFF


def inner_bytes(payload: int) -> int:
    """Bytes of a data packet's inner packet: payload plus 88."""
    return DATA_HEADER_BYTES + payload + icrc.ICRC_BYTES


def write_opcode(first: bool, last: bool, immediate: int | None) -> Opcode:
    """The opcode of a message's packet, by its place in the message."""
    if first and last:
        return Opcode.WRITE_ONLY if immediate is None else Opcode.WRITE_ONLY_IMM
    if last:
        return Opcode.WRITE_LAST if immediate is None else Opcode.WRITE_LAST_IMM
    return Opcode.WRITE_FIRST if first else Opcode.WRITE_MIDDLE


class Link(NamedTuple):
    """The two inner addresses of a conversation."""

    source: bytes
    target: bytes


def head(link: Link, path: Path, opcode: int, pad: int, body_bytes: int) -> tuple[bytes, int]:
    """(first 53 bytes, their ICRC part) of a packet with `body_bytes` behind the BTH, ICRC included."""
    key = (opcode, pad, body_bytes)
    found = path.heads.get(key)
    if found is None:
        udp_bytes = icrc.UDP_BYTES + BTH_BYTES + body_bytes
        network = IPV6_AND_UDP.pack(
            6 << 28 | path.label, udp_bytes, 17, HOP_LIMIT, link.source, link.target, path.source_port, UDP_PORT, udp_bytes, 0
        )
        first = network + BTH_START.pack(opcode, pad << 4, P_KEY, 0)
        found = path.heads[key] = (first, icrc.seed(first))
    return found


def data(
    link: Link,
    path: Path,
    *,
    opcode: int,
    dqp: int,
    control: int,
    psn: int,
    rqmsn: int,
    msn: int,
    now: int,
    address: int,
    rkey: int,
    length: int,
    immediate: int | None,
    payload: memoryview,
) -> tuple[Buffers, int]:
    """(buffers, inner bytes) of one WRITE packet. `control` holds ACK_REQUEST and RETRANSMISSION bits."""
    size = len(payload)
    pad = -size & 3
    body = DATA_HEADER_BYTES - BODY_OFFSET + size + pad + icrc.ICRC_BYTES + (0 if immediate is None else IMM_BYTES)
    first, crc = head(link, path, opcode, pad, body)
    rest = DATA_REST.pack(
        dqp << 8 | control | TIMESTAMP,
        psn >> 16 & 0xFF,
        psn & 0xFFFF,
        rqmsn & 0xFFFF,
        msn & 0xFFFF,
        now >> 16 & 0xFFFF,
        TSETH_REST,
        address,
        rkey,
        length,
    )
    if immediate is not None:
        rest += _IMM.pack(immediate)
    crc = crc32(payload, crc32(rest, crc))
    if pad:
        crc = crc32(_PADDING[pad], crc)
        return [first + rest, payload, _PADDING[pad] + _CRC.pack(crc)], BODY_OFFSET + body
    return [first + rest, payload, _CRC.pack(crc)], BODY_OFFSET + body


def control(link: Link, path: Path, opcode: Opcode, dqp: int, psn: int, body: bytes) -> tuple[Buffers, int]:
    """(buffers, inner bytes) of a packet that carries `body` behind its BTH and no payload."""
    total = len(body) + icrc.ICRC_BYTES
    first, crc = head(link, path, opcode, 0, total)
    rest = BTH_REST.pack(dqp << 8, psn >> 16 & 0xFF, psn & 0xFFFF) + body
    return [first + rest + _CRC.pack(crc32(rest, crc))], BODY_OFFSET + total
