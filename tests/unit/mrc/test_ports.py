"""The departure clock: what waits in a port, and when frames leave it."""

from __future__ import annotations

from testbed.transport.mrc.config import PortConfig
from testbed.transport.mrc.ports import PortClock

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
