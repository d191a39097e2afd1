"""Faults do what they say, to the named link only, and undoing them restores everything."""

from __future__ import annotations

import random
import subprocess
import time
from collections.abc import Callable

import pytest

from testbed.errors import KernelError
from testbed.fabric import queues, static
from testbed.fabric.netlink import Netlink
from testbed.fabric.network import Fabric
from testbed.fabric.verify import verify
from testbed.model.scenario import FaultAction
from tests.netns import kit, seen

pytestmark = pytest.mark.netns
Sandbox = Callable[[Callable[[], None]], None]
SHAPE = (2, 2, 2, 2)
ENDS = [("p0t0-0", "p0t1-1"), ("h1", "p1t0-0")]  # a T0-T1 link and a NIC-T0 link


@pytest.mark.parametrize("ends", ENDS)
def test_h19_h20_down_loses_carrier_and_up_restores_everything(sandbox: Sandbox, ends: tuple[str, str]) -> None:
    """Snapshot before = snapshot after, at both ends and everywhere else, whichever end goes down; only the named link does."""

    def body() -> None:
        with kit.fabric(SHAPE) as net:
            link = net.topology.link(*ends)
            before = seen.snapshot(net)
            assert verify(net, net.topology).problems == []
            for side, port in (("upper", link.upper), ("lower", link.lower)):
                asked = time.monotonic_ns()
                confirmed = net.apply_fault(link, FaultAction.DOWN, side=side)
                assert asked < confirmed < time.monotonic_ns()
                assert seen.carrier(net, link) == (False, False)
                others = [other for other in net.topology.links if other is not link]
                assert all(seen.carrier(net, other) == (True, True) for other in others)
                dead = verify(net, net.topology).problems
                assert any(port.node in problem and "is missing" in problem for problem in dead)
                net.undo_fault(link, FaultAction.DOWN, side=side)
                assert seen.carrier(net, link) == (True, True)
                net.compare()
                assert seen.snapshot(net) == before
                assert verify(net, net.topology).problems == []

    sandbox(body)


def test_what_does_not_come_back_is_found_and_named(sandbox: Sandbox) -> None:
    """A route, a neighbour at the far end, a shaper: each taken by hand between the undoing and the comparison."""

    def body() -> None:
        with kit.fabric(SHAPE) as net:
            link = net.topology.link("p0t0-0", "p0t1-1")
            near, far = link.upper, link.lower
            sid = next(str(route.prefix) for route in net.plans[near.node].routes if route.device == near.ifindex)
            for node, command, named in (
                (near.node, f"ip -6 route del {sid}", sid),
                (far.node, f"ip -6 neigh flush dev {far.name} nud permanent", f"{far.node}: .*{far.ifindex}.* is missing"),
                (near.node, f"tc qdisc change dev {near.name} root tbf rate 3mbit burst 9000 limit 1000000", "asked for"),
            ):
                net.apply_fault(link, FaultAction.DOWN)
                net.undo_fault(link, FaultAction.DOWN)
                with net.namespaces.inside(node):
                    subprocess.run(command.split(), check=True)
                with pytest.raises(KernelError, match=named):
                    net.compare()
                with Netlink(net.namespaces, node) as end:
                    static.install_plan(end, net.plans[node])
                net.compare()  # looks at what was undone since the last call, and that was nothing

    sandbox(body)


