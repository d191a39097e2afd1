"""verify names what is wrong: node and prefix, or the path and the hop where it ends."""

from __future__ import annotations

import shlex
import subprocess
from collections import Counter
from collections.abc import Callable

import pytest

from testbed.fabric import hashing
from testbed.fabric.network import Fabric
from testbed.fabric.probe import Route, crossings
from testbed.fabric.tracing import Tracer
from testbed.fabric.verify import covering_pairs, verify
from testbed.model.paths import paths
from testbed.model.scenario import FaultAction, Routing, RoutingSpec, TopologySpec
from testbed.model.topology import build
from tests.netns import kit

pytestmark = pytest.mark.netns
Sandbox = Callable[[Callable[[], None]], None]


def test_a_good_fabric_has_no_problems(sandbox: Sandbox) -> None:
    def body() -> None:
        with kit.fabric((2, 2, 2, 2), delay_ns=(2_000_000, 5_000_000)) as net:
            report = verify(net, net.topology)
            assert report.problems == []
            # 8 ordered pairs across groups over 4 paths, 4 inside a group over 2.
            assert report.paths_probed == 8 * 4 + 4 * 2
            assert report.routes_checked == 4 * 2 + 4 * 6 + 4 * 4  # hosts, T0s, T1s

    sandbox(body)


BROKEN = [
    ("p1t0-0", "ip -6 route del 5f00:1:2001::/48", "p1t0-0: route 5f00:1:2001::/48 unicast", "is missing"),
    ("p1t0-0", "ip -6 route add 5f00:1:7777::/48 dev p1t0-0-eth0", "p1t0-0: route 5f00:1:7777::/48", "not in the plan"),
    ("p0t1-1", "ip -6 route del blackhole 5f00::/16", "p0t1-1: route 5f00::/16 blackhole", "is missing"),
    ("p0t1-1", "ip -6 route del 5f00:0:2001::/48", "p0t1-1: route 5f00:0:2001::/48 seg6local End", "is missing"),
    ("h2", "ip -6 route del 5f00:1::/32", "h2: route 5f00:1::/32", "is missing"),
    ("h2", "ip -6 addr del 5f00:1:4002::/128 dev h2-eth1", "h2: address 5f00:1:4002::", "is missing"),
    ("p0t0-1", "ip -6 neigh flush nud permanent dev p0t0-1-eth2", "p0t0-1: neighbour fe80::", "is missing"),
    ("p0t0-1", "tc qdisc change dev p0t0-1-eth0 root handle 1: tbf rate 9mbit burst 9k limit 1m", "p0t0-1-eth0", "asked for"),
]


@pytest.mark.parametrize(("node", "command", "named", "wrong"), BROKEN, ids=[f"{case[0]}: {case[1]}" for case in BROKEN])
def test_what_was_changed_behind_our_back_is_named(sandbox: Sandbox, node: str, command: str, named: str, wrong: str) -> None:
    def body() -> None:
        with kit.fabric((2, 2, 2, 2)) as net:
            with net.namespaces.inside(node):
                subprocess.run(command.split(), check=True)
            found = verify(net, net.topology, pairs=[(0, 3)]).problems
            assert any(named in problem and wrong in problem for problem in found), found

    sandbox(body)


def test_a_path_that_ends_is_named_with_its_hops(sandbox: Sandbox) -> None:
    def body() -> None:
        with kit.fabric((2, 2, 2, 2)) as net:
            with net.namespaces.inside("p1t0-0"):
                subprocess.run(["ip", "-6", "route", "del", "5f00:1:2001::/48"], check=True)
            found = verify(net, net.topology, pairs=[(0, 3)]).problems
            hops = "h0 -> p1t0-0 -> p1t1-1 -> p1t0-1 -> h3"
            assert any(
                problem.startswith(f"{hops}: probe lost after h0 (p1t0-0 did not send it towards p1t1-1)") for problem in found
            )
            assert sum("probe lost" in problem for problem in found) == 1

    sandbox(body)


