"""Names, numbers and addresses agree with each other on fabrics of any size."""

from __future__ import annotations

import random
from ipaddress import IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.model import paths, usid
from testbed.model.scenario import TopologySpec
from testbed.model.topology import Tier, build, names_too_long

SPECS = st.builds(TopologySpec, st.integers(1, 4), st.integers(1, 4), st.integers(1, 5), st.integers(1, 4))


@given(SPECS)
def test_every_port_has_its_own_index_and_name(spec: TopologySpec) -> None:
    topology = build(spec)
    ports = [port for link in topology.links for port in (link.lower, link.upper)]
    assert len({port.ifindex for port in ports}) == len({port.name for port in ports}) == len(ports)
    assert len(topology.links) == spec.planes * (spec.hosts + spec.t0_groups * spec.t1_per_plane)
    for node in (*topology.hosts, *topology.switches):
        assert [port.number for port, _ in topology.ports_of(node)] == list(range(len(topology.ports_of(node))))


@given(SPECS)
def test_port_p_of_a_host_is_plane_p(spec: TopologySpec) -> None:
    topology = build(spec)
    for link in topology.links:
        if link.tier is Tier.NIC_T0:
            assert link.lower.number == link.plane == usid.plane_of(link.upper.node)
        assert topology.link(link.upper.node, link.lower.node) is link


@given(SPECS, st.randoms(use_true_random=False))
def test_following_the_tables_leads_to_the_target(spec: TopologySpec, rng: random.Random) -> None:
    """Walk every path hop by hop: match, shift, look up the neighbour, as the kernel does."""
    topology = build(spec)
    tables = usid.switch_tables(topology)
    source, target = rng.randrange(spec.hosts), rng.randrange(spec.hosts)
    found = paths.paths(topology, source, target)
    assert len({path.address for path in found}) == len({path.ev for path in found}) == len({path.name for path in found})
    for path in found:
        (node,) = (route.neighbour for route in usid.host_tables(topology)[f"h{source}"].planes if path.address in route.prefix)
        address, seen = path.address, []
        while node in tables:
            seen.append(node)
            assert address in tables[node].own
            address = usid.shift(address)
            (node,) = (route.neighbour for route in tables[node].neighbours if address in route.prefix)
        assert tuple(seen) == path.hops
        assert node == f"h{target}"
        assert address == usid.host_sid(path.plane, target)
        assert usid.decode(path.address) == (path.plane, (*path.hops, f"h{target}"))
        assert all(name in {link.name for link in topology.links} for name in path.links(source, target))


def test_addresses_outside_the_plan_are_refused() -> None:
    with pytest.raises(ValueError, match="outside the SID space"):
        usid.decode(IPv6Address("fd00::1"))
    with pytest.raises(ValueError, match="names no node"):
        usid.decode(IPv6Address("5f00:0:9000::"))
    with pytest.raises(ValueError, match="do not fit"):
        usid.compose(0, *[0x1000] * 7)


def test_names_of_two_digit_fabrics_fit() -> None:
    """Pitfall H-02: 4 planes x 12 T0 x 10 T1 is fine; three digits everywhere is not."""
    assert names_too_long(build(TopologySpec(4, 12, 10, 4))) == []
    long = names_too_long(build(TopologySpec(11, 101, 100, 1)))
    assert long == ["p10t0-100-eth100"]


@given(SPECS, st.integers(1, 40), st.randoms(use_true_random=False))
def test_a_choice_of_paths_is_equal_per_plane(spec: TopologySpec, limit: int, rng: random.Random) -> None:
    every = paths.paths(build(spec), 0, spec.hosts - 1)
    if limit < spec.planes:
        with pytest.raises(ValueError, match="cannot cover"):
            paths.choose(every, limit, rng)
        return
    chosen = paths.choose(every, limit, rng)
    per_plane = [sum(path.plane == plane for path in chosen) for plane in range(spec.planes)]
    assert len(set(per_plane)) == 1
    assert len(chosen) == len(set(chosen)) == min(limit // spec.planes, len(every) // spec.planes) * spec.planes
    assert set(chosen) <= set(every)
