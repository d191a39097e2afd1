"""The endpoint under a virtual clock: what arrives, what is judged lost, what a dead path costs."""

from __future__ import annotations

import random

import pytest

from testbed.transport.common.codepoints import Dscp
from testbed.transport.common.events import Fate, LossReason
from testbed.transport.mrc import QueuePairError
from testbed.transport.mrc.ev import Cause, EvState
from tests.support.virtual import MS, Packet, Pair, Verdict

RTT = 40 * MS


def content(size: int, seed: int = 0) -> bytes:
    return random.Random(seed).randbytes(size)


def transfer(pair: Pair, messages: int, size: int) -> bytes:
    """Post `messages` of `size` bytes side by side and return what must be in memory."""
    whole = content(messages * size)
    for number in range(messages):
        part = whole[number * size : (number + 1) * size]
        pair.write(0, part, number * size, wr_id=number, immediate=1000 + number)
    return whole


def test_messages_arrive_whole_in_order_and_once() -> None:
    pair = Pair()
    whole = transfer(pair, 5, 100_001)
    assert pair.run(30_000 * MS, until=lambda: len(pair.completed(0)) == 5)
    assert pair.memory[1][: len(whole)] == whole
    assert pair.completed(0) == [0, 1, 2, 3, 4]
    assert pair.immediates(1) == [1000, 1001, 1002, 1003, 1004]
    assert pair.log[0].fates() == {Fate.ACKNOWLEDGED: 5 * -(-100_001 // 1024)}


def test_the_load_is_equal_on_every_plane_and_path() -> None:
    pair = Pair()
    transfer(pair, 4, 240_000)
    pair.run(30_000 * MS, until=lambda: len(pair.completed(0)) == 4)
    by_ev = {ev: 0 for ev, _ in pair.paths}
    for row in pair.log[0].packets:
        by_ev[row[4]] += 1
    planes = [sum(count for ev, count in by_ev.items() if ev >> 16 == plane) for plane in range(4)]
    assert max(planes) - min(planes) <= 2
    assert max(by_ev.values()) - min(by_ev.values()) <= 3


def test_a_dead_path_is_left_at_once_and_comes_back() -> None:
    pair = Pair(window_frames=20, rate_bps=1_000_000)
    dead = 2 << 16 | 3
    start, stop = pair.now + 500 * MS, pair.now + 1500 * MS

    def rule(packet: Packet) -> Verdict:
        return Verdict(None if packet.ev == dead and start <= packet.now < stop else pair.delay_ns)

    pair.rule = rule
    transfer(pair, 10, 100_000)
    pair.run(60_000 * MS, until=lambda: len(pair.completed(0)) == 10)
    lost = [row for row in pair.log[0].packets if row[7] == Fate.LOST]
    assert lost
    assert {row[4] for row in lost} == {dead}
    assert max(row[0] for row in lost) - start <= 3 * RTT
    retired, restored = pair.log[0].states
    assert retired[2:] == (dead, EvState.GOOD, EvState.ASSUMED_BAD, Cause.LOST)
    assert restored[2:] == (dead, EvState.ASSUMED_BAD, EvState.GOOD, Cause.PROBES_ANSWERED)
    assert stop <= restored[0] <= stop + 9 * RTT


def test_oblivious_spraying_keeps_losing() -> None:
    pair = Pair(policy="oblivious", window_frames=60)
    dead = 2 << 16 | 3
    pair.rule = lambda packet: Verdict(None if packet.ev == dead else pair.delay_ns)
    whole = transfer(pair, 10, 100_000)
    assert pair.run(60_000 * MS, until=lambda: len(pair.completed(0)) == 10)
    assert pair.memory[1][: len(whole)] == whole
    lost = pair.log[0].fates()[Fate.LOST]
    assert 0.03 < lost / len(pair.log[0].packets) < 0.06  # one path in 24
    assert not pair.log[0].states


def test_replacement_stays_in_the_plane() -> None:
    pair = Pair(active_evs=8)  # two of six per plane
    active = [path.ev for path in pair.qps[0].peer.paths.planes[1].active]
    dead = active[0]
    pair.rule = lambda packet: Verdict(None if packet.ev == dead and packet.source == 0 else pair.delay_ns)
    transfer(pair, 5, 100_000)
    pair.run(60_000 * MS, until=lambda: len(pair.completed(0)) == 5)
    plane = pair.qps[0].peer.paths.planes[1]
    assert len(plane.active) == 2
    assert dead not in [path.ev for path in plane.active]


def test_a_mark_skips_one_turn_and_never_retires() -> None:
    pair = Pair()
    marked = 1 << 16 | 1
    pair.rule = lambda packet: Verdict(pair.delay_ns, mark=packet.ev == marked)
    transfer(pair, 5, 100_000)
    pair.run(60_000 * MS, until=lambda: len(pair.completed(0)) == 5)
    causes = {row[5] for row in pair.log[0].states}
    assert causes == {Cause.MARKED, Cause.TURN_PASSED}
    share = sum(row[4] == marked for row in pair.log[0].packets) / len(pair.log[0].packets)
    assert share < 0.75 / 24


@pytest.mark.parametrize(("dscp", "states"), [(Dscp.TRIMMED, True), (Dscp.TRIMMED_LASTHOP, False)])
def test_trimmed_packets_are_sent_again_at_once(dscp: Dscp, states: bool) -> None:
    pair = Pair()
    trimmed: set[int] = set()

    def rule(packet: Packet) -> Verdict:
        if packet.is_data and packet.psn % 10 == 0 and packet.psn not in trimmed:
            trimmed.add(packet.psn)
            return Verdict(pair.delay_ns, trim=dscp)
        return Verdict(pair.delay_ns)

    pair.rule = rule
    whole = transfer(pair, 3, 100_000)
    assert pair.run(60_000 * MS, until=lambda: len(pair.completed(0)) == 3)
    assert pair.memory[1][: len(whole)] == whole
    assert pair.log[0].fates()[Fate.TRIMMED] == len(trimmed)
    assert pair.log[0].fates()[Fate.LOST] == 0
    assert bool(pair.log[0].states) is states


@pytest.mark.parametrize("times", [1, 2, 3])
def test_the_last_packet_lost_several_times_still_arrives_soon(times: int) -> None:
    """Pitfall H-16: no later packet tells of the loss, so a timer must, and the trace says so."""
    pair = Pair()
    last = (pair.qps[0].psn + 99) & 0xFFFFFF
    drops = 0

    def rule(packet: Packet) -> Verdict:
        nonlocal drops
        if packet.is_data and packet.psn == last and drops < times:
            drops += 1
            return Verdict(None)
        return Verdict(pair.delay_ns)

    pair.rule = rule
    start = pair.now
    transfer(pair, 1, 100 * 1024)
    assert pair.run(60_000 * MS, until=lambda: len(pair.completed(0)) == 1)
    undisturbed = 100 * 1208 * 8 / 20_000_000 * 1e9 + RTT
    assert drops == times
    assert pair.now - start - undisturbed < (1 + 2.5 * times) * RTT
    assert {row[8] for row in pair.log[0].packets if row[7] == Fate.LOST} <= {LossReason.PROBE, LossReason.LATER_SAME_PATH}
    story = [step.what for step in pair.log[0].history() if step.what in ("probe", "lost")]
    assert story[:2] == ["probe", "lost"]
    assert bytes(pair.memory[1][: 100 * 1024]) == content(100 * 1024)
    assert pair.immediates(1) == [1000]


def test_the_final_acknowledgement_lost() -> None:
    """Pitfall H-16, the third case."""
    pair = Pair()
    lost = 0

    def rule(packet: Packet) -> Verdict:
        nonlocal lost
        if packet.source == 1 and lost < 1:
            lost += 1
            return Verdict(None)
        return Verdict(pair.delay_ns)

    pair.rule = rule
    transfer(pair, 1, 1000)
    assert pair.run(60_000 * MS, until=lambda: len(pair.completed(0)) == 1)
    assert pair.log[0].fates() == {Fate.ACKNOWLEDGED: 1}  # a probe asked; nothing was sent twice
    assert pair.now - 1_000 * MS < 4 * RTT


def test_a_whole_plane_dead_moves_its_share() -> None:
    pair = Pair(window_frames=60)
    pair.rule = lambda packet: Verdict(None if packet.ev >> 16 == 1 else pair.delay_ns)
    whole = transfer(pair, 8, 100_000)
    assert pair.run(60_000 * MS, until=lambda: len(pair.completed(0)) == 8)
    assert pair.memory[1][: len(whole)] == whole
    assert pair.log[0].fates()[Fate.LOST] / len(pair.log[0].packets) < 0.1


def test_everything_dead_for_a_while_then_alive() -> None:
    pair = Pair()
    start, stop = pair.now + 100 * MS, pair.now + 3_100 * MS
    pair.rule = lambda packet: Verdict(None if start <= packet.now < stop else pair.delay_ns)
    whole = transfer(pair, 4, 100_000)
    assert pair.run(120_000 * MS, until=lambda: len(pair.completed(0)) == 4)
    assert pair.memory[1][: len(whole)] == whole


def test_corrupted_packets_are_dropped_and_counted() -> None:
    pair = Pair()
    pair.rule = lambda packet: Verdict(pair.delay_ns, corrupt=packet.is_data and pair.rng.random() < 0.02)
    whole = transfer(pair, 4, 100_000)
    assert pair.run(120_000 * MS, until=lambda: len(pair.completed(0)) == 4)
    assert pair.memory[1][: len(whole)] == whole
    assert pair.ends[1].counters["dropped_icrc"] + pair.ends[1].counters["dropped_not_mrc"] > 0


def test_duplicates_are_harmless() -> None:
    pair = Pair()
    pair.rule = lambda packet: Verdict(pair.delay_ns, copies=2)
    whole = transfer(pair, 3, 50_000)
    assert pair.run(60_000 * MS, until=lambda: len(pair.completed(0)) == 3)
    assert pair.memory[1][: len(whole)] == whole
    assert pair.immediates(1) == [1000, 1001, 1002]
    assert pair.log[0].fates()[Fate.LOST] == 0


@pytest.mark.parametrize("seed", range(8))
def test_hostile_paths_lose_no_byte(seed: int) -> None:
    """Loss, reordering, duplication, corruption, trimming and marking at once."""
    pair = Pair(seed=seed, uplinks=3)
    rng = random.Random(seed)

    def rule(packet: Packet) -> Verdict:
        draw = rng.random()
        if draw < 0.05:
            return Verdict(None)
        delay = pair.delay_ns + rng.randrange(15 * MS)
        return Verdict(
            delay,
            copies=2 if draw > 0.97 else 1,
            trim=Dscp.TRIMMED if 0.05 < draw < 0.08 else None,
            mark=0.08 < draw < 0.12,
            corrupt=0.12 < draw < 0.13,
        )

    pair.rule = rule
    whole = transfer(pair, 10, 30_011)
    assert pair.run(200_000 * MS, until=lambda: len(pair.completed(0)) == 10)
    assert pair.memory[1][: len(whole)] == whole
    assert pair.immediates(1) == list(range(1000, 1010))


def test_both_directions_at_once_over_psn_wrap() -> None:
    pair = Pair()
    for host in (0, 1):
        requester, responder = pair.qps[host].requester, pair.qps[1 - host].responder
        assert responder is not None
        first = (1 << 24) - 10
        requester.cack, requester.next_psn, responder.window.cack = first - 1, first, first - 1
    forward, backward = content(80_000, 1), content(80_000, 2)
    pair.write(0, forward, wr_id=1, immediate=1)
    pair.write(1, backward, wr_id=2, immediate=2)
    assert pair.run(60_000 * MS, until=lambda: bool(pair.completed(0) and pair.completed(1)))
    assert pair.memory[1][:80_000] == forward
    assert pair.memory[0][:80_000] == backward


def test_a_wrong_key_is_refused_and_writes_nothing() -> None:
    pair = Pair()
    region = pair.regions[1]
    pair.ends[0].post_write(pair.qps[0].number, 1, memoryview(b"x" * 100), region.address, region.rkey ^ 1, None, pair.now)
    pair.flush(0)
    pair.run(2000 * MS)
    assert any(isinstance(event, QueuePairError) for _, event in pair.events)
    assert pair.ends[0].next_timer() is None  # the QP sends nothing more
    assert pair.ends[1].counters["dropped_access"] >= 1
    assert not any(pair.memory[1])


def test_garbage_never_raises() -> None:
    pair = Pair()
    rng = random.Random(7)
    good = [b"".join(buffers) for _, _, buffers in _some_datagrams(pair)]
    for _ in range(3000):
        packet = bytearray(rng.choice(good)) if rng.random() < 0.7 else bytearray(rng.randbytes(rng.randrange(200)))
        for _ in range(rng.randrange(4)):
            if packet:
                packet[rng.randrange(len(packet))] = rng.randrange(256)
        pair.ends[1].receive(memoryview(bytes(packet[: rng.randrange(1, 1400)])), rng.randrange(256), pair.now)


def _some_datagrams(pair: Pair) -> list[tuple[object, int, list[bytes | memoryview]]]:
    region = pair.regions[1]
    pair.ends[0].post_write(pair.qps[0].number, 1, memoryview(content(3000)), region.address, region.rkey, 5, pair.now)
    return list(pair.ends[0].transmit(pair.now))
