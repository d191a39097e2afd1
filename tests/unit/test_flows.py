"""Permutations are derangements, cross groups where asked, repeat by seed and differ between seeds."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.model import flows, load
from testbed.model.topology import build

TEXT = """
name: flows
topology: {planes: 2, t0_groups: 4, t1_per_plane: 2, hosts_per_t0: 4}
links: {rate: 5mbit, delay: 20ms}
workload:
  - {kind: permutation, message: 64KiB, depth: 3}
  - {kind: stream, from: h0, to: h1, message: 1KiB, start: 1s, stop: 2s, job: mouse}
"""


@given(st.lists(st.integers(0, 5), min_size=2, max_size=30), st.integers())
def test_permutation(classes: list[int], seed: int) -> None:
    hosts = range(len(classes))
    if not flows.can_permute(hosts, classes.__getitem__):
        with pytest.raises(ValueError, match="more than half"):
            flows.permutation(hosts, classes.__getitem__, random.Random(seed))
        return
    targets = flows.permutation(hosts, classes.__getitem__, random.Random(seed))
    assert sorted(targets) == list(hosts)
    assert all(classes[source] != classes[target] for source, target in zip(hosts, targets, strict=True))


def test_every_derangement_is_reached() -> None:
    seen = {tuple(flows.permutation(range(4), lambda host: host, random.Random(seed))) for seed in range(300)}
    assert len(seen) == 9, "four hosts have nine derangements"


def test_flows_of_a_scenario() -> None:
    scenario = load.load_text(TEXT, "flows")
    topology = build(scenario.topology)
    found = flows.flows(scenario, topology)
    assert [flow.id for flow in found] == list(range(17))
    permutation, stream = found[:16], found[16]
    assert sorted(flow.target for flow in permutation) == list(range(16))
    assert all(topology.group_of(flow.source) != topology.group_of(flow.target) for flow in permutation)
    assert {(flow.message, flow.depth, flow.job) for flow in permutation} == {(65536, 3, "permutation")}
    assert stream == flows.Flow(16, 0, 1, 1024, 2, 10**9, 2 * 10**9, "mouse", 1)


def test_seeds_repeat_and_differ() -> None:
    topology = build(load.load_text(TEXT, "flows").topology)
    drawn = [flows.flows(load.load_text(TEXT, "flows", seed=seed), topology) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1]
    assert drawn[0] != drawn[2]
    more = load.load_text(TEXT, "flows", ["workload.1.depth=9"], seed=1)
    assert flows.flows(more, topology)[:16] == drawn[0][:16], "one workload's draw does not depend on another"


def test_an_incast_and_its_bystander() -> None:
    text = "workload=[{kind: incast, senders: [h2, h0, h9], receiver: h5, bystander: [h8, h6], message: 1KiB, job: storm}]"
    scenario = load.load_text(TEXT, "flows", [text])
    found = flows.flows(scenario, build(scenario.topology))
    assert [(flow.source, flow.target, flow.job) for flow in found] == [
        (0, 5, "storm"),
        (2, 5, "storm"),
        (9, 5, "storm"),
        (8, 6, "storm-bystander"),
    ]
    assert scenario.warnings == ()


def test_all_senders_are_everyone_else() -> None:
    for senders in ("", "senders: all, "):
        text = f"workload=[{{kind: incast, {senders}receiver: h5, bystander: [h0, h15], message: 1KiB}}]"
        (spec,) = load.load_text(TEXT, "flows", [text]).workload
        assert spec.hosts == (1, 2, 3, 4, *range(6, 15))


def test_a_bystander_that_also_sends_is_warned_about() -> None:
    text = "workload=[{kind: incast, senders: h0-h3, receiver: h5, bystander: [h0, h6], message: 1KiB}]"
    (warning,) = load.load_text(TEXT, "flows", [text]).warnings
    assert "h0 is also a sender" in warning


def test_inside_one_group_when_asked() -> None:
    scenario = load.load_text(TEXT, "flows", ["workload.0.cross_group=false", "workload.0.hosts=h0-h3"])
    found = flows.flows(scenario, build(scenario.topology))[:4]
    assert {flow.target for flow in found} == {0, 1, 2, 3}
    assert all(flow.source != flow.target for flow in found)
