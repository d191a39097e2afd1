"""EV provisioning: the published expansion rule on worked examples, and what each mode picks."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.transport.mrc.provisioning import Auto, Explicit, Field, Generated, expand, join

KNOWN = {plane << 16 | uplink: plane for plane in range(4) for uplink in range(6)}


def test_expansion_spreads_bits_over_the_masks_most_significant_first() -> None:
    # 0b101 over masks 0b100 and 0b011: the first bit goes to the first field, the other two to the second.
    fields = (Field(3, 0b100, initial=0b010), Field(4, 0b0011, initial=0b1000))
    assert expand(fields, 0b101) == (0b110, 0b1001)
    assert expand(fields, 0b010) == (0b010, 0b1010)
    assert join(fields, (0b110, 0b1001)) == 0b110_1001


def test_a_mask_bit_takes_the_place_of_the_initial_one() -> None:
    assert expand((Field(2, 0b11, initial=0b11),), 0) == (0,)


def test_a_number_too_large_for_the_masks_is_refused() -> None:
    with pytest.raises(ValueError, match="more bits"):
        expand((Field(3, 0b001),), 2)


def test_a_realistic_four_field_ev() -> None:
    """3 bits of plane, 8 bits with at most 180 links, two tiers of 16: not powers of two everywhere (mrc-facts 2)."""
    fields = (Field(3, 0b111), Field(8, 0xFF, maximum=179), Field(4, 0b1), Field(4, 0))
    evs = Generated(fields).choose({join(fields, (7, 179, 1, 0)): 7, join(fields, (0, 200, 0, 0)): 0}, random.Random(1))
    assert evs == [join(fields, (7, 179, 1, 0))]


@given(count=st.integers(4, 200), seed=st.integers(0, 1000))
def test_auto_is_equal_per_plane_and_within_the_count(count: int, seed: int) -> None:
    evs = Auto(count).choose(KNOWN, random.Random(seed))
    assert len(set(evs)) == len(evs) == min(count // 4, 6) * 4
    assert {plane: sum(KNOWN[ev] == plane for ev in evs) for plane in range(4)} == dict.fromkeys(range(4), len(evs) // 4)


def test_generated_covers_planes_and_uplinks() -> None:
    fields = (Field(16, 0b11), Field(16, 0b111, maximum=5))
    assert sorted(Generated(fields).choose(KNOWN, random.Random(1))) == sorted(KNOWN)


def test_explicit_is_taken_as_it_is() -> None:
    assert Explicit((0x10002, 0x3)).choose(KNOWN, random.Random(1)) == [0x10002, 0x3]


@pytest.mark.parametrize(
    ("profile", "says"),
    [
        (Auto(3), "fewer than one in each of 4 planes"),
        (Explicit((0x99,)), "no path has EV 0x99"),
        (Explicit((1, 1)), "each EV once"),
        (Explicit(()), "each EV once"),
        (Generated((Field(16, 0, initial=9), Field(16, 1))), "no generated EV names a path"),
        (Generated((Field(30, 1), Field(3, 1))), "wider than"),
    ],
)
def test_what_cannot_be_is_refused(profile: Auto | Explicit | Generated, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        profile.choose(KNOWN, random.Random(1))


@pytest.mark.parametrize(
    "bad", [{"width": 0, "mask": 0}, {"width": 2, "mask": 4}, {"width": 2, "mask": 1, "minimum": 3, "maximum": 2}]
)
def test_fields_are_checked(bad: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="must"):
        Field(**bad)
