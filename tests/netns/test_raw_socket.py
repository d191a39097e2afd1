"""The raw socket by itself: what arrives is what was sent, and what the kernel refuses is counted by cause."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable

import pytest

from benchmarks.pair_network import inside
from testbed.host.rawsocket import RawSocket
from testbed.host.receiver import BATCH, FRAME_BYTES

pytestmark = [
    pytest.mark.netns,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: network namespaces and raw sockets"),
]

HERE = "::1"
LATEST_S = 10.0  # what has not come by then is lost


def run_inside(function: Callable[[], None]) -> None:
    done = inside(f"{__name__}:{function.__name__}")
    assert done.returncode == 0, done.stderr


def loopback(mtu: int = 65536) -> None:
    subprocess.run(["ip", "link", "set", "lo", "up", "mtu", str(mtu)], check=True)


def arrived(wire: RawSocket, expected: int) -> list[tuple[bytes, int]]:
    """All there is, once at least so much is there: a busy kernel takes its time even on loopback."""
    got: list[tuple[bytes, int]] = []
    deadline = time.monotonic() + LATEST_S
    while wire.receive(lambda packet, tclass, _now: got.append((bytes(packet), tclass))) or (
        len(got) < expected - wire.receive_drops and time.monotonic() < deadline
    ):
        pass
    return got


def there_and_back() -> None:
    loopback()
    wire = RawSocket({})
    assert arrived(wire, 0) == []
    for tclass in (0, 18, 19, 184):
        wire.send([((HERE, 0, 0x12345, 0), tclass, [b"inner header ", memoryview(b"payload")])])
    assert arrived(wire, 4) == [(b"inner header payload", tclass) for tclass in (0, 18, 19, 184)]
    largest = bytes(range(256)) * 36
    assert len(largest) == FRAME_BYTES
    sent = [largest[: FRAME_BYTES - 97 * index] for index in range(BATCH + 5)]
    for index, packet in enumerate(sent):
        wire.send([((HERE, 0, 0, 0), index * 4, [packet])])
    assert arrived(wire, len(sent)) == [(packet, index * 4) for index, packet in enumerate(sent)]
    assert wire.counters() == {
        "wire_sent": 4 + len(sent),
        "wire_dropped_full": 0,
        "wire_dropped_other": 0,
        "receive_buffer_drops": 0,
    }


def refusals() -> None:
    wire = RawSocket({"5f00:2::1": 2})
    for _ in range(3):
        wire.send([(("5f00:2::1", 0, 0, 0), 0, [b"x"])])  # no route
    wire.send([(("5f00:9::1", 0, 0, 0), 0, [b"x"])])
    counters = wire.counters()
    assert counters["wire_sent"] == 0
    assert counters["wire_dropped_unreachable_plane2"] == 3
    assert counters["wire_dropped_unreachable_plane-1"] == 1  # an address no plane knows


def too_large() -> None:
    loopback(1500)
    wire = RawSocket({})
    wire.send([((HERE, 0, 0, 0), 0, [bytes(1460)])])
    assert len(arrived(wire, 1)) == 1
    with pytest.raises(OSError, match="too long"):
        wire.send([((HERE, 0, 0, 0), 0, [bytes(1461)])])


def overflow() -> None:
    loopback()
    wire = RawSocket({})
    frame = bytes(4200)
    deadline = time.monotonic() + 30
    while not wire.receive_drops and time.monotonic() < deadline:
        wire.send([((HERE, 0, 0, 0), 0, [frame])])
    kept = len(arrived(wire, wire.sent))
    assert kept > 300
    assert wire.sent - kept == wire.receive_drops >= 1


def test_packets_arrive_whole_with_their_class() -> None:
    run_inside(there_and_back)


def test_refused_packets_are_counted_by_plane() -> None:
    run_inside(refusals)


def test_a_packet_larger_than_the_port_takes_is_an_error_not_fragments() -> None:
    run_inside(too_large)


def test_receive_buffer_drops_are_seen() -> None:
    run_inside(overflow)
