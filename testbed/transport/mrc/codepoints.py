"""Numbers on the wire that are MRC's own: opcodes, SACK marks and NACK reasons (docs/protocol.md, "Wire format")."""

from __future__ import annotations

from enum import IntEnum

ENDPOINT_QP = 2  # node-scoped messages (EV probes, port status) are addressed to this QP number


class Opcode(IntEnum):
    """BTH opcodes."""

    WRITE_FIRST = 0xC6
    WRITE_MIDDLE = 0xC7
    WRITE_LAST = 0xC8
    WRITE_LAST_IMM = 0xC9
    WRITE_ONLY = 0xCA
    WRITE_ONLY_IMM = 0xCB
    TRANSPORT_ACK = 0xD1
    ENDPOINT_REQUEST = 0xD8
    ENDPOINT_RESPONSE = 0xD9
    SACK = 0xDC
    NACK = 0xDD
    RELIABILITY_PROBE = 0xDE


WITH_IMMEDIATE = frozenset({Opcode.WRITE_LAST_IMM, Opcode.WRITE_ONLY_IMM})


class SackMark(IntEnum):
    """SETH.m: what the responder says about the forward path of the acknowledged packet."""

    NONE = 0
    SKIP_ONCE = 1
    ALWAYS_SKIP = 2


class NackReason(IntEnum):
    TRIMMED = 0x01
    TRIMMED_LASTHOP = 0x02
    NO_BITMAP = 0x06
    NO_PKT_BUFFER = 0x07
    NO_RESOURCE = 0x0A
    PSN_OOR_WINDOW = 0x0B
    UNEXP_EVENT = 0x19


class NakCode(IntEnum):
    """AETH syndromes of a transport NAK (IBTA table 45 for the first three; the last is MRC's, its value ours)."""

    INVALID_REQUEST = 0x61
    REMOTE_ACCESS = 0x62
    REMOTE_OPERATIONAL = 0x63
    TOO_MANY_WIMM = 0x65


class EndpointOp(IntEnum):
    """ERTH/EETH.op."""

    PORT_STATUS = 0
    EV_PROBE = 1
