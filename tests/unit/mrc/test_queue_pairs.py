"""QPs: their life, their limits, what puts them in error, and several of them on one pair's paths and window."""

from __future__ import annotations

import random
from typing import Any

import pytest

from testbed.transport.common.events import Fate
from testbed.transport.mrc import QpLimits, QueuePairError
from testbed.transport.mrc.codepoints import NackReason, Opcode
from testbed.transport.mrc.ev import Cause, EvState
from testbed.transport.mrc.nscc import NsccParameters, NsccWindow
from testbed.transport.mrc.packets import control
from testbed.transport.mrc.queue_pair import QP_TRANSITIONS, QpState, QpStateError
from testbed.transport.mrc.responder import Trigger
from tests.support.virtual import MS, Packet, Pair, Verdict

RTT = 40 * MS


def errors(pair: Pair) -> list[str]:
    return [event.reason for _, event in pair.events if isinstance(event, QueuePairError)]


def test_the_life_of_a_qp_is_its_table() -> None:
    qp = Pair().qps[0]
    assert qp.state.name == "RTS"
    for state in QpState:
        for target in QpState:
            qp.state = state
            if (state, target) in QP_TRANSITIONS:
                qp.become(target)
                assert qp.state is target
            else:
                with pytest.raises(QpStateError):
                    qp.become(target)
                assert qp.state is state


def test_posting_needs_rts_and_data() -> None:
    pair = Pair()
    number, region = pair.qps[0].number, pair.regions[1]
    with pytest.raises(ValueError, match="at least one byte"):
        pair.ends[0].post_write(number, 1, memoryview(b""), region.address, region.rkey, None, pair.now)
    fresh = pair.ends[0].create_qp(1)
    with pytest.raises(ValueError, match="INIT"):
        pair.ends[0].post_write(fresh.number, 1, memoryview(b"x"), region.address, region.rkey, None, pair.now)


def test_a_reset_qp_is_forgotten_and_packets_to_it_are_counted() -> None:
    pair = Pair()
    pair.write(0, bytes(50_000))
    pair.run(30 * MS)
    pair.ends[1].reset_qp(pair.qps[1].number, pair.now)
    pair.run(500 * MS)
    assert pair.ends[1].counters["dropped_no_qp"] > 0
    pair.ends[0].reset_qp(pair.qps[0].number, pair.now)
    assert pair.qps[0].requester.deadline() is None
    assert pair.qps[0].peer.window.inflight == 0


def test_what_a_reset_qp_had_in_flight_costs_the_others_no_window() -> None:
    pair = Pair()
    requester = pair.qps[0].requester
    parameters = NsccParameters.derive(mtu=1024, base_rtt_ns=RTT, bdp=40_000, max_window=60_000)
    requester.window = window = NsccWindow(parameters)
    pair.write(0, bytes(50_000))
    assert window.inflight > 4 * 1024
    pair.ends[0].reset_qp(pair.qps[0].number, pair.now)
    assert window.inflight == 0
    assert window.limit == 60_000


def test_several_qps_share_paths_and_window() -> None:
    pair = Pair(qps=4, window_frames=20)
    data = random.Random(1).randbytes(4 * 60_000)
    region = pair.regions[1]
    for index, (qp, _) in enumerate(pair.all_qps):
        part = memoryview(data)[index * 60_000 : (index + 1) * 60_000]
        pair.ends[0].post_write(qp.number, index, part, region.address + index * 60_000, region.rkey, index, pair.now)
    pair.flush(0)
    assert pair.qps[0].peer.window.inflight <= 20 * 1024
    assert pair.run(30_000 * MS, until=lambda: len(pair.completed(0)) == 4)
    assert pair.memory[1][: len(data)] == data
    assert len({id(qp.peer) for qp, _ in pair.all_qps}) == 1


def test_a_dead_path_is_learned_once_for_all_qps() -> None:
    pair = Pair(qps=4, window_frames=40, rate_bps=1_000_000)
    dead = 1 << 16 | 1
    pair.rule = lambda packet: Verdict(None if packet.ev == dead else pair.delay_ns)
    region = pair.regions[1]
    data = memoryview(bytes(60_000))
    for index, (qp, _) in enumerate(pair.all_qps):
        pair.ends[0].post_write(qp.number, index, data, region.address + index * 60_000, region.rkey, None, pair.now)
    pair.flush(0)
    pair.run(30_000 * MS, until=lambda: len(pair.completed(0)) == 4)
    assert len([row for row in pair.log[0].states if row[2] == dead]) == 1


