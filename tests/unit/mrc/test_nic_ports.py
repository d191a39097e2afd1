"""NIC ports under a virtual clock: what a lost carrier does here and at the peers, and how the plane comes back."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest

from testbed.transport.common.events import Fate, LossReason
from testbed.transport.mrc.codepoints import Opcode
from testbed.transport.mrc.ev import Cause, EvState
from testbed.transport.mrc.packets import BTH_OFFSET
from testbed.transport.mrc.planes import PLANE_TRANSITIONS, Plane, PlaneCause, PlaneState
from tests.support.virtual import MS, Packet, Pair, Verdict

RTT = 40 * MS
PLANES = 4
MESSAGE = 100_000


class Traffic:
    """A pair whose host 0, or both hosts, always have two messages posted; every packet sent is kept."""

    def __init__(self, *, both: bool = True, **options: int | str) -> None:
        self.pair = Pair(window_frames=40, rate_bps=2_000_000, **options)  # type: ignore[arg-type]
        self.sent: list[Packet] = []
        self.drop: Callable[[Packet], bool] = lambda packet: False
        self.pair.rule = self._rule
        self._hosts = (0, 1) if both else (0,)
        self._posted = [0, 0]
        self._data = bytes(MESSAGE)
        self.run(500)

    def _rule(self, packet: Packet) -> Verdict:
        self.sent.append(packet)
        return Verdict(None if self.drop(packet) else self.pair.delay_ns)

    def run(self, ms: int) -> None:
        stop = self.pair.now + ms * MS
        while self.pair.now < stop:
            for host in self._hosts:
                while self._posted[host] - len(self.pair.completed(host)) < 2:
                    self.pair.write(host, self._data, wr_id=self._posted[host])
                    self._posted[host] += 1
            if not self.pair.step():
                self.pair.now = stop  # nothing will ever happen by itself

    def data(self, host: int, plane: int, start: int, end: int | None = None) -> list[Packet]:
        """Data packets that `host` gave to a port in [start, end)."""
        return [
            packet
            for packet in self.sent
            if packet.is_data and packet.source == host and packet.plane == plane and start <= packet.now < (end or 1 << 62)
        ]

    def rate(self, host: int, start: int, end: int) -> float:
        """Bytes placed at the other host per ns of [start, end)."""
        rows = self.pair.log[1 - host].arrivals
        return sum(row[4] for row in rows if start <= row[0] < end and not row[5] & 2) / (end - start)

    def plane(self, host: int, plane: int) -> Plane:
        return self.pair.qps[host].peer.paths.by_plane[plane]

    def updates(self, host: int) -> list[Packet]:
        return [packet for packet in self.sent if packet.source == host and is_update(packet)]


def is_update(packet: Packet) -> bool:
    return packet.opcode == Opcode.ENDPOINT_REQUEST and packet.data[BTH_OFFSET + 12 : BTH_OFFSET + 14] == b"\x40\x00"


def test_data_on_a_dead_plane_is_sent_again_at_once_and_no_ev_is_blamed() -> None:
    traffic = Traffic()
    pair = traffic.pair
    out = [packet for packet in pair.qps[0].requester.outstanding.values() if packet.path.plane == 1]
    assert out
    down, sent = pair.now, len(traffic.sent)
    pair.port(0, 1, up=False)
    lost = [row for row in pair.log[0].packets if row[7] == Fate.LOST]
    assert {(row[1], row[4] >> 16, row[8]) for row in lost} == {(down, 1, LossReason.PORT_DOWN)}
    assert sorted(row[3] for row in lost) == sorted(packet.psn & 0xFFFFFF for packet in out)
    traffic.run(2_000)
    again = [packet for packet in traffic.sent[sent:] if packet.source == 0 and packet.is_data]
    assert [packet.psn for packet in again[: len(out)]] == sorted(row[3] for row in lost), "oldest first, before new data"
    assert not [row for log in pair.log for row in log.states if row[5] == Cause.LOST]
    assert not traffic.data(0, 1, down)
    assert not traffic.data(1, 1, down + pair.delay_ns + 1), "the peer was told one way later"


def test_an_update_has_these_bytes_and_goes_over_every_other_plane() -> None:
    traffic = Traffic()
    traffic.pair.port(0, 1, up=False)
    updates = traffic.updates(0)
    assert [packet.plane for packet in updates] == [0, 2, 3]
    for packet in updates:
        bth, erth = packet.data[BTH_OFFSET : BTH_OFFSET + 12], packet.data[BTH_OFFSET + 12 : BTH_OFFSET + 28]
        # opcode D8 | flags | p_key FFFF | reserved, QP 2 | control 00 | PSN: update 1
        assert bth.hex() == "d800ffff0000000200000001"
        # type 4, op 0 | vendor | ports 0, 2 and 3 are up | reserved | tx_timestamp | tsr 0, ftype 1
        assert erth.hex() == "400000000000000d00000000" + (packet.now >> 16 & 0xFFFF).to_bytes(2, "big").hex() + "0001"
    answer = next_answer(traffic)
    # opcode D9 | flags | p_key FFFF | reserved, QP 2 | control 00 | PSN: update 1; type 5, op 0
    assert answer[:14].hex() == "d900ffff00000002000000015000"


def next_answer(traffic: Traffic) -> bytes:
    traffic.run(60)
    sent = (packet for packet in traffic.sent if packet.source == 1 and packet.opcode == Opcode.ENDPOINT_RESPONSE)
    return next(packet.data[BTH_OFFSET:] for packet in sent if packet.data[BTH_OFFSET + 13] == 0)


@pytest.mark.parametrize("planes", [(1,), (0, 3)])
@pytest.mark.parametrize("hosts", [(0,), (0, 1)])
def test_the_other_planes_carry_their_share_and_the_full_rate_is_back_within_two_rtts(
    planes: tuple[int, ...], hosts: tuple[int, ...]
) -> None:
    traffic = Traffic()
    pair = traffic.pair
    begin = pair.now
    traffic.run(2_000)
    down = pair.now
    for host in hosts:
        for plane in planes:
            pair.port(host, plane, up=False)
    traffic.run(2_000)
    up = pair.now
    for host in hosts:
        for plane in planes:
            pair.port(host, plane, up=True)
    traffic.run(2_000)
    share = (PLANES - len(planes)) / PLANES
    for host in (0, 1):
        before = traffic.rate(host, begin, down)
        during = traffic.rate(host, down + 2 * RTT, up)
        assert during == pytest.approx(share * before, rel=0.03)
        assert traffic.rate(host, up + 2 * RTT, pair.now) >= 0.97 * before
        for plane in planes:
            assert not traffic.data(host, plane, down + RTT, up)
            first = traffic.data(host, plane, up)[0].now
            assert up + RTT <= first <= up + 2 * RTT, "after one probe has been answered"
    assert all(plane.open for qp in pair.qps for plane in qp.peer.paths.planes)


def test_an_update_is_repeated_until_it_is_acknowledged_and_then_no_more() -> None:
    traffic = Traffic(both=False)
    pair = traffic.pair
    down = pair.now
    traffic.drop = lambda packet: is_update(packet) and packet.now < down + 5 * RTT
    pair.port(0, 2, up=False)
    traffic.run(800)
    times = sorted({packet.now for packet in traffic.updates(0)})
    assert len(times) >= 3
    pauses = [later - earlier for earlier, later in pairwise(times)]
    assert pauses[0] == RTT * 5 // 4
    assert all(pause >= 2 * before for before, pause in pairwise(pauses))
    assert traffic.plane(1, 2).state is PlaneState.THERE_DOWN
    last = times[-1]
    assert down + 5 * RTT <= last
    traffic.run(4_000)
    assert traffic.updates(0)[-1].now == last


def test_lost_answers_are_asked_for_again() -> None:
    traffic = Traffic(both=False)
    down = traffic.pair.now
    traffic.drop = lambda packet: packet.opcode == Opcode.ENDPOINT_RESPONSE and packet.now < down + 4 * RTT
    traffic.pair.port(0, 2, up=False)
    traffic.run(1_000)
    assert len({packet.now for packet in traffic.updates(0)}) >= 2
    assert len([row for row in traffic.pair.log[1].planes if row[5] == PlaneCause.PEER_DOWN]) == 1


def test_an_update_overtaken_by_a_newer_one_changes_nothing() -> None:
    traffic = Traffic()
    pair = traffic.pair
    late = {"d800ffff0000000200000001"}
    kept = pair.rule

    def rule(packet: Packet) -> Verdict:
        slow = packet.data[BTH_OFFSET : BTH_OFFSET + 12].hex() in late
        return Verdict(300 * MS) if slow else kept(packet)

    pair.rule = rule
    pair.port(0, 1, up=False)
    traffic.run(20)
    pair.port(0, 1, up=True)
    traffic.run(1_000)
    assert traffic.plane(1, 1).open
    assert not [row for row in pair.log[1].planes if row[5] == PlaneCause.PEER_DOWN]


def test_a_plane_whose_switch_does_not_forward_yet_costs_no_packet() -> None:
    """A T0 that boots raises its ports before its tables are loaded."""
    traffic = Traffic()
    pair = traffic.pair
    pair.port(0, 1, up=False)
    traffic.run(500)
    up = pair.now
    traffic.drop = lambda packet: packet.plane == 1 and packet.now < up + 5 * RTT
    pair.port(0, 1, up=True)
    traffic.run(1_000)
    assert not [row for log in pair.log for row in log.packets if row[7] == Fate.LOST and row[0] >= up]
    assert not [row for log in pair.log for row in log.states if row[5] == Cause.LOST]
    for host in (0, 1):
        assert up + 6 * RTT <= traffic.data(host, 1, up)[0].now <= up + 8 * RTT


def test_no_plane_in_common_and_then_one() -> None:
    """The last ports to go cannot be told of: nothing gets through. Ports that return are heard of over what is up again."""
    traffic = Traffic()
    pair = traffic.pair
    for plane in range(PLANES):
        pair.port(plane % 2, plane, up=False)
    traffic.run(1_000)
    pair.port(0, 2, up=True)
    pair.port(1, 1, up=True)
    traffic.run(1_500)
    done = [len(pair.completed(host)) for host in (0, 1)]
    traffic.run(1_000)
    assert all(len(pair.completed(host)) > done[host] for host in (0, 1))
    assert [traffic.plane(host, plane).open for host in (0, 1) for plane in range(PLANES)] == [False, True, True, False] * 2


def test_every_port_down_and_up_again() -> None:
    traffic = Traffic()
    pair = traffic.pair
    for plane in range(PLANES):
        pair.port(0, plane, up=False)
    traffic.run(1_000)
    for plane in range(PLANES):
        pair.port(0, plane, up=True)
    up = pair.now
    traffic.run(1_000)
    assert all(traffic.data(host, plane, up) for host in (0, 1) for plane in range(PLANES))
    traffic.run(1_000)
    assert all(path.state is EvState.GOOD for qp in pair.qps for path in qp.peer.paths.all)


def test_paths_that_were_bad_before_are_not_probed_while_the_port_is_down_and_come_back_after() -> None:
    traffic = Traffic()
    pair = traffic.pair
    bad = 1 << 16 | 3
    repaired = pair.now + 10_000 * MS
    traffic.drop = lambda packet: packet.ev == bad and packet.now < repaired
    traffic.run(1_000)
    paths = pair.qps[0].peer.paths
    assert [path.ev for path in paths.bad] == [bad]
    usable = paths.usable
    pair.port(0, 1, up=False)
    down = pair.now
    assert paths.usable == usable - 5
    traffic.run(1_000)
    assert not [packet for packet in traffic.sent if packet.source == 0 and packet.plane == 1 and packet.now > down]
    repaired = pair.now
    pair.port(0, 1, up=True)
    traffic.run(1_000)
    assert paths.usable == usable + 1
    assert not paths.bad


def test_the_floor_of_active_evs_counts_open_planes_only() -> None:
    """With one plane left of four, a quarter of that plane's six EVs must stay, not a quarter of all."""
    traffic = Traffic(both=False)
    pair = traffic.pair
    for plane in (0, 1, 2):
        pair.port(0, plane, up=False)
    alive = 3 << 16 | 2
    traffic.drop = lambda packet: packet.source == 0 and packet.plane == 3 and packet.ev != alive
    traffic.run(2_000)
    assert [path.ev for path in traffic.plane(0, 3).active] == [alive]


