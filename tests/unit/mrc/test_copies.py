"""Which transmission of a packet an answer is for: EV and timestamp of the echo say it (docs/protocol.md, "Loss").

Taken for the wrong one, an answer would prove a healthy path lossy, or send a packet again for a NACK that came twice.
"""

from __future__ import annotations

import random

import pytest

from testbed.transport.common.codepoints import Dscp
from testbed.transport.common.events import Fate
from testbed.transport.mrc.codepoints import Opcode
from testbed.transport.mrc.ev import Cause
from testbed.transport.mrc.trace import Kind
from tests.support.virtual import MS, Packet, Pair, Verdict

RTT = 40 * MS
SLOW = 2 << 16 | 1


def transfer(pair: Pair, size: int = 300_000) -> None:
    pair.write(0, random.Random(1).randbytes(size), wr_id=0)
    assert pair.run(60_000 * MS, until=lambda: bool(pair.completed(0)))


def slow_for_a_while(pair: Pair, extra_ns: int) -> None:
    start = pair.now

    def rule(packet: Packet) -> Verdict:
        held = packet.is_data and packet.ev == SLOW and packet.now < start + 30 * MS
        return Verdict(pair.delay_ns + (extra_ns if held else 0))

    pair.rule = rule


@pytest.mark.parametrize("rtts", [1, 2, 4])
def test_a_packet_that_comes_after_its_retransmission_is_known_to_have_been_late(rtts: int) -> None:
    """However late: its duplicate is answered with the echo of the transmission that arrived, not of the repetition."""
    pair = Pair()
    slow_for_a_while(pair, rtts * RTT)
    transfer(pair)
    pair.run(10 * RTT)
    log = pair.log[0]
    wrong = {row.psn for row in log.packets if row.fate == Fate.LOST}
    assert wrong
    assert {row.psn for row in log.of(Kind.LATE)} == wrong
    assert pair.ends[0].statistics()["spurious"] == len(wrong)


def test_a_late_first_transmission_proves_nothing_of_the_path_that_repeats_it() -> None:
    pair = Pair(uplinks=2)
    slow_for_a_while(pair, RTT)
    transfer(pair)
    pair.run(10 * RTT)
    assert {row.ev for row in pair.log[0].packets if row.fate == Fate.LOST} == {SLOW}
    assert {row.ev for row in pair.log[0].states if row.cause == Cause.LOST} == {SLOW}


def test_a_nack_that_comes_twice_repeats_the_packet_once() -> None:
    """On a single path even the EV is that of the repetition, which is on its way when the second NACK comes."""
    pair = Pair(planes=1, uplinks=1)
    cut: set[int] = set()

    def rule(packet: Packet) -> Verdict:
        if packet.is_data and packet.psn % 7 == 0 and packet.psn not in cut:
            cut.add(packet.psn)
            return Verdict(pair.delay_ns, trim=Dscp.TRIMMED)
        return Verdict(pair.delay_ns, copies=2 if packet.opcode == Opcode.NACK else 1)

    pair.rule = rule
    transfer(pair, 100_000)
    assert cut
    assert pair.ends[0].counters["nacks"] == 2 * len(cut)
    assert pair.ends[0].statistics()["retransmissions"] == len(cut)


def test_a_fast_planes_retransmissions_are_not_taken_for_late_first_ones() -> None:
    """The base round trip is the slowest plane's; on a plane of a tenth of it, answers come that much sooner."""
    pair = Pair(planes=2)
    lost: set[int] = set()

    def rule(packet: Packet) -> Verdict:
        fast = packet.ev >> 16 == 1
        if packet.is_data and packet.ev == 1 and packet.psn not in lost and len(lost) < 3:
            lost.add(packet.psn)
            return Verdict(None)
        return Verdict(pair.delay_ns // 10 if fast else pair.delay_ns)

    pair.rule = rule
    transfer(pair)
    assert lost
    repeated = [row for row in pair.log[0].packets if row.retransmission and row.psn in lost]
    assert any(row.ev >> 16 == 1 for row in repeated)
    assert not [row for row in pair.log[0].of(Kind.LATE) if row.psn in lost]