def test_no_more_immediates_are_out_than_the_peer_has_buffers_for() -> None:
    pair = Pair(limits=QpLimits(max_wimm=2))
    most = 0
    for number in range(12):
        pair.write(0, bytes(2048), wr_id=number, immediate=number)
    requester = pair.qps[0].requester
    while len(pair.completed(0)) < 12:
        assert pair.step()
        most = max(most, requester.queue.immediates_out)
    assert most == 2
    assert pair.immediates(1) == list(range(12))


def test_too_many_immediates_put_the_qp_in_error() -> None:
    pair = Pair(limits=QpLimits(max_wimm=100, max_wimm_dest=3))
    first = pair.qps[0].psn & 0xFFFFFF
    pair.rule = lambda packet: Verdict(None if packet.is_data and packet.psn == first else pair.delay_ns)
    for number in range(20):
        pair.write(0, bytes(100), wr_id=number, immediate=number)
    pair.run(2_000 * MS, until=lambda: bool(errors(pair)))
    assert errors(pair) == ["the responder answered NAK: too many wimm"]
    assert pair.qps[0].state is QpState.ERROR


def test_a_wrong_address_is_a_transport_nak() -> None:
    pair = Pair()
    region = pair.regions[1]
    pair.ends[0].post_write(
        pair.qps[0].number, 1, memoryview(bytes(10)), region.address + region.length - 5, region.rkey, None, pair.now
    )
    pair.flush(0)
    pair.run(500 * MS)
    assert errors(pair) == ["the responder answered NAK: remote access"]
    assert not any(pair.memory[1])


def test_the_retry_counter_ends_a_qp() -> None:
    pair = Pair(limits=QpLimits(linear=2, exponential=1, timeout_n=16))  # 67 ms
    pair.rule = lambda packet: Verdict(None)
    pair.write(0, bytes(100))
    pair.run(60_000 * MS, until=lambda: bool(errors(pair)))
    assert errors(pair) == ["retry counter exceeded"]
    assert pair.ends[0].counters["timeouts"] == 4
    assert pair.qps[0].requester.deadline() is None


def test_timeouts_stay_and_then_double() -> None:
    pair = Pair(limits=QpLimits(linear=2, exponential=3, timeout_n=16), probes=False)
    pair.rule = lambda packet: Verdict(None)
    times: list[int] = []
    start = pair.now
    pair.write(0, bytes(100))
    while not errors(pair):
        before = pair.ends[0].counters["timeouts"]
        pair.step()
        if pair.ends[0].counters["timeouts"] > before:
            times.append(pair.now - start)
            start = pair.now
    unit = 1024 << 16
    assert [round(time / unit, 1) for time in times] == [1.0, 1.0, 1.0, 2.0, 4.0, 8.0]


def test_mpr_bounds_what_is_in_flight() -> None:
    pair = Pair(limits=QpLimits(mpr=1, mpr_dest=1), window_frames=1000, rate_bps=1_000_000_000, payload=256)
    pair.write(0, bytes(300_000))
    pair.run(15 * MS)
    assert pair.qps[0].requester.next_psn - pair.qps[0].psn == 128
    assert pair.run(30_000 * MS, until=lambda: pair.completed(0) == [0])


def test_a_dynamic_mpr_follows_the_responder() -> None:
    pair = Pair(limits=QpLimits(mpr=1, mpr_dest=3, dynamic_mpr=True), window_frames=2000, rate_bps=1_000_000_000, payload=256)
    pair.write(0, bytes(600_000))
    most = 0
    while not pair.completed(0):
        assert pair.step()
        most = max(most, pair.qps[0].requester.next_psn - pair.qps[0].requester.cack - 1)
    assert most == 3 * 128


def test_a_packet_beyond_the_responders_window_is_refused_and_sent_again() -> None:
    pair = Pair(limits=QpLimits(mpr=4, mpr_dest=1), window_frames=2000, rate_bps=1_000_000_000, payload=256)
    data = random.Random(2).randbytes(120_000)
    first = pair.qps[0].psn & 0xFFFFFF
    lost: list[int] = []

    def rule(packet: Packet) -> Verdict:
        if packet.is_data and packet.psn == first and not lost:
            lost.append(packet.psn)
            return Verdict(None)
        return Verdict(pair.delay_ns)

    pair.rule = rule
    pair.write(0, data)
    assert pair.run(60_000 * MS, until=lambda: pair.completed(0) == [0])
    assert pair.memory[1][: len(data)] == data
    assert pair.ends[1].counters["dropped_out_of_window"] > 0
    assert pair.log[0].fates()[Fate.REFUSED] > 0


