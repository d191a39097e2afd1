"""The baseline under a virtual clock: wire format, one path per QP, go-back-N, DCQCN, and a hostile network."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise
from zlib import crc32

import pytest

from testbed.transport.common.events import Fate, LossReason
from testbed.transport.common.icrc import icrc
from testbed.transport.rc import QpLimits, wire
from testbed.transport.rc.dcqcn import LEAST
from testbed.transport.rc.path import FIRST_SOURCE_PORT, five_tuple_hash
from tests.support.rc_pair import MS, PAYLOAD, Pair, Verdict, inner, is_data, opcode, psn

RTT = 40 * MS


def noise(size: int, seed: int = 3) -> bytes:
    return random.Random(seed).randbytes(size)


def test_a_write_is_placed_and_completes_and_its_bytes_are_rocev2() -> None:
    pair = Pair()
    data = noise(3 * PAYLOAD + 5)
    pair.write(0, data, 64, wr_id=7, immediate=0xABCD)
    assert pair.run(1000 * MS, lambda: pair.completed(0) == [7])
    assert pair.memory[1][64 : 64 + len(data)] == data
    assert pair.immediates(1) == [0xABCD]
    packets = [packet for _, host, packet in pair.sent if host == 0 and is_data(packet)]
    assert [opcode(packet) for packet in packets] == [0x06, 0x07, 0x07, 0x09]
    first, last = packets[0], packets[-1]
    assert first[6] == 17
    assert int.from_bytes(first[42:44], "big") == 4791
    assert int.from_bytes(first[40:42], "big") >= FIRST_SOURCE_PORT
    assert len({packet[40:42] for packet in packets}) == 1
    assert int.from_bytes(first[4:6], "big") == len(first) - 40 == int.from_bytes(first[44:46], "big")
    region = pair.regions[1]
    assert first[60:72] == (region.address + 64).to_bytes(8, "big") + region.rkey.to_bytes(4, "big")
    assert first[72:76] == len(data).to_bytes(4, "big")
    assert last[60:64] == (0xABCD).to_bytes(4, "big")
    assert last[49] >> 4 & 3 == 3, "five bytes are padded to eight"
    assert last[56] & 0x80, "the last packet asks for an acknowledgement"
    for packet in packets:
        assert packet[-4:] == icrc(packet[:-4])
    acks = [packet for _, host, packet in pair.sent if host == 1]
    assert opcode(acks[-1]) == 0x11
    assert acks[-1][60:64] == bytes((0x1F, 0, 0, 1))
    assert psn(acks[-1]) == psn(last)


def test_every_packet_of_a_qp_takes_the_path_of_its_5_tuple_and_qps_spread() -> None:
    pair = Pair(qps=64)
    for number in range(64):
        pair.write(0, noise(8 * PAYLOAD, number), wr_id=0, qp=number)
    pair.run(3000 * MS)
    taken: dict[int, set[int]] = {}
    for row in pair.log[0].packets:
        taken.setdefault(row[2], set()).add(row[4])
    assert len(taken) == 64
    assert all(len(evs) == 1 for evs in taken.values())
    assert len(set.union(*taken.values())) > 12, "64 QPs on 24 paths"
    ends = pair.ends[0]
    for qp in (pair.pairs[number][0] for number in range(64)):
        index = five_tuple_hash(inner(0), inner(1), qp.source_port) * 24 >> 32
        assert qp.requester.path is ends._peers[1].paths[index]


def test_the_hash_spreads_evenly_and_depends_on_every_part() -> None:
    counts = Counter(five_tuple_hash(inner(0), inner(1), port) * 24 >> 32 for port in range(0xC000, 0x10000))
    assert min(counts.values()) > 0.8 * 16384 / 24
    assert max(counts.values()) < 1.2 * 16384 / 24
    base = five_tuple_hash(inner(0), inner(1), 0xC123)
    assert base == crc32(inner(1), crc32(inner(0), crc32(bytes.fromhex("c12312b711"))))
    assert len({base, five_tuple_hash(inner(2), inner(1), 0xC123), five_tuple_hash(inner(0), inner(2), 0xC123)}) == 3


def test_a_lost_packet_is_named_and_everything_behind_it_is_sent_again() -> None:
    pair = Pair(cc="none")
    start = pair.pairs[0][0].psn
    lost: list[int] = []

    def rule(source: int, packet: bytes, now: int) -> Verdict:
        if is_data(packet) and psn(packet) == (start + 5) & 0xFFFFFF and not lost:
            lost.append(now)
            return Verdict()
        return Verdict(pair.delay_ns)

    pair.rule = rule
    pair.write(0, data := noise(40 * PAYLOAD), wr_id=1, immediate=9)
    assert pair.run(3000 * MS, lambda: bool(pair.completed(0)))
    assert pair.memory[1][: len(data)] == data
    sent = [number - start & 0xFFFFFF for number in pair.data_sent(0)]
    again = sent.index(5, sent.index(5) + 1)
    assert sent[:again] == list(range(again))
    assert sent[again:] == list(range(5, 40)), "go-back-N: from the hole on"
    resent = [packet for _, host, packet in pair.sent if host == 0 and is_data(packet)][again]
    assert resent[56] & 0x80, "nothing else is outstanding: it asks for an acknowledgement"
    fates = pair.log[0].fates()
    assert fates[Fate.LOST] == 1
    assert fates[Fate.REFUSED] == again - 6
    assert fates[Fate.ACKNOWLEDGED] == 40
    reasons = {row[8] for row in pair.log[0].packets if row[7] == Fate.LOST}
    assert reasons == {LossReason.LATER_SAME_PATH}
    naks = [packet for _, host, packet in pair.sent if host == 1 and packet[60] == 0x60]
    assert [psn(packet) - start & 0xFFFFFF for packet in naks] == [5], "one NAK per gap"
    counters = pair.ends[0].statistics()
    assert counters["timeouts"] == 0
    assert counters["retransmissions"] == 35 - (40 - again)
    assert pair.ends[1].statistics()["dropped_out_of_order"] == again - 6
    refused = [row for row in pair.log[1].arrivals if row[5] & 32]
    assert len(refused) == again - 6
    assert {row[2] - start & 0xFFFFFF for row in pair.log[1].arrivals if row[5] & 4} == set(range(5, again)), "sent again"


def test_a_lost_tail_waits_for_the_timer() -> None:
    pair = Pair(cc="none")
    last = pair.pairs[0][0].psn + 3
    dropped: list[int] = []

    def rule(source: int, packet: bytes, now: int) -> Verdict:
        if is_data(packet) and psn(packet) == last & 0xFFFFFF and len(dropped) < 2:
            dropped.append(now)
            return Verdict()
        return Verdict(pair.delay_ns)

    pair.rule = rule
    pair.write(0, noise(4 * PAYLOAD), wr_id=1)
    assert pair.run(5000 * MS, lambda: bool(pair.completed(0)))
    timeout = pair.ends[0].config.timeout_ns
    assert 4 * RTT <= timeout < 8 * RTT
    assert dropped[1] - dropped[0] >= timeout
    assert pair.ends[0].statistics()["timeouts"] == 2
    assert {row[8] for row in pair.log[0].packets if row[7] == Fate.LOST} == {LossReason.RTO}


def test_a_timeout_cuts_the_rate_where_no_cnp_can_come() -> None:
    """All is dropped, so nothing is marked: without the cut the QP would go on at line rate."""
    pair = Pair()
    cc = pair.pairs[0][0].requester.dcqcn
    assert cc is not None
    line = cc.rate
    pair.rule = lambda source, packet, now: Verdict() if is_data(packet) else Verdict(pair.delay_ns)
    pair.write(0, noise(4 * PAYLOAD), wr_id=1)
    pair.run(5000 * MS, lambda: pair.ends[0].statistics()["timeouts"] == 2)
    assert cc.cuts == 2
    assert cc.rate < 0.6 * line


def test_acknowledgements_are_coalesced_and_asked_for_once_a_round_trip() -> None:
    pair = Pair(cc="none", ack_bytes=8 * PAYLOAD)
    pair.write(0, noise(64 * PAYLOAD), wr_id=1)
    assert pair.run(3000 * MS, lambda: bool(pair.completed(0)))
    asked = [now for now, host, packet in pair.sent if host == 0 and packet[56] & 0x80]
    sent = [now for now, host, _ in pair.sent if host == 0]
    assert asked[0] == sent[0]
    assert asked[-1] == sent[-1], "a message's last packet asks"
    assert all(RTT <= later - sooner < RTT + 5 * MS for sooner, later in pairwise(asked[:-1])), "two frames may leave at once"
    assert 64 / 8 <= pair.ends[0].counters["acks"] <= 64 / 8 + len(asked)


@pytest.mark.parametrize(("qps", "ack_packets"), [(16, 16), (7 * 16, 4)])
def test_the_timer_does_not_run_out_where_many_qps_share_a_port(qps: int, ack_packets: int) -> None:
    """Each QP's share is so small that its ACKs, by bytes alone, would be due only after the timer of four round trips."""
    pair = Pair(planes=1, uplinks=1, qps=qps, cc="none", ack_bytes=ack_packets * PAYLOAD)
    size = len(pair.memory[1]) // qps // PAYLOAD * PAYLOAD
    for number in range(qps):
        pair.write(0, noise(size, number), number * size, qp=number)
    assert pair.run(60_000 * MS, lambda: len(pair.completed(0)) == qps)
    sent = [now for now, host, packet in pair.sent if host == 0 and is_data(packet)]
    assert (sent[-1] - sent[0]) / (len(sent) - 1) * qps * ack_packets > pair.ends[0].config.timeout_ns
    counters = pair.ends[0].statistics()
    assert (counters["timeouts"], counters["retransmissions"]) == (0, 0)


