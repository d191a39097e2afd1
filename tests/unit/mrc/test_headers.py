"""The wire format: hand-written bytes for every header, round trips, and the fast path against the slow one."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Protocol
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.transport.common import icrc
from testbed.transport.common.config import PortConfig
from testbed.transport.common.ports import PortClock
from testbed.transport.common.psn import PSN_MASK, expand
from testbed.transport.mrc import packets
from testbed.transport.mrc.codepoints import Opcode
from testbed.transport.mrc.headers import Aeth, Bth, CcState, Eeth, Erth, ImmDt, Meth, Neth, Peth, Reth, Seth, Tseth
from testbed.transport.mrc.packets import Link
from testbed.transport.mrc.paths import Path
from testbed.transport.mrc.responder import Responder, Trigger


class Header(Protocol):
    def pack(self) -> bytes: ...


VECTORS: list[tuple[Header, str]] = [
    # opcode C7 | flags 00 | p_key FFFF | reserved 00, DQP 000012 | control A0 (a, rtx) + 10 (ts) = B0 | PSN 00ABCD
    (Bth(0xC7, 0x12, 0xABCD, ack_request=True, retransmission=True, timestamp=True), "c700ffff00000012b000abcd"),
    # solicited 40 + pad 3 << 4 = 70 | p_key 1234 | control 00 | PSN FFFFFF
    (Bth(0xCA, 0xFFFFFF, 0xFFFFFF, solicited=True, pad=3, p_key=0x1234), "ca70123400ffffff00ffffff"),
    # RQMSN 0102 | MSN 0304
    (Meth(0x0102, 0x0304), "01020304"),
    # tx_timestamp BEEF | tsr 1, reserved, ftype 1
    (Tseth(0xBEEF, tsr=True), "beef8001"),
    # VA 64 | rkey 32 | length 32
    (Reth(0x0000000100001000, 0xDEADBEEF, 1 << 20), "0000000100001000deadbeef00100000"),
    (ImmDt(0x01020304), "01020304"),
    # syndrome 1F | MSN 000005
    (Aeth(0x1F, 5), "1f000005"),
    # type 1 (1000), m 1 << 5 (0020) -> 1020 | ack offset -2 = FFFE | entropy 00020003 | spdcid 0011 | dpdcid 0012
    # | reserved 00, cack 00ABCD | cc_type 1, cc_fl 0 -> 10 | mpr 08 | sack_offset 0001 | bitmap
    (
        Seth(0xABCD, 1, 0x8000000000000006, 0x00020003, mark=1, ack_psn_offset=-2, spdcid=0x11, dpdcid=0x12, mpr=8),
        "1020fffe00020003001100120000abcd100800018000000000000006",
    ),
    # probe reply: pr 1 << 1 -> 1002 | probe_id FFFE, unsigned | ...
    (Seth(1, 2, 3, 4, probe_reply=True, ack_psn_offset=0xFFFE), "1002fffe000000040000000000000001100000020000000000000003"),
    # tx_timestamp 0102 | reserved, ooo_count 0003 | restore 1, penalty 7F, received 000400 -> FF000400
    (CcState(0x0102, 3, restore_cwnd=True, rcv_cwnd_pen=127, received_bytes=0x400), "01020003ff000400"),
    # type 2 (2000) | reason 02 | vendor 00 | entropy | spdcid | dpdcid | 00, nack_psn | cc_type 2 -> 20 | 00 | timestamp
    (Neth(2, 0xABCDEF, 0x00010005, 0x1234, spdcid=1, dpdcid=2), "20000200000100050001000200abcdef20001234"),
    # type 3 (3000) | probe_id 0042 | reserved 32 | spdcid | dpdcid | tx_timestamp | tsr 0, ftype 1
    (Peth(0x42, 0x1111, 0x10, 0x11), "30000042000000000010001111110001"),
    # type 4, op 1 << 5 -> 4020 | vendor 0000 | port mask 0000000F | reserved 32 | tx_timestamp | tsr 1, ftype 1
    (Erth(1, 0xF, 0x2222, tsr=True), "402000000000000f0000000022228001"),
    # type 5, op 1 << 5 -> 5020 | vendor 0000 | 24 reserved bytes | byte 28: tx_timestamp | ftype 1 | reserved 32
    (Eeth(1, 0x3333), "50200000" + "00" * 24 + "3333000100000000"),
]
SIZES = {Bth: 12, Meth: 4, Tseth: 4, Reth: 16, ImmDt: 4, Aeth: 4, Seth: 28, CcState: 8, Neth: 20, Peth: 16, Erth: 16, Eeth: 36}


@pytest.mark.parametrize(
    ("header", "wire"), VECTORS, ids=lambda value: type(value).__name__ if not isinstance(value, str) else ""
)
def test_vectors(header: Header, wire: str) -> None:
    assert header.pack().hex() == wire
    assert len(header.pack()) == SIZES[type(header)]
    assert type(header).unpack(bytes.fromhex(wire)) == header  # type: ignore[attr-defined]


LIMITS: dict[str, tuple[int, int]] = {
    "opcode": (0, 255), "dqp": (0, PSN_MASK), "psn": (0, PSN_MASK), "pad": (0, 3), "p_key": (0, 0xFFFF),
    "rqmsn": (0, 0xFFFF), "msn": (0, 0xFFFF), "tx_timestamp": (0, 0xFFFF), "address": (0, 2**64 - 1),
    "rkey": (0, 2**32 - 1), "length": (0, 2**32 - 1), "value": (0, 2**32 - 1), "syndrome": (0, 255),
    "cack_psn": (0, PSN_MASK), "sack_offset": (-0x8000, 0x7FFF), "bitmap": (0, 2**64 - 1), "entropy": (0, 2**32 - 1),
    "mark": (0, 2), "ack_psn_offset": (-0x8000, 0x7FFF), "spdcid": (0, 0xFFFF), "dpdcid": (0, 0xFFFF), "cc_type": (0, 15),
    "cc_flags": (0, 15), "mpr": (0, 255), "ooo_count": (0, 0x7FFF), "rcv_cwnd_pen": (0, 127), "received_bytes": (0, PSN_MASK),
    "reason": (0, 255), "nack_psn": (0, PSN_MASK), "vendor": (0, 255), "probe_id": (0, 0xFFFF), "op": (0, 3),
    "port_status_mask": (0, 2**32 - 1),
}  # fmt: skip


@given(st.data())
def test_every_header_round_trips(data: st.DataObject) -> None:
    kind: Any = data.draw(st.sampled_from(list(SIZES)))
    values: dict[str, Any] = {}
    for field in fields(kind):
        bounds = LIMITS.get(field.name)
        values[field.name] = data.draw(st.booleans() if bounds is None else st.integers(*bounds), label=field.name)
    if kind is Seth and values["probe_reply"]:
        values["ack_psn_offset"] &= 0xFFFF
    if kind is Aeth:
        values["msn"] = data.draw(st.integers(0, PSN_MASK))
    header = kind(**values)
    assert kind.unpack(header.pack()) == header
    assert kind.unpack(b"\xaa" + header.pack(), 1) == header


LINK = Link(bytes(range(16)), bytes(range(16, 32)))


def path(ev: int = 0x00020003) -> Path:
    return Path(ev, ev >> 16, "5f00:2::", PortClock(PortConfig(2, 5_000_000), 1000, 24))


def slow_data(ev: int, bth: Bth, reth: Reth, meth: Meth, stamp: int, immediate: int | None, payload: bytes) -> bytes:
    """A data packet put together header by header."""
    body = bth.pack() + meth.pack() + Tseth(stamp).pack() + reth.pack()
    body += b"" if immediate is None else ImmDt(immediate).pack()
    body += payload + bytes(bth.pad)
    length = 8 + len(body) + 4
    ipv6 = (6 << 28 | ev >> 16).to_bytes(4, "big") + length.to_bytes(2, "big") + bytes([17, 64]) + LINK.source + LINK.target
    udp = (ev & 0xFFFF).to_bytes(2, "big") + (4791).to_bytes(2, "big") + length.to_bytes(2, "big") + bytes(2)
    packet = ipv6 + udp + body
    masked = bytearray(b"\xff" * 8 + packet)
    masked[8] |= 0x0F
    masked[9:12] = b"\xff" * 3
    masked[15] = 0xFF
    masked[8 + 46 : 8 + 48] = b"\xff\xff"
    masked[8 + 52] = 0xFF
    return packet + crc32(masked).to_bytes(4, "little")


@given(
    payload=st.binary(min_size=1, max_size=300),
    psn=st.integers(0, PSN_MASK),
    dqp=st.integers(0, PSN_MASK),
    immediate=st.none() | st.integers(0, 2**32 - 1),
    ev=st.integers(0, 2**32 - 1),
    rtx=st.booleans(),
)
def test_data_packets_agree_with_the_headers(
    payload: bytes, psn: int, dqp: int, immediate: int | None, ev: int, rtx: bool
) -> None:
    opcode = Opcode.WRITE_ONLY if immediate is None else Opcode.WRITE_ONLY_IMM
    now = 0x1234 << 16
    control = packets.RETRANSMISSION if rtx else 0
    buffers, inner = packets.data(
        LINK, path(ev), opcode=opcode, dqp=dqp, control=control, psn=psn, rqmsn=7, msn=9, now=now, address=0x1_0000_0040,
        rkey=77, length=5000, immediate=immediate, payload=memoryview(payload),
    )  # fmt: skip
    fast = b"".join(buffers)
    bth = Bth(opcode, dqp, psn, retransmission=rtx, timestamp=True, pad=-len(payload) & 3)
    slow = slow_data(ev, bth, Reth(0x1_0000_0040, 77, 5000), Meth(7, 9), 0x1234, immediate, payload)
    assert fast == slow
    assert inner == len(fast)
    assert icrc.Checker().valid(memoryview(fast))
    assert icrc.icrc(fast[:-4]) == fast[-4:]


def test_a_full_packet_costs_142_bytes_of_headers() -> None:
    """mrc-facts 3.3: Ethernet 14 + outer IPv6 40 + inner packet's headers and ICRC."""
    assert 14 + 40 + packets.inner_bytes(4096) - 4096 == 142