def test_an_unexpected_event_ends_the_qp() -> None:
    pair = Pair()
    pair.write(0, bytes(5000))
    responder = pair.qps[1].responder
    assert responder is not None
    body = responder.nack(NackReason.UNEXP_EVENT, Trigger(pair.qps[0].psn, 0, 0), 0, 0)
    peer = pair.qps[1].peer
    buffers, _ = control(peer.link, peer.paths.all[0], Opcode.NACK, pair.qps[0].number, 0, body)
    pair.ends[0].receive(memoryview(b"".join(buffers)), 0, pair.now)
    pair.flush(0)
    assert errors(pair) == ["the responder met an unexpected event"]


def test_a_lost_transport_ack_is_asked_for() -> None:
    pair = Pair()
    dropped: list[int] = []

    def rule(packet: Packet) -> Verdict:
        if packet.opcode == Opcode.TRANSPORT_ACK and not dropped:
            dropped.append(packet.now)
            return Verdict(None)
        return Verdict(pair.delay_ns)

    pair.rule = rule
    start = pair.now
    pair.write(0, bytes(1000))
    assert pair.run(10_000 * MS, until=lambda: pair.completed(0) == [0])
    assert dropped
    assert pair.now - start < 5 * RTT
    assert pair.log[0].fates() == {Fate.ACKNOWLEDGED: 1}


@pytest.mark.parametrize(
    "bad",
    [
        {"mpr": 0},
        {"mpr": 256},
        {"linear": 8},
        {"exponential": 26},
        {"timeout_n": 25},
        {"max_wimm": 0},
        {"max_wimm_dest": 1 << 16},
    ],
)
def test_limits_are_checked(bad: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must be from"):
        QpLimits(**bad)


def test_a_denied_path_carries_nothing_until_it_is_allowed_and_probed() -> None:
    pair = Pair()
    denied = 2 << 16 | 4
    pair.ends[0].deny(1, denied, pair.now)
    pair.ends[0].deny(1, denied, pair.now)  # twice is once
    pair.write(0, bytes(200_000))
    pair.run(30_000 * MS, until=lambda: bool(pair.completed(0)))
    assert denied not in {row[4] for row in pair.log[0].packets}
    path = pair.qps[0].peer.paths.by_ev[denied]
    assert path.state.name == "DENIED"
    pair.ends[0].allow(1, denied, pair.now)
    assert path.state.name == "UNKNOWN"
    pair.run(20 * RTT)
    assert path.state.name == "GOOD"


def test_a_bad_path_can_be_denied_and_the_last_one_cannot() -> None:
    pair = Pair(planes=1, uplinks=2)
    paths = pair.qps[0].peer.paths
    paths._retire(paths.all[0], Cause.LOST, pair.now)
    pair.ends[0].deny(1, paths.all[0].ev, pair.now)
    assert paths.all[0].state is EvState.DENIED
    with pytest.raises(ValueError, match="last usable"):
        pair.ends[0].deny(1, paths.all[1].ev, pair.now)


def test_recycled_entropies_leave_marked_paths() -> None:
    pair = Pair(policy="reps", window_frames=12)
    marked = 3 << 16 | 0
    pair.rule = lambda packet: Verdict(pair.delay_ns, mark=packet.ev == marked)
    data = random.Random(3).randbytes(400_000)
    pair.write(0, data)
    assert pair.run(60_000 * MS, until=lambda: pair.completed(0) == [0])
    assert pair.memory[1][: len(data)] == data
    share = sum(row[4] == marked for row in pair.log[0].packets) / len(pair.log[0].packets)
    assert share < 0.75 / 24


def test_one_path_carries_everything_under_single_path() -> None:
    pair = Pair(policy="single_path")
    pair.write(0, bytes(60_000))
    assert pair.run(60_000 * MS, until=lambda: pair.completed(0) == [0])
    assert len({row[4] for row in pair.log[0].packets}) == 1
