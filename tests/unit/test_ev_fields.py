"""GENERATED EVs: the published expansion rule on worked examples, and what a scenario's fields give each pair."""

from __future__ import annotations

import pytest

from testbed.errors import ScenarioError
from testbed.model import evs, load
from testbed.model.ev_fields import expand, generate, join
from testbed.model.scenario import EvField
from testbed.model.topology import build

SCENARIO = """
name: evs
topology: {planes: 4, t0_groups: 2, t1_per_plane: 6, hosts_per_t0: 2}
links: {rate: 5mbit, delay: 20ms}
transport: {ev_fields: [{width: 16, mask: 0b11}, {width: 16, mask: 0x7, max: 5}]}
workload:
  - {kind: stream, from: h0, to: h2, message: 64KiB}
"""


def field(width: int, mask: int, init: int = 0, minimum: int = 0, maximum: int | None = None) -> EvField:
    return EvField(width, mask, init, minimum, (1 << width) - 1 if maximum is None else maximum)


def test_expansion_spreads_bits_over_the_masks_most_significant_first() -> None:
    # 0b101 over masks 0b100 and 0b011: the first bit goes to the first field, the other two to the second.
    fields = (field(3, 0b100, 0b010), field(4, 0b0011, 0b1000))
    assert expand(fields, 0b101) == (0b110, 0b1001)
    assert expand(fields, 0b010) == (0b010, 0b1010)
    assert join(fields, (0b110, 0b1001)) == 0b110_1001


def test_a_mask_bit_takes_the_place_of_the_initial_one() -> None:
    assert expand((field(2, 0b11, 0b11),), 0) == (0,)


def test_a_number_too_large_for_the_masks_is_refused() -> None:
    with pytest.raises(ValueError, match="more bits"):
        expand((field(3, 0b001),), 2)


def test_a_realistic_four_field_ev() -> None:
    """3 bits of plane, 8 bits with at most 180 links, two tiers of 16: not powers of two everywhere (mrc-facts 2)."""
    fields = (field(3, 0b111), field(8, 0xFF, maximum=179), field(4, 0b1), field(4, 0))
    generated = generate(fields)
    assert join(fields, (7, 179, 1, 0)) in generated
    assert len(generated) == len(set(generated)) == 8 * 180 * 2


def paths_of(fields: str | None, target: int, *more: str) -> list[str]:
    overrides = [f"transport.ev_fields={fields}"] if fields else []
    scenario = load.load_text(SCENARIO, "evs.yaml", [*overrides, *more])
    topology = build(scenario.topology)
    return [path.name for path in evs.given(scenario.transport, scenario.seed, topology, 0, target)]


def test_fields_give_a_pair_the_paths_that_its_evs_name_in_the_order_of_the_counter() -> None:
    assert paths_of(None, 2) == [f"p{plane}t1-{t1}" for plane in range(4) for t1 in range(6)]
    assert paths_of(None, 1) == [f"p{plane}t0-0" for plane in range(4)], "inside a group the uplink is 0"
    assert paths_of("[{width: 16, mask: 0b10}, {width: 16, mask: 0b1, init: 4}]", 2) == ["p0t1-4", "p0t1-5", "p2t1-4", "p2t1-5"]
    assert paths_of("[{width: 16, mask: 1}, {width: 16, mask: 7, min: 2, max: 3}]", 2) == [
        *("p0t1-2", "p0t1-3"),
        *("p1t1-2", "p1t1-3"),
    ]


def test_the_first_of_each_plane_are_active() -> None:
    scenario = load.load_text(SCENARIO, "evs.yaml", ["transport.active_evs=8"])
    found = evs.given(scenario.transport, 1, build(scenario.topology), 0, 2)
    assert {path.t1 for path in evs.active(scenario.transport, found)} == {0, 1}


def test_the_resolved_scenario_reads_back_equal() -> None:
    scenario = load.load_text(SCENARIO, "evs.yaml")
    assert load.load_text(load.dump(scenario), "again.yaml") == scenario
    assert scenario.warnings == ()


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ("[]", "no field is listed"),
        ("[{width: 8, mask: 1}]", "8 bits wide, an EV has 32"),
        ("[{width: 16, mask: 0xffff}, {width: 16, mask: 1}]", "more than 16 bits"),
        ("[{width: 16, mask: 0x10000}, {width: 16, mask: 1}]", "wider than the field's 16 bits"),
        ("[{width: 16, mask: 1, init: 65536}, {width: 16, mask: 1}]", "wider than the field's 16 bits"),
        ("[{width: 16, mask: 1, min: 3, max: 2}, {width: 16, mask: 1}]", "3 is more than the field's most, 2"),
        ("[{width: 16, mask: 0, init: 9}, {width: 16, mask: 1}]", "no path from h0 to h2 is generated"),
        ("[{width: 16, mask: -1}, {width: 16, mask: 1}]", "expected a whole number such as 5, 0x1f or 0b11"),
    ],
)
def test_what_cannot_be_is_refused(fields: str, says: str) -> None:
    with pytest.raises(ScenarioError, match=says):
        paths_of(fields, 2)


def test_evs_are_listed_or_generated_but_not_both() -> None:
    with pytest.raises(ScenarioError, match="ev_list says already which EVs there are"):
        paths_of(None, 2, "transport.ev_list=[p0t1-3]")
