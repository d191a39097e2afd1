"""Spraying over unequal paths: reordering is not loss (pitfall H-15), and a path taken for dead by mistake comes back."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from tests.support.virtual import MS, Packet, Pair, Verdict

MEASURE_NS = 20_000 * MS


def goodput(slow: Callable[[Packet], bool], window: int, planes: int) -> tuple[float, float, Pair]:
    """(payload bit/s, retransmitted share) once the windows have adapted; `slow` packets take ten times as long."""
    pair = Pair(payload=4096, sack_bytes=16384, window_frames=window, planes=planes)
    pair.rule = lambda packet: Verdict(pair.delay_ns * (10 if slow(packet) else 1))
    data = random.Random(1).randbytes(1 << 19)
    posted = 0

    def keep_busy(until_ns: int) -> None:
        nonlocal posted
        while pair.now < until_ns:
            while posted < len(pair.completed(0)) + 4:
                pair.write(0, data, (posted % 2) << 19, wr_id=posted, immediate=posted)
                posted += 1
            pair.step()

    keep_busy(pair.now + MEASURE_NS // 2)
    requester, start = pair.qps[0].requester, pair.now
    sent, again, placed = requester.packets_sent, requester.retransmissions, pair.ends[1].statistics()["placed_bytes"]
    keep_busy(start + MEASURE_NS)
    rate = (pair.ends[1].statistics()["placed_bytes"] - placed) * 8e9 / (pair.now - start)
    return rate, (requester.retransmissions - again) / (requester.packets_sent - sent), pair


def test_one_path_ten_times_slower() -> None:
    ideal, _, _ = goodput(lambda packet: False, 48, 4)
    rate, again, pair = goodput(lambda packet: packet.ev == (1 << 16 | 2), 256, 4)
    assert again < 0.001
    assert rate >= 0.9 * ideal
    statistics = pair.ends[0].statistics()
    assert statistics["evs_restored"] == statistics["evs_retired"] >= 1  # the mistake was made, and undone


@pytest.mark.parametrize("window", [160])
def test_two_planes_with_a_tenfold_delay_difference(window: int) -> None:
    ideal, _, _ = goodput(lambda packet: False, window, 2)
    rate, again, _ = goodput(lambda packet: packet.ev >> 16 == 1, window, 2)
    assert again < 0.001
    assert rate >= 0.9 * ideal


@pytest.mark.parametrize(("late_rtts", "comes_back"), [(4, True), (12, False)])
def test_answers_that_took_for_ever_bring_no_path_back(late_rtts: int, comes_back: bool) -> None:
    pair = Pair()
    slow = 1 << 16 | 2

    def rule(packet: Packet) -> Verdict:
        if packet.ev != slow or packet.source:
            return Verdict(pair.delay_ns)
        return Verdict(None if packet.is_data else pair.delay_ns * (1 + 2 * late_rtts))

    pair.rule = rule
    pair.write(0, random.Random(1).randbytes(400_000))
    pair.run(60 * 2 * pair.delay_ns)
    statistics = pair.ends[0].statistics()
    assert statistics["evs_retired"] >= 1
    assert statistics["ev_probe_answers"] > 3
    assert (statistics["evs_restored"] > 0) is comes_back