def test_packets_into_a_dead_link_are_counted_as_fault_drops(sandbox: Sandbox) -> None:
    """At the end that kept its routes and at the end that lost them, full-size packets too, each at its own port."""

    def body() -> None:
        with kit.fabric(SHAPE) as net, kit.raw(net, "h0") as zero, kit.raw(net, "h2") as two:
            link, other = net.topology.link("p0t0-0", "p0t1-1"), net.topology.link("h3", "p0t0-1")
            net.apply_fault(link, FaultAction.DOWN)
            net.apply_fault(other, FaultAction.DOWN)
            for index in (0, 0, 0, 1, 1):  # over p0t1-0, over p0t1-1
                kit.send(zero, kit.path(net, 0, 2, index), bytes(4096))
                kit.send(two, kit.path(net, 2, 0, index), bytes(4096))
            kit.send(two, kit.path(net, 2, 3, 0), bytes(4096))
            assert len(kit.receive_all(two, 3)) == 3
            assert len(kit.receive_all(zero, 3)) == 3
            kit.wait_until(lambda: sum(count.dropped_fault for count in kit.counters(net).values()) >= 5)
            lost = {port: count.dropped_fault for port, count in kit.counters(net).items() if count.dropped_fault}
            assert lost == {("p0t0-0", "p0t1-1"): 2, ("p0t1-1", "p0t0-0"): 2, ("p0t0-1", "h3"): 1}
            assert kit.counters(net)["p0t0-0", "p0t1-1"].packets == 0
            net.undo_fault(link, FaultAction.DOWN)
            net.undo_fault(other, FaultAction.DOWN)
            kit.send(zero, kit.path(net, 0, 2, 1), bytes(100))
            assert len(kit.receive_all(two, 1)) == 1
            assert verify(net, net.topology).problems == []

    sandbox(body)


@pytest.mark.parametrize(("direction", "arrives"), [("forward", (0, 3)), ("backward", (3, 0)), ("both", (0, 0))])
def test_blackhole_is_silent_and_one_way_if_asked(sandbox: Sandbox, direction: str, arrives: tuple[int, int]) -> None:
    """Forward is from the lower end (the T0) to the upper (the T1)."""

    def body() -> None:
        with kit.fabric((1, 2, 2, 1)) as net, kit.raw(net, "h0") as zero, kit.raw(net, "h1") as one:
            link = net.topology.link("p0t0-0", "p0t1-0")
            net.apply_fault(link, FaultAction.BLACKHOLE, direction)
            assert seen.carrier(net, link) == (True, True)
            for _ in range(3):
                kit.send(zero, kit.path(net, 0, 1, 0), bytes(100))
                kit.send(one, kit.path(net, 1, 0, 0), bytes(100))
            assert (len(kit.receive_all(one, arrives[0])), len(kit.receive_all(zero, arrives[1]))) == arrives
            kit.wait_until(lambda: sum(count.dropped_fault for count in kit.counters(net).values()) >= 6 - sum(arrives))
            count = kit.counters(net)
            lost = (count["p0t0-0", "p0t1-0"].dropped_fault, count["p0t1-0", "p0t0-0"].dropped_fault)
            assert lost == (3 - arrives[0], 3 - arrives[1])
            net.undo_fault(link, FaultAction.BLACKHOLE, direction)
            assert verify(net, net.topology).problems == []

    sandbox(body)


def test_overlapping_faults_end_with_the_last(sandbox: Sandbox) -> None:
    def body() -> None:
        with kit.fabric(SHAPE) as net:
            one, two = net.topology.link("p0t0-0", "p0t1-1"), net.topology.link("p0t0-1", "p0t1-1")
            for link in (one, one, two):
                net.apply_fault(link, FaultAction.DOWN)
            net.undo_fault(one, FaultAction.DOWN)
            assert seen.carrier(net, one) == (False, False)
            net.undo_fault(one, FaultAction.DOWN)  # while the other link of this T1 is still down
            assert seen.carrier(net, one) == (True, True)
            assert seen.carrier(net, two) == (False, False)
            net.undo_fault(two, FaultAction.DOWN)
            assert verify(net, net.topology).problems == []
            with pytest.raises(KernelError, match="no such fault is active"):
                net.undo_fault(two, FaultAction.DOWN)

    sandbox(body)


