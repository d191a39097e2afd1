"""The port program's own fault switches: loss, a changed byte, a lower rate. Applied through Ports, counted at the sender."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from testbed.fabric import queues
from testbed.fabric.network import Fabric
from testbed.fabric.ports import Ports
from tests.netns import kit

pytestmark = pytest.mark.netns
Sandbox = Callable[[Callable[[], None]], None]
COUNT = 1000
HOP = ("p0t0-0", "p0t1-0")


def ports_of(net: Fabric) -> Ports:
    assert net._ports is not None
    return net._ports


def cross(net: Fabric, size: int) -> list[bytes]:
    """COUNT packets over HOP; what arrives: all but what HOP says was lost there meanwhile."""
    found: list[bytes] = []
    before = kit.counters(net)[HOP].dropped_fault
    with kit.raw(net, "h0") as source, kit.raw(net, "h2") as target:
        for _ in range(COUNT // 100):
            for _ in range(100):
                kit.send(source, kit.path(net, 0, 2), bytes(size))
            found += [data for data, _, _ in kit.receive_all(target, 0, 0.02)]
        left = COUNT - len(found) + before
        found += [data for data, _, _ in kit.receive_all(target, lambda: left - kit.counters(net)[HOP].dropped_fault)]
    return found


@pytest.mark.parametrize("ratio", [0.0, 0.1, 1.0])
def test_a_share_is_lost_behind_the_shaper_and_counted_once(sandbox: Sandbox, ratio: float) -> None:
    """What is lost has used the link: accepted = delivered at the far end's wire, and lost = dropped_fault, exactly."""

    def body() -> None:
        with kit.fabric((1, 2, 1, 2), 10**9) as net:
            ports_of(net).set_loss(kit.ifindex_of(net, HOP), ratio)
            got = cross(net, 200)
            count = kit.counters(net)
            assert count[HOP].packets == count[HOP].delivered_packets == COUNT
            assert len(got) == COUNT - count[HOP].dropped_fault
            assert count[HOP].dropped_fault == pytest.approx(ratio * COUNT, abs=5 * (COUNT * ratio * (1 - ratio)) ** 0.5)
            assert sum(other.dropped_fault for other in count.values()) == count[HOP].dropped_fault
            ports_of(net).set_loss(kit.ifindex_of(net, HOP), 0)
            assert len(cross(net, 200)) == COUNT

    sandbox(body)


def test_exactly_one_byte_beyond_the_outer_header_changes(sandbox: Sandbox) -> None:
    def body() -> None:
        with kit.fabric((1, 2, 1, 2), 10**9) as net:
            ports_of(net).set_corrupt(kit.ifindex_of(net, HOP), 0.25)
            got = cross(net, 200)
            count = kit.counters(net)[HOP]
            changed = [data for data in got if data != bytes(200)]
            assert len(got) == COUNT  # the outer header is never touched, so each finds its way
            assert {bytes(sorted(data)) for data in changed} == {bytes(199) + b"\xff"}
            assert len({data.index(0xFF) for data in changed}) > 100  # anywhere in the packet
            assert len(changed) == count.corrupted == pytest.approx(COUNT / 4, abs=70)
            assert count.dropped_fault == count.helper_failures == 0

    sandbox(body)


def test_a_rate_changes_under_a_backlog(steady: Sandbox) -> None:
    """Shaper and virtual queue together: what waits goes on waiting, and drains at the new rate."""

    def body() -> None:
        hop = ("h0", "p0t0-0")
        with kit.fabric((1, 1, 1, 2), 20_000_000) as net, kit.raw(net, "h0") as source:
            for _ in range(80):
                kit.send(source, kit.path(net, 0, 1), bytes(4200))
            port = net.topology.link(*hop).lower
            before = kit.prompt_counters(net)[hop].queue_bytes
            queues.set_rate(net.namespaces, port, queues.shaper_at(5_000_000, net.links))
            ports_of(net).set_rate(port.ifindex, 5_000_000 // 8)
            first = kit.prompt_counters(net)[hop]
            assert first.queue_bytes > before / 2
            time.sleep(0.1)
            rates = []
            for _ in range(3):  # a stall of the machine costs one reading, not the test
                start = kit.prompt_counters(net)[hop]
                time.sleep(0.1)
                end = kit.prompt_counters(net)[hop]
                rates.append((end.delivered_bytes - start.delivered_bytes) * 8e9 / (end.t_ns - start.t_ns))
                assert abs(end.queue_bytes - (end.bytes - end.delivered_bytes)) < 2 * queues.full_frame(net.links)
            assert sorted(rates)[1] == pytest.approx(5_000_000, rel=0.15)  # three frames of 15 in 0.1 s

    steady(body)


@pytest.mark.parametrize("ratio", [-0.1, 1.5, float("nan")])
def test_a_ratio_is_between_0_and_1(sandbox: Sandbox, ratio: float) -> None:
    def body() -> None:
        with kit.fabric((1, 1, 1, 2)) as net, pytest.raises(ValueError, match="between 0 and 1"):
            ports_of(net).set_loss(net.ports[0].ifindex, ratio)

    sandbox(body)