def test_the_timer_does_not_run_out_for_the_last_of_a_burst_at_the_least_rate() -> None:
    """A QP that was idle may send three packets at once; at 0.1 % of the line rate the next one leaves 46 round trips later."""
    pair = Pair(planes=1, uplinks=1)
    pair.now = 3_600_000 * MS  # idle for longer than two packets take at that rate
    cc = pair.pairs[0][0].requester.dcqcn
    assert cc is not None
    for _ in range(20):
        cc.congested(pair.now)
    assert cc.rate == LEAST * 5e6
    pair.write(0, noise(12 * PAYLOAD))
    assert pair.run(60_000 * MS, lambda: bool(pair.completed(0)))
    sent = [now for now, host, packet in pair.sent if host == 0]
    timeout = pair.ends[0].config.timeout_ns
    gaps = [after - before for before, after in pairwise(sent)]
    assert any(first < RTT and second > RTT + timeout for first, second in pairwise(gaps))
    counters = pair.ends[0].statistics()
    assert (counters["timeouts"], counters["retransmissions"]) == (0, 0)


def test_a_path_that_dies_stalls_its_qp_and_no_other() -> None:
    """There is no other path: it waits until the path is back, with ever longer timers, and then goes on."""
    pair = Pair(qps=2, cc="none", seed=4)
    evs = [pair.pairs[number][0].requester.path.ev for number in (0, 1)]
    assert evs[0] != evs[1]
    dead_until = pair.now + 5_000 * MS

    def rule(source: int, packet: bytes, now: int) -> Verdict:
        label = int.from_bytes(packet[1:4], "big") & 0x3FFFF
        dead = source == 0 and label == pair.pairs[0][0].requester.path.label and now < dead_until
        return Verdict() if dead else Verdict(pair.delay_ns)

    pair.rule = rule
    pair.write(0, noise(20 * PAYLOAD), wr_id=0, qp=0)
    pair.write(0, noise(20 * PAYLOAD), 1 << 16, wr_id=1, qp=1)
    assert pair.run(1000 * MS, lambda: pair.completed(0) == [1])
    assert not pair.run(dead_until - pair.now, lambda: 0 in pair.completed(0))
    assert pair.run(20_000 * MS, lambda: 0 in pair.completed(0))
    assert not pair.errors()