def test_icrc_seed_and_byte_order_agree_with_a_captured_packet() -> None:
    """A RoCEv2 CNP captured on a ConnectX-4 Lx over IPv4, where TOS, TTL and the header checksum are the masked fields."""
    ipv4 = bytearray.fromhex("45c2003c718c4000401191610a0011010a001201")
    rest = bytearray.fromhex("000012b700280000" + "8100ffff40000118" + "00" * 20)
    for place in (1, 8, 10, 11):
        ipv4[place] = 0xFF
    for place in (6, 7, 12):
        rest[place] = 0xFF
    assert crc32(ipv4 + rest, crc32(icrc.ONES_64)).to_bytes(icrc.ICRC_BYTES, "little").hex() == "82fd002a"


@given(st.data())
def test_a_flipped_bit_is_found_where_switches_may_not_write(data: st.DataObject) -> None:
    buffers, _ = packets.control(LINK, path(), Opcode.SACK, 5, 6, bytes(36))
    packet = bytearray(b"".join(buffers))
    place = data.draw(st.integers(4, len(packet) - 1).filter(lambda at: at not in {7, 46, 47, 52}))
    packet[place] ^= 1 << data.draw(st.integers(0, 7))
    assert not icrc.Checker().valid(memoryview(packet))


@pytest.mark.parametrize("place", [1, 2, 3, 7, 46, 47, 52])
def test_what_a_switch_may_change_is_not_covered(place: int) -> None:
    buffers, _ = packets.control(LINK, path(), Opcode.SACK, 5, 6, bytes(36))
    packet = bytearray(b"".join(buffers))
    packet[place] ^= 0x55
    assert icrc.Checker().valid(memoryview(packet))