@pytest.mark.parametrize("direction", ["forward", "backward", "both"])
def test_loss_takes_its_share_of_the_named_direction(sandbox: Sandbox, direction: str) -> None:
    def body() -> None:
        with kit.fabric((1, 2, 2, 1)) as net, kit.raw(net, "h0") as zero, kit.raw(net, "h1") as one:
            link = net.topology.link("p0t0-0", "p0t1-0")
            before = seen.snapshot(net)
            net.apply_fault(link, FaultAction.LOSS, direction, 0.5)
            for _ in range(400):
                kit.send(zero, kit.path(net, 0, 1, 0), bytes(100))
                kit.send(one, kit.path(net, 1, 0, 0), bytes(100))
            hops = {"forward": ("p0t0-0", "p0t1-0"), "backward": ("p0t1-0", "p0t0-0")}
            got = {
                "forward": len(kit.receive_all(one, lambda: 400 - kit.counters(net)[hops["forward"]].dropped_fault)),
                "backward": len(kit.receive_all(zero, lambda: 400 - kit.counters(net)[hops["backward"]].dropped_fault)),
            }
            count = kit.counters(net)
            lost = {way: count[hop].dropped_fault for way, hop in hops.items()}
            for way, arrived in got.items():
                assert arrived + lost[way] == 400
                assert (130 < lost[way] < 270) if direction in (way, "both") else lost[way] == 0
            with pytest.raises(KernelError, match="no such fault is active"):
                net.undo_fault(link, FaultAction.LOSS, direction, 0.1)
            net.undo_fault(link, FaultAction.LOSS, direction, 0.5)
            for _ in range(100):
                kit.send(zero, kit.path(net, 0, 1, 0), bytes(100))
            assert len(kit.receive_all(one, 100)) == 100
            assert seen.snapshot(net) == before
            assert verify(net, net.topology).problems == []

    sandbox(body)


def test_corrupt_changes_packets_that_still_arrive(sandbox: Sandbox) -> None:
    def body() -> None:
        with kit.fabric((1, 2, 2, 1)) as net, kit.raw(net, "h0") as zero, kit.raw(net, "h1") as one:
            link = net.topology.link("p0t0-0", "p0t1-0")
            payload = bytes(range(200))
            net.apply_fault(link, FaultAction.CORRUPT, "forward", 1.0)
            for _ in range(20):
                kit.send(zero, kit.path(net, 0, 1, 0), payload)
                kit.send(one, kit.path(net, 1, 0, 0), payload)
            changed = [data for data, _, _ in kit.receive_all(one, 20)]
            assert len(changed) == 20
            assert all(sum(here != there for here, there in zip(data, payload, strict=True)) == 1 for data in changed)
            assert [data for data, _, _ in kit.receive_all(zero, 20)] == [payload] * 20
            assert kit.counters(net)["p0t0-0", "p0t1-0"].corrupted == 20
            net.undo_fault(link, FaultAction.CORRUPT, "forward", 1.0)
            kit.send(zero, kit.path(net, 0, 1, 0), payload)
            assert [data for data, _, _ in kit.receive_all(one, 1)] == [payload]
            assert verify(net, net.topology).problems == []

    sandbox(body)


@pytest.mark.parametrize("direction", ["forward", "backward", "both"])
def test_rate_lowers_the_shaper_and_the_virtual_queue_and_both_come_back(sandbox: Sandbox, direction: str) -> None:
    def body() -> None:
        with kit.fabric(SHAPE) as net, kit.raw(net, "h0") as zero, kit.raw(net, "h2") as two:
            link = net.topology.link("p0t0-0", "p0t1-1")
            before = seen.snapshot(net)
            net.apply_fault(link, FaultAction.RATE, direction, 2_000_000)
            slow = {"forward": [link.lower], "backward": [link.upper], "both": [link.lower, link.upper]}[direction]
            for port in (link.lower, link.upper):
                with Netlink(net.namespaces, port.node) as end:
                    rate = queues.read(end)[port.ifindex].rate_bps
                assert rate == (2_000_000 if port in slow else 100_000_000)
            path = kit.path(net, 0, 2, 1) if direction != "backward" else kit.path(net, 2, 0, 1)
            source, target = (zero, two) if direction != "backward" else (two, zero)
            hop = slow[0].node, link.upper.node if slow[0] is link.lower else link.lower.node
            began = time.monotonic()
            for _ in range(30):
                kit.send(source, path, bytes(4096))
            assert kit.wait_until(lambda: kit.counters(net)[hop].bytes >= 30 * 4096)
            waiting, drained = kit.counters(net)[hop], 250_000 * (time.monotonic() - began)
            assert waiting.queue_bytes > 30 * 4096 - drained, "the virtual queue drains at the new rate too"
            assert len(kit.receive_all(target, 30)) == 30
            assert time.monotonic() - began > 0.3, "30 frames at 2 Mbit/s take 0.5 s, at the old rate 10 ms"
            net.undo_fault(link, FaultAction.RATE, direction, 2_000_000)
            assert seen.snapshot(net) == before
            assert verify(net, net.topology).problems == []

    sandbox(body)