def test_a_qp_leaves_a_port_without_carrier_and_comes_back() -> None:
    pair = Pair(cc="none")
    end, requester = pair.ends[0], pair.pairs[0][0].requester
    before = requester.path
    pair.write(0, data := noise(40 * PAYLOAD), wr_id=0)
    pair.run(30 * MS)
    gone = len(pair.data_sent(0))
    end.port_state(before.plane, False, pair.now)
    assert requester.path.plane != before.plane
    dead = before.label
    pair.rule = lambda source, packet, now: (
        Verdict() if source == 0 and int.from_bytes(packet[1:4], "big") & 0x3FFFF == dead else Verdict(pair.delay_ns)
    )
    assert pair.run(3000 * MS, lambda: pair.completed(0) == [0])
    assert pair.memory[1][: len(data)] == data
    evs = Counter(row[4] for row in pair.log[0].packets)
    assert evs == {before.ev: gone, requester.path.ev: len(pair.data_sent(0)) - gone}, "recorded with the path it took"
    end.port_state(before.plane, True, pair.now)
    assert requester.path is before


def test_without_any_port_nothing_is_sent_and_nothing_spins() -> None:
    pair = Pair()
    for plane in range(4):
        pair.ends[0].port_state(plane, False, pair.now)
    pair.write(0, noise(PAYLOAD), wr_id=0)
    pair.run(1000 * MS)
    assert not pair.data_sent(0)
    pair.ends[0].port_state(2, True, pair.now)
    pair.flush()
    assert pair.run(1000 * MS, lambda: pair.completed(0) == [0])


