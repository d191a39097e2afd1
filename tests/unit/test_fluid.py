"""The fluid ideal against closed forms, against feasibility, and against itself without lumping."""

from __future__ import annotations

import random
import time
from collections import defaultdict
from pathlib import Path

import pytest

from testbed.model import faults, flows, fluid, framing, load, lumps
from testbed.model.paths import paths
from testbed.model.scenario import LinkSpec, TopologySpec
from testbed.model.topology import Topology, build
from tests.support import machine

RATE = 5_000_000
CEILING = RATE * 4096 / 4262  # payload bit/s of one port
QUICKSTART = TopologySpec(planes=4, t0_groups=2, t1_per_plane=6, hosts_per_t0=4)
FABRIC = build(QUICKSTART)
CROSS = tuple((host, (host + 4) % 8) for host in range(8))


def links(planes: int = 4, fabric_rate: int = RATE) -> LinkSpec:
    return LinkSpec(RATE, fabric_rate, (20_000_000,) * planes, 4500, 24)


def ideal(
    demands: tuple[tuple[int, int], ...],
    dead: tuple[str, ...] = (),
    mode: fluid.Mode = "free",
    topology: Topology = FABRIC,
    spec: LinkSpec | None = None,
    shares: dict[str, float] | None = None,
    allowed: tuple[tuple[int, ...] | None, ...] | None = None,
) -> list[float]:
    """Rates in units of one port's payload ceiling."""
    spec = spec or links(topology.spec.planes)
    header = framing.HEADER_BYTES
    rates = fluid.ideal_rates(
        topology, spec, demands, dead, payload=4096, header_bytes=header, mode=mode, shares=shares, allowed=allowed
    )
    return [rate / CEILING for rate in rates]


def uplinks(count: int, plane: int = 0, group: int = 0) -> tuple[str, ...]:
    return tuple(f"p{plane}t0-{group}:p{plane}t1-{index}" for index in range(count))


@pytest.mark.parametrize("mode", ["free", "equal_planes"])
def test_a_permutation_without_faults_reaches_the_ceiling(mode: fluid.Mode) -> None:
    assert ideal(CROSS, mode=mode) == pytest.approx([4.0] * 8)


@pytest.mark.parametrize("dead", range(7))
def test_dead_uplinks_of_one_t0(dead: int) -> None:
    """6 uplinks for 4 hosts: two may go at no cost, then the plane has 6 - k for its four hosts, both ways."""
    plane = min(4, 6 - dead) / 4
    assert ideal(CROSS, uplinks(dead)) == pytest.approx([3 + plane] * 8)
    usable = 4 * plane if plane else 3  # the slowest plane sets the pace, unless it is out of use
    assert ideal(CROSS, uplinks(dead), "equal_planes") == pytest.approx([usable] * 8)


def test_one_direction_only() -> None:
    up = tuple(f"p0t0-0>p0t1-{index}" for index in range(3))
    down = tuple(f"p0t1-{index}>p0t0-0" for index in range(3))
    assert ideal(CROSS, up) == pytest.approx([3.75] * 4 + [4.0] * 4)
    assert ideal(CROSS, down) == pytest.approx([4.0] * 4 + [3.75] * 4)


@pytest.mark.parametrize("mode", ["free", "equal_planes"])
def test_a_dead_nic_link_costs_its_plane(mode: fluid.Mode) -> None:
    rates = ideal(CROSS, ("h0:p0t0-0",), mode)
    assert rates[0] == rates[4] == pytest.approx(3.0)  # h0 sends to h4 and hears from h4
    assert [rates[flow] for flow in (1, 2, 3, 5, 6, 7)] == pytest.approx([4.0] * 6)


@pytest.mark.parametrize("senders", [1, 2, 7])
def test_incast_shares_the_receiver(senders: int) -> None:
    demands = tuple((host, 7) for host in range(senders))
    assert ideal(demands) == pytest.approx([4.0 / senders] * senders)


