"""The plan says what a run will ask of the machine, and warns where its result would be doubtful."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.fabric.queues import thresholds
from testbed.model import load, plan
from testbed.model.scenario import Scenario
from testbed.model.topology import Tier, build

ROOT = Path(__file__).resolve().parents[2]


def quickstart(*overrides: str) -> Scenario:
    return load.load(ROOT / "scenarios/quickstart.yaml", overrides)


def text(*overrides: str, cores: int = 2) -> str:
    scenario = quickstart(*overrides)
    return plan.summary(scenario, build(scenario.topology), cores)


def test_prediction_of_the_quickstart() -> None:
    scenario = quickstart()
    prediction = plan.predict(scenario, build(scenario.topology))
    assert prediction.goodput_bps == pytest.approx(8 * 4 * 5e6 * 4096 / 4262)
    assert prediction.data_packets_per_s == pytest.approx(8 * 4 * 5e6 / 8 / 4262)
    assert prediction.sack_packets_per_s == pytest.approx(prediction.data_packets_per_s / 4)
    assert prediction.window_frames == 35


def test_summary_of_the_quickstart() -> None:
    lines = text().splitlines()
    assert "fabric          8 hosts, 8 T0 and 24 T1 on 4 planes" in lines
    assert "links           80: 32 nic-t0, 48 t0-t1; 5mbit each" in lines
    assert "payload ceiling 96.1% of the rate: 19.22 Mbit/s per host" in lines
    assert "fault           4s to 8s: down p0t0-0:p0t1-2" in lines


def test_summary_says_what_of_the_transport_is_in_force() -> None:
    lines = text().splitlines()
    assert "EVs             24 per pair, all active; replacement same_plane" in lines
    assert "probes          every 80 ms, 3 answers bring a path back" in lines
    assert "timeout         268.435 ms (n = 18), 3 times, then doubling for ever" in lines
    other = text(
        *("transport.active_evs=8", "transport.replacement=any", "transport.probes=false", "transport.timeout=10ms"),
        *("transport.timeout_exponential=2", "transport.mpr_dest=2", "transport.denylist=[{link: 'p0t0-0:p0t1-1', at: 2s}]"),
    ).splitlines()
    assert "EVs             24 per pair, 8 of them active, the rest backup; replacement any" in other
    assert "probes          none" in other
    assert "limits          1024 PSNs (256 accepted), 128 WRITE_WITH_IMMs under way; 1 QP per flow" in other
    assert "timeout         16.7772 ms (n = 14), 3 times, then doubling 2 times" in other
    assert "denied          2s to the end: EVs over p0t0-0:p0t1-1" in other


def test_warnings() -> None:
    assert "windows, marks and recovery times mean little" not in text()
    assert "only 2.3 frames are in flight per host, less than 8" in text("links.delay=2ms")
    assert "the machine may decide the result" not in text()
    assert "cores are needed for the hosts alone" in text("links.rate=100mbit")
    assert "5.9 frames in flight per plane, 23.5 in what `scale` says it stands for" in text("scale.rtt=8us")
    assert "`scale`" not in text()


def test_ports_mark_towards_hosts_only_where_asked_for() -> None:
    for overrides, marked in (
        ((), (0, 0, 1, 1)),
        (("switch.ecn_last_hop=true",), (0, 1, 1, 1)),
        (("switch.ecn=false",), (0, 0, 0, 0)),
    ):
        scenario = quickstart(*overrides)
        links = {link.tier: link for link in build(scenario.topology).links}
        ports = [(port, links[tier]) for tier in (Tier.NIC_T0, Tier.T0_T1) for port in (links[tier].lower, links[tier].upper)]
        found = [thresholds(port, link, scenario.links, scenario.switch) for port, link in ports]
        assert tuple(bool(one.ecn_max) for one in found) == marked
