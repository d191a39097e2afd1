"""Every MRC header as a frozen value that packs to and unpacks from its exact bytes (mrc-facts 3.3; docs/protocol.md).

This file is the readable truth of the format; `packets.py` writes the same bytes faster and a test holds the two together.
Everything is big-endian. Reserved fields are sent as zero and ignored when read. `unpack` raises struct.error when short.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import ClassVar, Self

from testbed.transport.common.codepoints import P_KEY

Buffer = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class Bth:
    """Base transport header, 12 bytes. `pad` counts the bytes added to the payload to reach a multiple of four."""

    FORMAT: ClassVar[struct.Struct] = struct.Struct(">BBHII")
    opcode: int
    dqp: int
    psn: int
    ack_request: bool = False
    retransmission: bool = False
    timestamp: bool = False  # a TSETH follows
    solicited: bool = False
    pad: int = 0
    p_key: int = P_KEY

    def pack(self) -> bytes:
        control = self.ack_request << 7 | self.retransmission << 5 | self.timestamp << 4
        flags = self.solicited << 6 | self.pad << 4
        return self.FORMAT.pack(self.opcode, flags, self.p_key, self.dqp, control << 24 | self.psn)

    @classmethod
    def unpack(cls, buffer: Buffer, offset: int = 0) -> Self:
        opcode, flags, p_key, dqp, word = cls.FORMAT.unpack_from(buffer, offset)
        control = word >> 24
        return cls(
            opcode,
            dqp & 0xFFFFFF,
            word & 0xFFFFFF,
            bool(control & 0x80),
            bool(control & 0x20),
            bool(control & 0x10),
            bool(flags & 0x40),
            flags >> 4 & 3,
            p_key,
        )


@dataclass(frozen=True, slots=True)
class Meth:
    """Message header, 4 bytes: WRITE_WITH_IMM sequence number and message sequence number."""

    FORMAT: ClassVar[struct.Struct] = struct.Struct(">HH")
    rqmsn: int
    msn: int

    def pack(self) -> bytes:
        return self.FORMAT.pack(self.rqmsn, self.msn)

    @classmethod
    def unpack(cls, buffer: Buffer, offset: int = 0) -> Self:
        return cls(*cls.FORMAT.unpack_from(buffer, offset))


@dataclass(frozen=True, slots=True)
class Tseth:
    """Timestamp header, 4 bytes: `tx_timestamp` in TIMESTAMP_UNIT_NS; `tsr` asks the responder for its own."""

    FORMAT: ClassVar[struct.Struct] = struct.Struct(">HH")
    FTYPE: ClassVar[int] = 1
    tx_timestamp: int
    tsr: bool = False

    def pack(self) -> bytes:
        return self.FORMAT.pack(self.tx_timestamp, self.tsr << 15 | self.FTYPE)

    @classmethod
    def unpack(cls, buffer: Buffer, offset: int = 0) -> Self:
        timestamp, rest = cls.FORMAT.unpack_from(buffer, offset)
        return cls(timestamp, bool(rest >> 15))


@dataclass(frozen=True, slots=True)
class Reth:
    """RDMA header, 16 bytes: where this packet's payload goes. `length` is the whole message's."""

    FORMAT: ClassVar[struct.Struct] = struct.Struct(">QII")
    address: int
    rkey: int
    length: int

    def pack(self) -> bytes:
        return self.FORMAT.pack(self.address, self.rkey, self.length)

    @classmethod
    def unpack(cls, buffer: Buffer, offset: int = 0) -> Self:
        return cls(*cls.FORMAT.unpack_from(buffer, offset))


@dataclass(frozen=True, slots=True)
class ImmDt:
    """Immediate data, 4 bytes."""

    FORMAT: ClassVar[struct.Struct] = struct.Struct(">I")
    value: int

    def pack(self) -> bytes:
        return self.FORMAT.pack(self.value)

    @classmethod
    def unpack(cls, buffer: Buffer, offset: int = 0) -> Self:
        return cls(*cls.FORMAT.unpack_from(buffer, offset))


@dataclass(frozen=True, slots=True)
class Aeth:
    """Transport ACK header, 4 bytes: syndrome and MSN as in RoCE."""

    FORMAT: ClassVar[struct.Struct] = struct.Struct(">I")
    syndrome: int
    msn: int

    def pack(self) -> bytes:
        return self.FORMAT.pack(self.syndrome << 24 | self.msn)

    @classmethod
    def unpack(cls, buffer: Buffer, offset: int = 0) -> Self:
        (word,) = cls.FORMAT.unpack_from(buffer, offset)
        return cls(word >> 24, word & 0xFFFFFF)


@dataclass(frozen=True, slots=True)
class Seth:
    """SACK header, 28 bytes. Bit i of `bitmap` says that PSN cack_psn + sack_offset + i has arrived; 0 says nothing.

    `ack_psn_offset` = PSN that caused this SACK - cack_psn, or the probe's id when `probe_reply`. `entropy` echoes that
    packet's EV, `mark` is what its ECN field said. `mpr` is 0 unless both ends use a dynamic MPR.
    """

    FORMAT: ClassVar[struct.Struct] = struct.Struct(">HHIHHIBBhQ")
    TYPE: ClassVar[int] = 1
    cack_psn: int
    sack_offset: int
    bitmap: int
    entropy: int
    mark: int = 0
    probe_reply: bool = False
    ack_psn_offset: int = 0  # signed; an unsigned probe id when probe_reply
    spdcid: int = 0
    dpdcid: int = 0
    cc_type: int = 1
    cc_flags: int = 0
    mpr: int = 0

    def pack(self) -> bytes:
        word = self.TYPE << 12 | self.mark << 5 | self.probe_reply << 1
        return self.FORMAT.pack(
            word,
            self.ack_psn_offset & 0xFFFF,
            self.entropy,
            self.spdcid,
            self.dpdcid,
            self.cack_psn,
            self.cc_type << 4 | self.cc_flags,
            self.mpr,
            self.sack_offset,
            self.bitmap,
        )

    @classmethod
    def unpack(cls, buffer: Buffer, offset: int = 0) -> Self:
        word, ack_offset, entropy, spdcid, dpdcid, cack, cc, mpr, sack_offset, bitmap = cls.FORMAT.unpack_from(buffer, offset)
        probe_reply = bool(word >> 1 & 1)
        if not probe_reply and ack_offset >= 0x8000:
            ack_offset -= 0x10000
        mark = word >> 5 & 3
        return cls(
            cack & 0xFFFFFF, sack_offset, bitmap, entropy, mark, probe_reply, ack_offset, spdcid, dpdcid, cc >> 4, cc & 15, mpr
        )


@dataclass(frozen=True, slots=True)
class CcState:
    """Congestion state behind a SETH, 8 bytes. `received_bytes` counts units of 256 bytes, rounded up, modulo 2^24."""

    FORMAT: ClassVar[struct.Struct] = struct.Struct(">HHI")
    tx_timestamp: int
    ooo_count: int = 0
    restore_cwnd: bool = False
    rcv_cwnd_pen: int = 0
    received_bytes: int = 0

    def pack(self) -> bytes:
        word = self.restore_cwnd << 31 | self.rcv_cwnd_pen << 24 | self.received_bytes
        return self.FORMAT.pack(self.tx_timestamp, self.ooo_count, word)

    @classmethod
    def unpack(cls, buffer: Buffer, offset: int = 0) -> Self:
        timestamp, ooo, word = cls.FORMAT.unpack_from(buffer, offset)
        return cls(timestamp, ooo & 0x7FFF, bool(word >> 31), word >> 24 & 0x7F, word & 0xFFFFFF)


@dataclass(frozen=True, slots=True)
class Neth:
    """NACK header, 20 bytes: why `nack_psn`, sent with EV `entropy` at `tx_timestamp`, was not taken."""

    FORMAT: ClassVar[struct.Struct] = struct.Struct(">HBBIHHIBBH")
    TYPE: ClassVar[int] = 2
    CC_TYPE: ClassVar[int] = 2
    reason: int
    nack_psn: int
    entropy: int
    tx_timestamp: int = 0
    vendor: int = 0
    spdcid: int = 0
    dpdcid: int = 0
    cc_flags: int = 0

    def pack(self) -> bytes:
        return self.FORMAT.pack(
            self.TYPE << 12,
            self.reason,
            self.vendor,
            self.entropy,
            self.spdcid,
            self.dpdcid,
            self.nack_psn,
            self.CC_TYPE << 4 | self.cc_flags,
            0,
            self.tx_timestamp,
        )

    @classmethod
    def unpack(cls, buffer: Buffer, offset: int = 0) -> Self:
        _, reason, vendor, entropy, spdcid, dpdcid, psn, cc, _, timestamp = cls.FORMAT.unpack_from(buffer, offset)
        return cls(reason, psn & 0xFFFFFF, entropy, timestamp, vendor, spdcid, dpdcid, cc & 15)


@dataclass(frozen=True, slots=True)
class Peth:
    """Reliability probe header, 16 bytes. The answer is a SACK with `probe_reply` set and this `probe_id`."""

    FORMAT: ClassVar[struct.Struct] = struct.Struct(">HHIHHHH")
    TYPE: ClassVar[int] = 3
    probe_id: int
    tx_timestamp: int
    spdcid: int = 0
    dpdcid: int = 0
    tsr: bool = False

    def pack(self) -> bytes:
        return self.FORMAT.pack(
            self.TYPE << 12,
            self.probe_id,
            0,
            self.spdcid,
            self.dpdcid,
            self.tx_timestamp,
            self.tsr << 15 | Tseth.FTYPE,
        )

    @classmethod
    def unpack(cls, buffer: Buffer, offset: int = 0) -> Self:
        _, probe_id, _, spdcid, dpdcid, timestamp, rest = cls.FORMAT.unpack_from(buffer, offset)
        return cls(probe_id, timestamp, spdcid, dpdcid, bool(rest >> 15))


@dataclass(frozen=True, slots=True)
class Erth:
    """Endpoint request header, 16 bytes: a port status update or an EV probe. Bit p of the mask: port p is reachable."""

    FORMAT: ClassVar[struct.Struct] = struct.Struct(">HHIIHH")
    TYPE: ClassVar[int] = 4
    op: int
    port_status_mask: int
    tx_timestamp: int
    vendor: int = 0
    tsr: bool = False

    def pack(self) -> bytes:
        word = self.TYPE << 12 | self.op << 5
        rest = self.tsr << 15 | Tseth.FTYPE
        return self.FORMAT.pack(word, self.vendor, self.port_status_mask, 0, self.tx_timestamp, rest)

    @classmethod
    def unpack(cls, buffer: Buffer, offset: int = 0) -> Self:
        word, vendor, mask, _, timestamp, rest = cls.FORMAT.unpack_from(buffer, offset)
        return cls(word >> 5 & 3, mask, timestamp, vendor, bool(rest >> 15))


@dataclass(frozen=True, slots=True)
class Eeth:
    """Endpoint response header, 36 bytes; the echoed timestamp sits at byte 28."""

    FORMAT: ClassVar[struct.Struct] = struct.Struct(">HH24sHHI")
    TYPE: ClassVar[int] = 5
    op: int
    tx_timestamp: int
    vendor: int = 0

    def pack(self) -> bytes:
        word = self.TYPE << 12 | self.op << 5
        return self.FORMAT.pack(word, self.vendor, bytes(24), self.tx_timestamp, Tseth.FTYPE, 0)

    @classmethod
    def unpack(cls, buffer: Buffer, offset: int = 0) -> Self:
        word, vendor, _, timestamp, _, _ = cls.FORMAT.unpack_from(buffer, offset)
        return cls(word >> 5 & 3, timestamp, vendor)
