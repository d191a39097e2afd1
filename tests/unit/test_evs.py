"""Which EVs a pair is given and which are denied when; what the runner tells the hosts about it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st

from testbed.model import evs, load
from testbed.model.flows import flows
from testbed.model.scenario import DenySpec, Scenario
from testbed.model.topology import Topology, build
from testbed.run import denylist
from testbed.run.timeline import Timeline

SCENARIO = """
name: evs
topology: {planes: 2, t0_groups: 2, t1_per_plane: 3, hosts_per_t0: 2}
links: {rate: 5mbit, delay: 20ms}
workload:
  - {kind: stream, from: h0, to: h2, message: 64KiB}
"""
S = 10**9


def loaded(*overrides: str) -> tuple[Scenario, Topology]:
    scenario = load.load_text(SCENARIO, "evs.yaml", overrides)
    return scenario, build(scenario.topology)


def names(scenario: Scenario, topology: Topology, source: int, target: int) -> list[str]:
    return [path.name for path in evs.given(scenario.transport, scenario.seed, topology, source, target)]


def test_an_explicit_list_is_taken_as_it_is() -> None:
    scenario, topology = loaded("transport.ev_list=[p0t1-2, p1t1-1, p1t1-0, p0t0-0]")
    assert names(scenario, topology, 0, 2) == ["p0t1-2", "p1t1-1", "p1t1-0"]
    assert names(scenario, topology, 0, 1) == ["p0t0-0"]


def test_the_first_of_each_plane_are_active() -> None:
    scenario, topology = loaded("transport={ev_list: [p0t1-2, p1t1-0, p0t1-1, p1t1-1, p0t1-0], active_evs: 2}")
    found = evs.given(scenario.transport, scenario.seed, topology, 0, 2)
    assert {path.name for path in evs.active(scenario.transport, found)} == {"p0t1-2", "p1t1-0"}
    auto, _ = loaded("transport={active_evs: 2}")
    first = set()
    for seed in range(20):
        drawn_paths = evs.given(auto.transport, seed, topology, 0, 2)
        active = evs.active(auto.transport, drawn_paths)
        assert sorted(path.plane for path in active) == [0, 1]
        first |= {path.name for path in active}
    assert len(first) == 6, "which ones are active is drawn too"


def test_a_link_of_the_denylist_denies_the_paths_over_it_both_ways() -> None:
    scenario, topology = loaded("transport.denylist=['p0t1-1:p0t0-1', 'h0:p1t0-0']")

    def denied(source: int, target: int) -> set[str]:
        found = evs.given(scenario.transport, scenario.seed, topology, source, target)
        return {path.name for path in evs.denied_at_start(scenario.transport, found, source, target)}

    assert denied(0, 2) == denied(2, 0) == {"p0t1-1", "p1t1-0", "p1t1-1", "p1t1-2"}
    assert denied(1, 3) == {"p0t1-1"}
    assert denied(0, 1) == {"p1t0-0"}


def test_every_pair_that_talks_is_met_once_each_way() -> None:
    scenario, topology = loaded(
        "workload=[{kind: permutation, message: 1KiB}, {kind: stream, from: h0, to: h2, message: 1KiB}]"
    )
    pairs = list(evs.pairs(scenario.workload, scenario.seed, topology))
    ends = {(flow.source, flow.target) for flow in flows(scenario, topology)}
    assert len(set(pairs)) == len(pairs)
    assert set(pairs) == ends | {(target, source) for source, target in ends}


SPANS = st.lists(st.tuples(st.integers(0, 20), st.integers(1, 10) | st.none()), max_size=6)


@drawn(spans=SPANS)
def test_overlapping_denials_are_one(spans: list[tuple[int, int | None]]) -> None:
    scenario, topology = loaded()
    link = ("p0t0-0", "p0t1-0")
    deny = tuple(DenySpec(link, at, length) for at, length in spans)
    spec = replace(scenario.transport, denylist=deny)
    found = evs.given(spec, 1, topology, 0, 2)
    merged = [span for path, mine in evs.denials(spec, found, 0, 2).items() for span in mine]
    for moment in range(40):
        meant = any(at <= moment and (length is None or moment < at + length) for at, length in spans)
        assert meant == any(start <= moment and (end is None or moment < end) for start, end in merged)
    ends = [end for _, end in merged]
    assert all(end is not None and end < later for end, (later, _) in zip(ends, merged[1:], strict=False))


class Heard:
    def __init__(self) -> None:
        self.messages: list[tuple[str, str, list[list[int]]]] = []

    def tell(self, host: str, message: dict[str, Any]) -> None:
        self.messages.append((host, message["type"], message["evs"]))


def test_hosts_are_told_when_a_denial_begins_and_ends() -> None:
    entries = "[{link: 'p0t0-0:p0t1-1', at: 2s, for: 3s}, {link: 'p1t1-2:p1t0-1', for: 4s}]"
    scenario, topology = loaded(f"transport.denylist={entries}")
    timeline, heard = Timeline(), Heard()
    denylist.schedule(timeline, heard, scenario, topology, 100 * S)
    timeline.fire(101 * S)
    assert not heard.messages, "what is denied from the start is in the plans"
    timeline.fire(102 * S)
    assert heard.messages == [("h0", "deny", [[2, 1]]), ("h2", "deny", [[0, 1]])]
    heard.messages.clear()
    timeline.fire(104 * S)
    assert heard.messages == [("h0", "allow", [[2, 1 << 16 | 2]]), ("h2", "allow", [[0, 1 << 16 | 2]])]
    timeline.fire(105 * S)
    assert heard.messages[2:] == [("h0", "allow", [[2, 1]]), ("h2", "allow", [[0, 1]])]


@pytest.mark.parametrize("path", ["ev_list=[p0t1-0, p1t1-2]", "denylist=['p0t0-0:p0t1-0', {link: 'p0t0-0:p0t1-1', at: 1s}]"])
def test_lists_are_written_out_as_they_were_read(path: str) -> None:
    scenario, _ = loaded(f"transport.{path}")
    assert load.load_text(load.dump(scenario), "dumped") == scenario
