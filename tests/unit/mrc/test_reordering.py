"""Spraying over unequal paths: reordering is not loss (pitfall H-15), and a path taken for dead by mistake comes back."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from testbed.transport.common.codepoints import Dscp
from testbed.transport.common.events import Fate, LossReason
from testbed.transport.mrc.codepoints import Opcode
from testbed.transport.mrc.ev import Cause, EvState
from testbed.transport.mrc.loss import LossJudge
from testbed.transport.mrc.paths import Path
from testbed.transport.mrc.sent import Message, SentPacket
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
    rate, again, pair = goodput(lambda packet: packet.ev >> 16 == 1, window, 2)
    assert again < 0.001
    assert rate >= 0.9 * ideal
    wrong = pair.log[0].fates()[Fate.LOST]  # nothing was lost; one taken for lost twice is found out once
    assert 0.8 * wrong <= pair.ends[0].statistics()["spurious"] <= wrong
    assert wrong > 0


def test_two_frames_more_in_one_queue_are_not_loss_however_few_frames_a_round_trip_holds() -> None:
    """At 1 Mbit/s a frame takes 34 ms, and half of this round trip is 20."""
    pair = Pair(rate_bps=1_000_000, payload=4096, window_frames=20)
    frame_ns = next(iter(pair.qps[0].peer.paths.all)).port.frame_ns
    rng = random.Random(3)
    free: dict[int, int] = {}  # by plane: when the sender's port has sent what it holds

    def rule(packet: Packet) -> Verdict:
        if not packet.is_data:
            return Verdict(pair.delay_ns)
        leaves = max(packet.now, free.get(packet.plane, 0))
        free[packet.plane] = leaves + frame_ns
        return Verdict(leaves - packet.now + pair.delay_ns + rng.choice((0, 2 * frame_ns - MS)))

    pair.rule = rule
    pair.write(0, rng.randbytes(1 << 19), wr_id=0)
    assert pair.run(60_000 * MS, until=lambda: bool(pair.completed(0)))
    assert frame_ns > pair.delay_ns
    assert pair.log[0].fates() == {Fate.ACKNOWLEDGED: 128}


@pytest.mark.parametrize("seed", range(4))
def test_only_losses_retire_and_every_loss_does(seed: int) -> None:
    pair = Pair(seed=seed, window_frames=60)
    rng = random.Random(seed)
    lossy = {1 << 16 | 1, 2 << 16 | 4}
    gone: dict[int, int] = {}  # by EV: when its first packet was lost

    def rule(packet: Packet) -> Verdict:
        if packet.ev in lossy and packet.is_data and rng.random() < 0.3:
            gone.setdefault(packet.ev, packet.now)
            return Verdict(None)
        trim = rng.choice((Dscp.TRIMMED, Dscp.TRIMMED_LASTHOP)) if rng.random() < 0.1 else None
        return Verdict(pair.delay_ns, trim=trim, mark=rng.random() < 0.2)

    pair.rule = rule
    pair.write(0, rng.randbytes(1 << 19), wr_id=0)
    assert pair.run(60_000 * MS, until=lambda: bool(pair.completed(0)))
    log = pair.log[0]
    retired = [row for row in log.states if row.after == EvState.ASSUMED_BAD]
    lost = {(row.fate_ns, row.ev) for row in log.packets if row.fate == Fate.LOST}
    assert {row.ev for row in retired} == lossy == set(gone)
    assert {(row.t_ns, row.ev) for row in retired} <= lost
    for ev, at in gone.items():  # out of use within three round trips of its first loss
        assert min(row.t_ns for row in retired if row.ev == ev) - at <= 3 * 2 * pair.delay_ns
    assert log.fates()[Fate.TRIMMED] > 20
    assert {row.cause for row in log.states} >= {Cause.MARKED, Cause.TRIMMED}


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


def test_answers_of_an_earlier_spell_do_not_bring_a_path_back() -> None:
    """Its probes of the first spell come back in the second one, three in a row."""
    pair = Pair(probe_interval_ns=20 * MS)
    paths = pair.qps[0].peer.paths
    bad = paths.by_ev[1 << 16 | 2]
    prober = pair.ends[0]._core.prober
    link = pair.qps[0].peer.link
    spells: list[list[int]] = []
    for _ in range(2):
        paths.lost(bad, pair.now)
        spells.append([])
        for _ in range(3):
            pair.now = bad.next_probe
            before = prober.sent
            (datagram,) = prober.due(1, paths, link, pair.now, background=True)
            assert datagram[0] == bad.destination
            spells[-1].append(before)
        if len(spells) == 1:
            paths.restore(bad, pair.now)
    for probe in spells[0]:
        prober.answer(probe, pair.now)
    assert paths.bad == [bad]
    for probe in spells[1]:
        prober.answer(probe, pair.now)
    assert not paths.bad


def test_a_later_departure_handed_over_first_does_not_hide_an_earlier_one() -> None:
    """The first packet waits in its port behind one of its own, the second leaves at once by another and is lost."""
    pair = Pair(planes=3, uplinks=1, payload=4096)
    paths = pair.qps[0].peer.paths
    frame_ns = paths.all[0].port.frame_ns
    window = 2 * pair.delay_ns // 2
    judge = LossJudge(paths.all, 2 * pair.delay_ns)
    message = Message(0, memoryview(b"x"), 0, 0, None, 0, 0)

    def packet(psn: int, plane: int, sent: int) -> SentPacket:
        made = SentPacket(psn, message, 0, 1, Opcode.WRITE_MIDDLE, paths.all[plane], sent, None, psn)
        judge.sent(made)
        return made

    start = pair.now
    late, missing, proof = packet(1, 0, start + frame_ns), packet(2, 1, start), packet(3, 2, start + window)
    touched: dict[Path, None] = {}
    judge.arrived(proof, touched)
    found = judge.verdicts({1: late, 2: missing}, touched, 1, 65, LossReason.REORDER_WINDOW, start + 2 * window)
    assert [verdict.packet for verdict in found] == [missing]