def test_retries_end_where_they_are_limited() -> None:
    pair = Pair(limits=QpLimits(linear=2, exponential=1))
    pair.rule = lambda source, packet, now: Verdict()
    pair.write(0, noise(PAYLOAD), wr_id=0)
    assert pair.run(60_000 * MS, lambda: bool(pair.errors()))
    assert pair.errors() == ["retry counter exceeded"]
    with pytest.raises(ValueError, match="not ready"):
        pair.write(0, noise(PAYLOAD), wr_id=1)


def test_a_write_outside_the_region_ends_the_qp() -> None:
    pair = Pair()
    pair.write(0, noise(PAYLOAD), len(pair.memory[1]) - 10, wr_id=0)
    assert pair.run(500 * MS, lambda: bool(pair.errors()))
    assert pair.errors() == ["remote access error"]
    assert not any(pair.memory[1])


def test_an_error_is_told_once_however_often_it_is_answered() -> None:
    pair = Pair()
    pair.rule = lambda source, packet, now: Verdict(pair.delay_ns, pair.delay_ns + MS)
    pair.write(0, noise(PAYLOAD), len(pair.memory[1]) - 10, wr_id=0)
    pair.run(500 * MS)
    assert pair.errors() == ["remote access error"]


def test_a_port_that_nothing_waits_for_any_more_is_idle_not_dry() -> None:
    """A QP ends while its next packet waits for the port; the other's packet a second later finds no port left dry."""
    pair = Pair(planes=1, uplinks=1, qps=2)
    pair.write(0, noise(100 * PAYLOAD), len(pair.memory[1]) - 10)
    assert pair.run(500 * MS, lambda: bool(pair.errors()))
    pair.run(1000 * MS)
    pair.write(0, noise(PAYLOAD), qp=1)
    assert pair.run(500 * MS, lambda: bool(pair.completed(0)))
    assert pair.ends[0].statistics()["port_dry_ns"] < 10 * MS


def test_a_window_bounds_what_is_unacknowledged() -> None:
    pair = Pair(cc="none", window_bytes=4 * PAYLOAD)
    pair.write(0, noise(50 * PAYLOAD), wr_id=0)
    most = 0

    def done() -> bool:
        nonlocal most
        most = max(most, pair.pairs[0][0].requester.window.inflight)
        return bool(pair.completed(0))

    assert pair.run(3000 * MS, done)
    assert most == 4 * PAYLOAD


