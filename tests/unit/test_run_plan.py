"""Host plans: one golden file, and what must hold for every scenario. Regenerate: `UPDATE_GOLDEN=1 pytest <this file>`."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from testbed.host import plan as host_plan
from testbed.model import evs as ev_sets
from testbed.model import load
from testbed.model.flows import flows
from testbed.model.topology import build
from testbed.run.plan import host_plans

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden" / "host-plans.json"
SCENARIO = """\
name: two-groups
topology: {planes: 2, t0_groups: 2, t1_per_plane: 3, hosts_per_t0: 2}
links: {rate: 5mbit, delay: [20ms, 10ms], mtu: 4500}
transport: {kind: mrc, payload: 4096B, evs: 4, window: 16}
workload:
  - {kind: permutation, hosts: all, message: 64KiB, depth: 2}
  - {kind: stream, from: h0, to: h1, message: 8KiB, start: 1s, stop: 2s, job: local}
measure: {warmup: 1s, duration: 4s, interval: 100ms}
seed: 3
"""


def plans(*overrides: str, seed: int | None = None) -> list[dict[str, Any]]:
    scenario = load.load_text(SCENARIO, "two-groups.yaml", overrides, seed)
    topology = build(scenario.topology)
    return host_plans(scenario, topology, flows(scenario, topology), Path("/records"))


def test_golden() -> None:
    text = json.dumps(plans(), indent=1) + "\n"
    if "UPDATE_GOLDEN" in os.environ:
        GOLDEN.write_text(text)
    assert text == GOLDEN.read_text()


def test_a_host_process_understands_its_plan() -> None:
    for raw in plans():
        parsed = host_plan.parse(json.loads(json.dumps(raw)))
        assert parsed.kind == "mrc"
        assert all(parsed.peer_of(flow).paths for flow in parsed.flows)


def test_the_same_seed_gives_the_same_plans_and_another_one_does_not() -> None:
    assert plans() == plans()
    assert plans(seed=3) == plans()
    assert plans(seed=4) != plans()


def test_only_hosts_that_take_part_have_a_plan() -> None:
    stream = "workload=[{kind: stream, from: h0, to: h3, message: 8KiB}]"
    assert [plan["host"] for plan in plans(stream)] == ["h0", "h3"]


def test_a_receiver_has_paths_back_to_its_sender() -> None:
    for plan in plans():
        met = {flow["source"] for flow in plan["flows"]} | {flow["target"] for flow in plan["flows"]}
        assert {peer["host"] for peer in plan["peers"]} == met - {plan["host"]}


@pytest.mark.parametrize(("evs", "per_plane"), [(2, 1), (4, 2), (5, 2), (128, 3)])
def test_evs_are_an_upper_bound_equal_per_plane(evs: int, per_plane: int) -> None:
    scenario = load.load_text(SCENARIO, "two-groups.yaml", [f"transport.evs={evs}"])
    topology = build(scenario.topology)
    chosen = ev_sets.given(scenario.transport, scenario.seed, topology, 0, 2)
    assert [sum(path.plane == plane for path in chosen) for plane in (0, 1)] == [per_plane] * 2
    assert len({path.address for path in chosen}) == len(chosen)