@given(
    first=st.integers(0, PSN_MASK),
    offsets=st.sets(st.integers(0, 200)),
    mark=st.sampled_from([0, 1]),
    ev=st.integers(0, 2**32 - 1),
)
def test_the_sack_on_the_wire_says_what_arrived(first: int, offsets: set[int], mark: int, ev: int) -> None:
    responder = Responder(first, sack_bytes=1 << 20)
    for offset in offsets:
        responder.arrived(first + offset, ev, 0, 256, at_once=False)
    trigger = Trigger(first + max(offsets, default=0), ev, 0x77)
    spoken_of = set[int]()
    for _ in range(12):  # newest, oldest and what is between take turns
        wire = responder.sack(trigger, 0x10, 0x11)
        seth, state = Seth.unpack(wire), CcState.unpack(wire, 28)
        assert seth.entropy == ev
        assert seth.pack() + state.pack() == wire
        cack = expand(seth.cack_psn, first)
        assert {first + offset for offset in offsets if first + offset <= cack} == set(range(first, cack + 1))
        said = {cack + seth.sack_offset + bit for bit in range(64) if seth.bitmap >> bit & 1}
        assert said <= {first + offset for offset in offsets}
        covered = range(cack + seth.sack_offset, cack + seth.sack_offset + 64)
        assert said == {first + offset for offset in offsets if first + offset in covered}
        spoken_of.update(covered)
    assert spoken_of >= set(range(cack + 1, first + max(offsets, default=0) + 1)), "no hole is never spoken of"
    assert state.received_bytes == len(offsets)
    answers = responder.window.sacks()
    whole = {cack + offset + bit for offset, bits in answers for bit in range(64) if bits >> bit & 1}
    assert whole == {first + offset for offset in offsets if first + offset > cack}, "a probe's answers say it all"
    covered_whole = {cack + offset + bit for offset, _ in answers for bit in range(64)}
    assert covered_whole >= set(range(cack + 1, first + max(offsets, default=0) + 2)), "holes too"


@given(reference=st.integers(0, 1 << 40), distance=st.integers(-(1 << 23), (1 << 23) - 1))
def test_psns_unwrap(reference: int, distance: int) -> None:
    psn = reference + distance
    assert expand(psn & PSN_MASK, reference) == psn