def test_a_misdirected_path_is_found(sandbox: Sandbox) -> None:
    """Two uplinks exchanged: every probe arrives, over as many switches as planned, but not over the planned ones."""

    def body() -> None:
        with kit.fabric((1, 2, 2, 1)) as net:
            ports = {link.upper.node: link for link in net.topology.links if link.lower.node == "p0t0-0"}
            one, two = ports["p0t1-0"], ports["p0t1-1"]
            swap = [
                f"ip -6 route replace 5f00:0:2000::/48 via fe80::{two.upper.ifindex:x} dev {two.lower.name} proto static",
                f"ip -6 route replace 5f00:0:2001::/48 via fe80::{one.upper.ifindex:x} dev {one.lower.name} proto static",
            ]
            with net.namespaces.inside("p0t0-0"):
                for command in swap:
                    subprocess.run(command.split(), check=True)
            found = verify(net, net.topology).problems
            assert any("p0t0-0: route 5f00:0:2000::/48" in problem for problem in found)

    sandbox(body)


def test_the_pairs_for_large_fabrics_cross_every_link_both_ways() -> None:
    for spec in (TopologySpec(2, 3, 4, 2), TopologySpec(2, 1, 1, 3), TopologySpec(1, 2, 2, 5)):
        topology = build(spec)
        routes = [Route(a, b, path) for a, b in covering_pairs(topology) for path in paths(topology, a, b)]
        crossed = crossings(routes)
        wanted: Counter[tuple[str, str]] = Counter()
        for link in topology.links:
            if spec.t0_groups > 1 or link.tier == "nic-t0":
                wanted[link.lower.node, link.upper.node] += 1
                wanted[link.upper.node, link.lower.node] += 1
        assert set(crossed) == set(wanted)


def test_while_a_link_is_down_its_detours_are_no_strangers(sandbox: Sandbox) -> None:
    """What the fault took is named, and the paths that it cut; the routes that stand in to count what is lost are not."""

    def body() -> None:
        with kit.fabric((1, 2, 2, 1)) as net:
            down = net.topology.link("p0t0-0", "p0t1-1")
            net.apply_fault(down, FaultAction.DOWN)
            problems = verify(net, net.topology).problems
            assert any("probe lost" in problem for problem in problems)
            assert all("p0t1-1" in problem for problem in problems if "probe lost" in problem)
            assert any("is missing" in problem for problem in problems)
            assert not [problem for problem in problems if "not in the plan" in problem]
            net.undo_fault(down, FaultAction.DOWN)
            assert verify(net, net.topology).problems == []

    sandbox(body)


def test_equal_cost_routes_are_read_back_and_return_after_faults(sandbox: Sandbox) -> None:
    """Tables, hash parameters and every link in use; what was changed by hand is named; reboot and own-side down are undone."""

    def body() -> None:
        with kit.fabric((1, 2, 3, 1), routing=RoutingSpec(Routing.ECMP, hash_seed=7)) as net:
            assert verify(net, net.topology).problems == []
            before = [_t1s(net), net.parameters()]
            one_next_hop = "ip -6 route replace 5f00::/32 via fe80::f dev p0t0-0-eth1 proto static"
            with net.namespaces.inside("p0t0-0"):
                subprocess.run(shlex.split(one_next_hop), check=True)
            net.namespaces.write_sysctls("h0", {"net/ipv6/fib_multipath_hash_policy": "1"})
            found = verify(net, net.topology, pairs=()).problems
            assert any("p0t0-0: route 5f00::/32 equal-cost" in problem and "missing" in problem for problem in found)
            assert any("h0: net/ipv6/fib_multipath_hash_policy is 1, planned 3" in problem for problem in found)
        with kit.fabric((1, 2, 3, 1), routing=RoutingSpec(Routing.ECMP, hash_seed=7)) as net:
            net.reboot("p0t1-1")
            net.boot("p0t1-1")
            first, second = (net.topology.link("p0t0-0", f"p0t1-{index}") for index in (0, 2))
            net.apply_fault(first, FaultAction.DOWN, side="lower")
            net.apply_fault(second, FaultAction.DOWN, side="lower")
            assert set(_t1s(net)) == {1}
            net.undo_fault(first, FaultAction.DOWN, side="lower")
            net.undo_fault(second, FaultAction.DOWN, side="lower")
            assert verify(net, net.topology).problems == []
            after = [_t1s(net), net.parameters()]
        assert after[1] == before[1]
        if hashing.has_seed():
            assert after[0] == before[0]
            assert len(set(before[0])) == 3

    sandbox(body)


def _t1s(net: Fabric) -> list[int]:
    """What each of some ports is hashed onto."""
    tracer = Tracer(net)
    try:
        return [tracer.tunnelled(0, 1, 0, port, 4791) for port in range(50000, 50024)]
    finally:
        tracer.close()
