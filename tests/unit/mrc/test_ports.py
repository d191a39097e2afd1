"""The departure clock: what waits in a port, and when frames leave it."""

from __future__ import annotations

from testbed.transport.common.config import PortConfig
from testbed.transport.common.ports import PortClock
from tests.support.virtual import MS, Pair

FRAME = 1000 + 54 + 24  # inner bytes, Ethernet and outer IPv6, overhead
FRAME_NS = FRAME * 8 * 1000  # at 1 Mbit/s


def test_frames_leave_one_serialisation_time_apart_and_join_while_fewer_than_two_wait() -> None:
    port = PortClock(PortConfig(0, 1_000_000), 1000, 24)
    assert port.frame_ns == FRAME_NS
    assert port.depart(1000, 5) == 5
    assert port.has_room(5)
    assert port.depart(1000, 5) == 5 + FRAME_NS
    assert not port.has_room(5)
    assert not port.has_room(5)
    assert port.full_until() == 6
    assert port.has_room(6)
    assert port.depart(1000, 6) == 5 + 2 * FRAME_NS
    assert not port.has_room(5 + FRAME_NS)
    assert port.full_until() == 6 + FRAME_NS


def test_an_idle_port_starts_afresh() -> None:
    port = PortClock(PortConfig(0, 1_000_000), 1000, 24)
    port.depart(1000, 0)
    assert port.depart(1000, 10 * FRAME_NS) == 10 * FRAME_NS


def test_a_bucket_lets_frames_leave_sooner_but_not_more_of_them() -> None:
    port = PortClock(PortConfig(0, 1_000_000, bucket_bytes=FRAME * 3 // 2), 1000, 24)
    times = [port.depart(1000, 0) for _ in range(3)]
    assert times == [0, FRAME_NS // 2, FRAME_NS * 3 // 2]
    assert port.free_at == 3 * FRAME_NS


def test_a_port_that_is_down_has_no_room() -> None:
    port = PortClock(PortConfig(0, 1_000_000), 1000, 24)
    port.up = False
    assert not port.has_room(0)


def test_a_port_left_empty_with_a_packet_ready_is_dry_and_an_idle_or_dead_one_is_not() -> None:
    pair = Pair(planes=2, uplinks=1, rate_bps=1_000_000, window_frames=100)
    ports = pair.ends[0]._core.ports
    pair.write(0, bytes(200_000))
    pair.run(100 * MS)
    assert all(port.dry_ns == 0 for port in ports.values())
    free_at = max(port.free_at for port in ports.values())
    pair.now = free_at + 50 * MS  # the host was away
    pair.flush(0)
    assert all(50 * MS <= port.dry_ns <= 65 * MS for port in ports.values())
    before = {plane: port.dry_ns for plane, port in ports.items()}
    pair.run(60_000 * MS, until=lambda: bool(pair.completed(0)))
    pair.now += 10_000 * MS  # nothing to send
    pair.write(0, bytes(5000), wr_id=1)
    pair.run(5_000 * MS, until=lambda: len(pair.completed(0)) == 2)
    assert {plane: port.dry_ns for plane, port in ports.items()} == before


def test_a_path_that_uses_one_port_makes_no_other_dry() -> None:
    pair = Pair(policy="single_path", rate_bps=1_000_000)
    pair.write(0, bytes(100_000))
    pair.run(60_000 * MS, until=lambda: bool(pair.completed(0)))
    assert sum(port.dry_ns for port in pair.ends[0]._core.ports.values()) == 0
