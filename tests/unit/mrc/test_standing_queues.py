"""A dead path behind queues that stand: what every packet waits is not counted twice before the path is left."""

from __future__ import annotations

import random

import pytest

from testbed.transport.common.codepoints import Dscp
from testbed.transport.common.events import Fate
from tests.support.virtual import MS, Packet, Pair, Verdict

DEAD = 2 << 16 | 3
FAULT_NS = 3_000 * MS


@pytest.mark.parametrize("queue", [0.0, 0.5, 0.75, 1.0])
def test_a_dead_path_is_left_one_round_trip_and_an_eighth_later_however_long_that_is(queue: float) -> None:
    """What is no acknowledgement waits `queue` base round trips in every plane; then one path of 24 dies."""
    pair = Pair(payload=4096, sack_bytes=16384, window_frames=round(24 * (1 + queue)) + 8)
    base = 2 * pair.delay_ns
    start = pair.now

    def rule(packet: Packet) -> Verdict:
        if packet.ev == DEAD and packet.now >= start + FAULT_NS:
            return Verdict(None)
        return Verdict(pair.delay_ns + (round(queue * base) if packet.tclass & 3 else 0))

    pair.rule = rule
    data = random.Random(1).randbytes(1 << 19)
    posted = 0
    while pair.now < start + 2 * FAULT_NS:
        while posted < len(pair.completed(0)) + 2:
            pair.write(0, data, (posted % 2) << 19, wr_id=posted, immediate=posted)
            posted += 1
        pair.step()
    lost = [row for row in pair.log[0].packets if row[7] == Fate.LOST and row[0] >= start + FAULT_NS - base]
    assert lost
    assert {row[4] for row in lost} == {DEAD}
    sack_interval = 4 * 8 * 4262 / (4 * 5_000_000)  # seconds between SACKs at line rate
    last = max(row[0] for row in lost) - min(row[0] for row in lost)
    assert last <= (1 + queue + 1 / 8) * base + 2 * sack_interval * 1e9


def test_what_was_in_flight_on_a_plane_that_dies_with_its_last_hop_full_is_sent_again() -> None:
    """Such a plane brings no evidence of its own any more, and answers on the others keep the timer from running out."""
    pair = Pair()
    trimmed: list[int] = []

    def rule(packet: Packet) -> Verdict:
        if packet.source or packet.plane:
            return Verdict(pair.delay_ns)
        if packet.is_data and not trimmed:
            trimmed.append(packet.psn)
            return Verdict(pair.delay_ns, trim=Dscp.TRIMMED_LASTHOP)
        return Verdict(None if trimmed else pair.delay_ns)

    pair.rule = rule
    pair.write(0, random.Random(1).randbytes(300_000), wr_id=0)
    assert pair.run(10_000 * MS, until=lambda: bool(pair.completed(0)))
    assert len(trimmed) == 1
    assert {row.ev >> 16 for row in pair.log[0].packets if row.fate == Fate.LOST} == {0}