def test_a_plane_without_a_healthy_ev_is_used_again_once_its_paths_come_back_while_it_is_the_only_one() -> None:
    """A sender that no path is left for waits for no port; what wakes it is the path that its probes bring back."""
    traffic = Traffic(both=False)
    pair = traffic.pair
    repaired = pair.now + 10_000 * MS
    traffic.drop = lambda packet: packet.source == 0 and packet.plane == 3 and packet.now < repaired
    traffic.run(1_000)
    assert not traffic.plane(0, 3).active
    for plane in (0, 1, 2):
        pair.port(0, plane, up=False)
    traffic.run(1_000)
    repaired = pair.now
    traffic.run(1_000)
    assert traffic.plane(0, 3).active
    assert traffic.data(0, 3, repaired)


def test_a_packet_written_off_with_its_port_that_arrives_says_nothing_of_reordering() -> None:
    traffic = Traffic(both=False)
    losses = traffic.pair.qps[0].requester.losses
    before = losses.reorder.value(traffic.pair.now)
    traffic.pair.port(0, 1, up=False)  # what has left the port arrives, so each of these is sent twice in vain
    traffic.run(200)
    assert losses.reorder.count > 0
    assert losses.reorder.value(traffic.pair.now) == before


@pytest.mark.parametrize("policy", ["oblivious", "single_path", "reps"])
def test_every_policy_leaves_a_dead_port_and_returns(policy: str) -> None:
    traffic = Traffic(policy=policy, both=False)
    pair = traffic.pair
    plane = next(packet.plane for packet in traffic.sent if packet.is_data)
    pair.port(1, plane, up=False)
    down = pair.now
    traffic.run(1_000)
    pair.port(1, plane, up=True)
    up = pair.now
    traffic.run(1_000)
    assert not traffic.data(0, plane, down + pair.delay_ns + 1, up)
    assert traffic.data(0, plane, up)


def test_saying_again_what_is_known_does_nothing() -> None:
    traffic = Traffic()
    traffic.pair.port(0, 1, up=True)
    traffic.pair.port(0, 2, up=False)
    traffic.pair.port(0, 2, up=False)
    assert len(traffic.updates(0)) == PLANES - 1
    assert [row[1:] for row in traffic.pair.log[0].ports] == [(2, False)]


def test_the_table_leaves_no_state_without_a_way_out_and_knows_both_ports() -> None:
    for state in PlaneState:
        causes = {cause for before, cause in PLANE_TRANSITIONS if before is state}
        here_down = state in (PlaneState.HERE_DOWN, PlaneState.BOTH_DOWN)
        there_down = state in (PlaneState.THERE_DOWN, PlaneState.BOTH_DOWN)
        assert (PlaneCause.PORT_UP in causes) == here_down
        assert (PlaneCause.PORT_DOWN in causes) == (not here_down)
        assert (PlaneCause.PEER_UP in causes) == there_down
        assert (PlaneCause.PEER_DOWN in causes) == (not there_down)
    assert {after for (_, _), after in PLANE_TRANSITIONS.items()} == set(PlaneState)