def test_what_is_no_packet_of_ours_is_dropped_and_counted() -> None:
    pair = Pair()
    pair.write(0, noise(PAYLOAD), wr_id=0)
    packet = next(packet for _, host, packet in pair.sent if host == 0)
    end = pair.ends[1]
    end.receive(memoryview(packet[:30]), 0, pair.now)
    end.receive(memoryview(bytes(100)), 0, pair.now)
    wrong = bytearray(packet)
    wrong[-8] ^= 1
    end.receive(memoryview(wrong), 0, pair.now)
    elsewhere = bytearray(packet)
    elsewhere[wire.BTH_AT + 7] ^= 0x40
    end.receive(memoryview(bytes(elsewhere[:-4]) + icrc(elsewhere[:-4])), 0, pair.now)
    strange = bytearray(packet)
    strange[wire.BTH_AT] = 0x04
    end.receive(memoryview(bytes(strange[:-4]) + icrc(strange[:-4])), 0, pair.now)
    names = ("dropped_not_rc", "dropped_icrc", "dropped_no_qp", "dropped_opcode")
    assert [end.counters[name] for name in names] == [2, 1, 1, 1]


@pytest.mark.parametrize("seed", range(30))
def test_a_hostile_network_loses_no_byte(seed: int) -> None:
    """Loss, delay, reordering, duplication, corruption and marks, both ways; PSNs wrap; messages of every size."""
    rng = random.Random(seed)
    pair = Pair(seed=seed, qps=2, ack_bytes=rng.choice((1, 4, 16)) * PAYLOAD)
    loss, twice, wrong = rng.uniform(0, 0.1), rng.uniform(0, 0.1), rng.uniform(0, 0.05)
    jitter = rng.choice((0, 1, 30)) * MS
    calm_after = pair.now + 4_000 * MS

    def rule(source: int, packet: bytes, now: int) -> Verdict:
        if now > calm_after:
            return Verdict(pair.delay_ns)
        if rng.random() < loss:
            return Verdict()
        delays = [pair.delay_ns + rng.randint(0, jitter) for _ in range(2 if rng.random() < twice else 1)]
        return Verdict(*delays, mark=rng.random() < 0.02, corrupt=rng.random() < wrong)

    pair.rule = rule
    for end in pair.ends:
        for qp in end._qps.values():
            assert 0 <= qp.psn < 1 << 24
    expected: list[list[tuple[int, bytes]]] = [[], []]
    for number in range(12):
        data = noise(rng.choice((1, 3, PAYLOAD, PAYLOAD + 1, 9 * PAYLOAD)), seed * 100 + number)
        pair.write(0, data, number << 14, wr_id=number, immediate=number, qp=number % 2)
        expected[number % 2].append((number, data))
    assert pair.run(120_000 * MS, lambda: len(pair.completed(0)) == 12), pair.ends[0].statistics()
    assert not pair.errors()
    for which in (0, 1):
        numbers = [number for number, _ in expected[which]]
        assert [number for number in pair.completed(0) if number % 2 == which] == numbers
        assert [number for number in pair.immediates(1) if number % 2 == which] == numbers
        for number, data in expected[which]:
            assert pair.memory[1][number << 14 : (number << 14) + len(data)] == data
    placed = [(row[1], row[2]) for row in pair.log[1].arrivals if not row[5] & (2 | 32)]
    assert len(placed) == len(set(placed)), "each PSN is placed once"
    assert pair.run(60_000 * MS) is False
    assert pair.ends[0].next_timer() is None, "nothing is left to wait for"


def test_a_wrong_configuration_is_refused() -> None:
    with pytest.raises(ValueError, match="no congestion control 'nscc'"):
        Pair(cc="nscc")
    with pytest.raises(ValueError, match="at most"):
        QpLimits(linear=8)
    with pytest.raises(ValueError, match="from 0 to"):
        QpLimits(timeout_n=25)