def test_an_incast_leaves_the_rest_to_a_bystander() -> None:
    """h0 to h3 send to h4, h0 also to h5: h0's other flow takes what its first leaves, max-min over both."""
    demands = ((0, 4), (1, 4), (2, 4), (3, 4), (0, 5))
    assert ideal(demands) == pytest.approx([1.0, 1.0, 1.0, 1.0, 3.0])


def test_t0_local_traffic_needs_no_t1() -> None:
    everything = tuple(link for plane in range(4) for link in uplinks(6, plane))
    assert ideal(((0, 1), (1, 0)), everything) == pytest.approx([4.0, 4.0])
    assert ideal(((0, 1), (0, 4)), everything) == pytest.approx([4.0, 0.0])


def test_a_slower_fabric_is_the_ceiling() -> None:
    """6 uplinks at half the rate for 4 hosts: 3/4 of a port per host and plane."""
    assert ideal(CROSS, spec=links(fabric_rate=RATE // 2)) == pytest.approx([3.0] * 8)


@pytest.mark.parametrize("mode", ["free", "equal_planes"])
def test_a_switch_that_is_down(mode: fluid.Mode) -> None:
    """A T1 of six may go at no cost; a T0 takes its plane from its four hosts."""
    t1 = tuple(f"p0t0-{group}:p0t1-3" for group in range(2))
    assert ideal(CROSS, t1, mode) == pytest.approx([4.0] * 8)
    t0 = (*uplinks(6), *(f"h{host}:p0t0-0" for host in range(4)))
    assert ideal(CROSS, t0, mode) == pytest.approx([3.0] * 8)


def test_slow_links_give_what_they_have() -> None:
    """A NIC link at a fifth, up only; uplinks at a half, where 6 serve 4 hosts."""
    rates = ideal(CROSS, shares={"h0>p0t0-0": 0.2})
    assert rates == pytest.approx([3.2] + [4.0] * 7)
    equal = ideal(CROSS, mode="equal_planes", shares={"h0>p0t0-0": 0.2})
    assert equal[0] == pytest.approx(0.8)
    halves = {f"{name}": 0.5 for name in uplinks(6)}
    assert ideal(CROSS, shares=halves) == pytest.approx([3.75] * 8)
    assert ideal(CROSS, uplinks(1), shares=halves) == pytest.approx([3 + 2.5 / 4] * 8), "dead beats slow"
    assert ideal(CROSS, shares=dict.fromkeys(uplinks(6), 0.0)) == ideal(CROSS, uplinks(6))


def test_flows_hashed_onto_one_path_each() -> None:
    """h0 and h1 meet on one uplink, h2 has one of its own; h3 sprays over what is left of the fabric; h0's path dies."""
    demands = ((0, 4), (1, 5), (2, 6), (3, 7))
    same, own = 0 << 16 | 2, 1 << 16 | 5
    assert ideal(demands, allowed=((same,), (same,), (own,), None)) == pytest.approx([0.5, 0.5, 1.0, 4.0])
    assert ideal(demands, ("p0t0-1:p0t1-2",), allowed=((same,), (own,), (own,), None)) == pytest.approx([0.0, 0.5, 0.5, 4.0])
    assert ideal(((0, 1), (1, 0)), allowed=((1 << 16,), (1 << 16,))) == pytest.approx([1.0, 1.0])
    with pytest.raises(ValueError, match="1 sets of EVs for 4 demands"):
        ideal(demands, allowed=(None,))


def test_dead_ends_that_do_not_meet_leave_no_path() -> None:
    one_way = TopologySpec(planes=1, t0_groups=2, t1_per_plane=2, hosts_per_t0=1)
    topology = build(one_way)
    assert ideal(((0, 1), (1, 0)), ("p0t0-0:p0t1-0", "p0t0-1:p0t1-1"), topology=topology) == [0.0, 0.0]
    assert ideal((), topology=topology) == []


def test_a_name_that_is_no_link_is_refused() -> None:
    with pytest.raises(ValueError, match="p0t0-0:p0t1-9 is no link"):
        ideal(CROSS, ("p0t0-0:p0t1-9",))


def some_state(seed: int) -> tuple[Topology, tuple[tuple[int, int], ...], tuple[str, ...]]:
    rng = random.Random(seed)
    topology = build(TopologySpec(rng.randint(1, 3), rng.randint(1, 3), rng.randint(1, 4), rng.randint(1, 3)))
    hosts = range(topology.spec.hosts)
    demands = tuple((rng.choice(hosts), rng.choice(hosts)) for _ in range(rng.randint(1, 8)))
    dead = [link.name for link in rng.sample(topology.links, rng.randint(0, len(topology.links) // 3))]
    dead = [name if rng.random() < 0.5 else ">".join(rng.sample(name.split(":"), 2)) for name in dead]
    return topology, tuple((source, target) for source, target in demands if source != target), tuple(dead)


@pytest.mark.parametrize("mode", ["free", "equal_planes"])
@pytest.mark.parametrize("seed", range(40))
def test_lumping_changes_nothing(seed: int, mode: fluid.Mode, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same program over every single switch gives the same rates."""
    topology, demands, dead = some_state(seed)
    rng = random.Random(f"{seed}/slow")
    slow = {link.name: rng.choice([0.25, 0.5]) for link in rng.sample(topology.links, len(topology.links) // 4)}
    lumped = ideal(demands, dead, mode, topology, shares=slow)

    def apart(topology: Topology, _shares: lumps.Shares) -> dict[str, str]:
        return {node: node for node in (*topology.hosts, *topology.switches)}

    monkeypatch.setattr(lumps, "_names", apart)
    fluid._rates.cache_clear()
    whole = ideal(demands, dead, mode, topology, shares=slow)
    fluid._rates.cache_clear()
    assert lumped == pytest.approx(whole, abs=1e-5)


@pytest.mark.parametrize("seed", range(40))
def test_bounds_of_any_state(seed: int) -> None:
    """No host sends or receives more than its ports; a plane-equal split is never better for the worst flow."""
    topology, demands, dead = some_state(seed)
    free, equal = ideal(demands, dead, "free", topology), ideal(demands, dead, "equal_planes", topology)
    load_of: dict[tuple[str, int], float] = defaultdict(float)
    for (source, target), rate in zip(demands, free, strict=True):
        load_of["out", source] += rate
        load_of["in", target] += rate
        alive = [path for path in paths(topology, source, target) if not set(path.links(source, target)) & set(dead)]
        assert rate <= len({path.plane for path in alive}) + 1e-6
    assert all(rate <= topology.spec.planes + 1e-6 for rate in load_of.values())
    assert min(equal, default=0.0) <= min(free, default=0.0) + 1e-6


def test_quickstart_fault_states_are_fast() -> None:
    scenario = load.load(load.find("quickstart", Path(__file__).resolve().parents[2]))
    topology = build(scenario.topology)
    demands = tuple((flow.source, flow.target) for flow in flows.flows(scenario, topology))
    planned = faults.resolve(scenario, topology)
    ideal(demands, ("h0:p0t0-0",))  # the first call imports the solver
    fluid._rates.cache_clear()
    unit = machine.speed()
    for second in (0, 5, 9, 13, 17):
        began = time.process_time()
        rates = ideal(demands, tuple(faults.dead_links(planned, second * 10**9)))
        assert time.process_time() - began < 20 * unit
        assert rates == pytest.approx([4.0] * 8), "one dead uplink of six costs four hosts nothing"


def test_large_fabrics_stay_affordable() -> None:
    topology = build(TopologySpec(planes=8, t0_groups=8, t1_per_plane=8, hosts_per_t0=8))
    demands = tuple((host, (host + 8) % 64) for host in range(64))
    unit = machine.speed()
    began = time.process_time()
    rates = ideal(demands, ("h3:p1t0-0", "p0t0-0:p0t1-2", "p3t0-5:p3t1-2"), topology=topology, spec=links(8))
    assert time.process_time() - began < 200 * unit
    assert min(rates) == pytest.approx(7.0)
    assert max(rates) == pytest.approx(8.0)