# What overlaps below: all of it touches p0t1-1, its links or its neighbours.
OVERLAPPING: tuple[tuple[str, str, str | float], ...] = (
    ("down", "p0t0-0:p0t1-1", "upper"),
    ("down", "p0t0-0:p0t1-1", "lower"),
    ("down", "p0t0-0:p0t1-1", "upper"),
    ("down", "h0:p0t0-0", "lower"),
    ("reboot", "p0t1-1", ""),
    ("reboot", "p0t0-0", ""),
    ("reboot", "p0t1-1", ""),
    ("hang", "p0t1-1", ""),
    ("loss", "p0t0-0:p0t1-1", 0.25),
    ("loss", "p0t0-0:p0t1-1", 0.5),
    ("rate", "p0t0-1:p0t1-1", 3_000_000),
    ("rate", "p0t0-1:p0t1-1", 2_000_000),
    ("corrupt", "p0t0-1:p0t1-1", 0.1),
    ("blackhole", "p0t0-1:p0t1-1", "forward"),
    ("blackhole", "p0t0-1:p0t1-1", "both"),
)


def change(net: Fabric, fault: tuple[str, str, str | float], *, begin: bool) -> None:
    kind, where, how = fault
    if kind in ("reboot", "hang"):
        {("reboot", True): net.reboot, ("reboot", False): net.boot, ("hang", True): net.hang, ("hang", False): net.wake}[
            kind, begin
        ](where)
        return
    link = net.topology.link(*where.split(":"))
    act = net.apply_fault if begin else net.undo_fault
    direction = how if kind == "blackhole" else "both"
    amount = how if isinstance(how, float | int) else 0.0
    act(link, FaultAction(kind), str(direction), amount, str(how) if kind == "down" else "")


@pytest.mark.parametrize("seed", range(6))
def test_overlapping_faults_compose_and_end_in_any_order(sandbox: Sandbox, seed: int) -> None:
    """Begun and ended in random order, twice: the dark links are those with a reason left, and nothing of it all remains."""

    def body() -> None:
        rng = random.Random(seed)
        with kit.fabric(SHAPE) as net:
            before = seen.snapshot(net)
            for _ in range(2):
                waiting, active = list(OVERLAPPING), list[tuple[str, str, str | float]]()
                while waiting or active:
                    begin = bool(waiting) and (not active or rng.random() < 0.6)
                    pool = waiting if begin else active
                    fault = pool.pop(rng.randrange(len(pool)))
                    change(net, fault, begin=begin)
                    net.compare()
                    if begin:
                        active.append(fault)
                    off = {where for kind, where, _ in active if kind == "reboot"}
                    down = {where for kind, where, _ in active if kind == "down"}
                    for link in net.topology.links:
                        dark = link.name in down or bool(off & {link.lower.node, link.upper.node})
                        assert seen.carrier(net, link) == (not dark, not dark), (link.name, active)
                assert seen.snapshot(net) == before
                assert verify(net, net.topology).problems == []

    sandbox(body)


def test_a_plane_down_is_confirmed_link_by_link_and_undone(sandbox: Sandbox) -> None:
    def body() -> None:
        with kit.fabric(SHAPE) as net:
            before = seen.snapshot(net)
            plane = [link for link in net.topology.links if link.plane == 1]
            asked = time.monotonic_ns()
            confirmed = net.apply_faults(plane, FaultAction.DOWN)
            print(f"{len(plane)} links down: {[round((at - asked) / 1e6, 1) for at in confirmed]} ms")
            assert len(confirmed) == len(plane) == 8
            assert all(asked < at < time.monotonic_ns() for at in confirmed)
            for link in net.topology.links:
                assert seen.carrier(net, link) == ((False, False) if link.plane == 1 else (True, True))
            net.undo_faults(plane, FaultAction.DOWN)
            net.compare()
            assert seen.snapshot(net) == before
            assert verify(net, net.topology).problems == []

    sandbox(body)
