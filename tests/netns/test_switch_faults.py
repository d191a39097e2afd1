"""A switch reboots or hangs: what it forgets, what it keeps, and that it comes back as planned."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress

import pytest

from testbed.errors import KernelError
from testbed.fabric import srv6
from testbed.fabric.netlink import Netlink
from testbed.fabric.verify import verify
from tests.netns import kit, seen

pytestmark = pytest.mark.netns
Sandbox = Callable[[Callable[[], None]], None]
SHAPE = (2, 2, 2, 2)


@pytest.mark.parametrize("switch", ["p0t1-1", "p1t0-0"])
def test_h21_a_rebooted_switch_is_dark_and_empty_and_comes_back_as_planned(sandbox: Sandbox, switch: str) -> None:
    def body() -> None:
        with kit.fabric(SHAPE) as net:
            mine = [link for _, link in net.topology.ports_of(switch)]
            before = seen.snapshot(net)
            for _ in range(3):
                asked = time.monotonic_ns()
                assert asked < net.reboot(switch) < time.monotonic_ns()
                assert all(
                    seen.carrier(net, link) == ((False, False) if link in mine else (True, True)) for link in net.topology.links
                )
                with Netlink(net.namespaces, switch) as node:
                    assert srv6.read_routes(node)[0] == set()
                    assert srv6.read_neighbours(node) == set()
                for link in mine:  # a neighbour keeps all of its own
                    far = link.lower.node if link.upper.node == switch else link.upper.node
                    with Netlink(net.namespaces, far) as end:
                        assert net.plans[far].routes <= srv6.read_routes(end)[0]
                net.boot(switch)
                net.compare()
                assert seen.snapshot(net) == before
                assert verify(net, net.topology).problems == []
            with pytest.raises(KernelError, match="no such fault is active"):
                net.boot(switch)

    sandbox(body)


def test_a_reboot_loses_what_its_queues_held_and_what_is_sent_into_it(sandbox: Sandbox) -> None:
    """Two hosts fill a T0's port to a third; the T0 forgets what waits there. What hosts send meanwhile are fault drops."""

    def body() -> None:
        with (
            kit.fabric((1, 1, 1, 3), rate_bps=2_000_000) as net,
            kit.raw(net, "h0") as zero,
            kit.raw(net, "h1") as one,
            kit.raw(net, "h2") as two,
        ):
            for _ in range(40):
                kit.send(zero, kit.path(net, 0, 2), bytes(4096))
                kit.send(one, kit.path(net, 1, 2), bytes(4096))
            assert kit.wait_until(lambda: kit.counters(net)["p0t0-0", "h2"].queue_bytes > 10 * 4096)
            net.reboot("p0t0-0")
            assert kit.counters(net)["p0t0-0", "h2"].queue_bytes == 0
            out = kit.counters(net)["p0t0-0", "h2"].delivered_packets
            assert len(kit.receive_all(two, out)) == out < 70  # of 80
            for _ in range(5):
                with suppress(OSError):  # the host's own port drops it, and the kernel tells
                    kit.send(zero, kit.path(net, 0, 2), bytes(4096))
            assert kit.counters(net)["h0", "p0t0-0"].dropped_fault == 5
            net.boot("p0t0-0")
            assert kit.receive_all(two, 0) == []
            kit.send(zero, kit.path(net, 0, 2), bytes(4096))
            assert len(kit.receive_all(two, 1)) == 1
            assert verify(net, net.topology).problems == []

    sandbox(body)


def test_a_hanging_switch_keeps_its_links_and_forwards_nothing(sandbox: Sandbox) -> None:
    def body() -> None:
        with kit.fabric((1, 2, 2, 1)) as net, kit.raw(net, "h0") as source, kit.raw(net, "h1") as target:
            net.hang("p0t1-0")
            assert all(seen.carrier(net, link) == (True, True) for link in net.topology.links)
            for index in (0, 0, 1):
                kit.send(source, kit.path(net, 0, 1, index), bytes(100))
            assert len(kit.receive_all(target, 1)) == 1
            kit.wait_until(lambda: kit.counters(net)["p0t1-0", "p0t0-1"].dropped_fault >= 2)
            assert kit.counters(net)["p0t1-0", "p0t0-1"].dropped_fault == 2
            net.wake("p0t1-0")
            kit.send(source, kit.path(net, 0, 1, 0), bytes(100))
            assert len(kit.receive_all(target, 1)) == 1
            assert verify(net, net.topology).problems == []

    sandbox(body)
