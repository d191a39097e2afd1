"""What each switch's BGP is told, as a file: AS, ports, prefixes, timers, BFD; and what it must find out."""

from __future__ import annotations

from testbed.model.bgp import bfd_config, config, speakers
from testbed.model.scenario import BfdSpec, Routing, RoutingSpec, TopologySpec
from testbed.model.topology import build
from tests.support import goldens

SMALL = build(TopologySpec(planes=2, t0_groups=2, t1_per_plane=2, hosts_per_t0=1))
FAST = RoutingSpec(Routing.BGP, keepalive_ns=10**9, hold_ns=3 * 10**9, bfd=BfdSpec(300 * 10**6, 3))


def test_configurations_of_a_small_fabric() -> None:
    lines = [bfd_config(FAST)]
    for speaker in speakers(SMALL):
        lines += [f"! {speaker.switch}\n", config(speaker, FAST)]
        lines += [f"! finds {prefix} over {ways}\n" for prefix, ways in speaker.expects]
    goldens.check("".join(lines), goldens.TESTS / "golden" / "small-bgp.txt")


def test_without_bfd_nothing_of_it_is_written() -> None:
    plain = RoutingSpec(Routing.BGP)
    assert bfd_config(plain) == ""
    assert not [speaker for speaker in speakers(SMALL) if "bfd" in config(speaker, plain)]
    assert "timers 3 9" in config(speakers(SMALL)[0], plain)


def test_router_ids_differ_and_planes_are_alike() -> None:
    found = speakers(SMALL)
    assert len({speaker.router_id for speaker in found}) == len(found)
    by_name = {speaker.switch: speaker for speaker in found}
    assert by_name["p0t0-1"].asn == by_name["p1t0-1"].asn
    assert by_name["p0t0-0"].asn != by_name["p0t0-1"].asn
    assert {by_name[f"p{plane}t1-{index}"].asn for plane in (0, 1) for index in (0, 1)} == {by_name["p0t1-0"].asn}
