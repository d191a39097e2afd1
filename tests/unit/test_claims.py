"""Claims of a suite: what may be written, what it comes to, and that nothing else can be."""

from __future__ import annotations

import pytest

from testbed.model import claims
from testbed.model.fields import Refused

MEASURED = {("mrc", "stall_ms_max"): 10.0, ("rc-bgp", "stall_ms_max"): 300.0, ("mrc", "goodput_mbps"): 0.0}


def sides(text: str) -> tuple[float | None, float | None]:
    claim = claims.parse(text)
    found = [claims.value(term, lambda member, metric: MEASURED.get((member, metric))) for term in (claim.left, claim.right)]
    return found[0], found[1]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("mrc.stall_ms_max * 20 <= rc-bgp.stall_ms_max", (200.0, 300.0)),
        ("mrc.stall_ms_max*20<=rc-bgp.stall_ms_max", (200.0, 300.0)),
        ("rc-bgp.stall_ms_max / mrc.stall_ms_max >= 20", (30.0, 20.0)),
        ("rc-bgp.stall_ms_max - mrc.stall_ms_max - 90 == 200", (200.0, 200.0)),
        ("(rc-bgp.stall_ms_max - mrc.stall_ms_max) / 2 > 1 + 2 * 3", (145.0, 7.0)),
        ("rc-bgp.stall_ms_max / mrc.goodput_mbps > 1", (None, 1.0)),  # a division by zero has no value
        ("mrc.stall_ms_max < mrc.busbw_mbps", (10.0, None)),  # nor has what a member does not have
        ("mrc.stall_ms_max < mrc.busbw_mbps * 0", (10.0, None)),
    ],
)
def test_what_a_claim_comes_to(text: str, expected: tuple[float | None, float | None]) -> None:
    assert sides(text) == expected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("mrc.stall <= 3", "there is no metric 'stall'"),
        ("mrc.stall_ms_max", "expected a claim"),
        ("mrc.stall_ms_max => 3", "'=>' is no operator"),
        ("mrc.stall_ms_max <= 3 <= 4", "nothing may follow '3'"),
        ("mrc.stall_ms_max <= ", "missing after '<='"),
        ("(mrc.stall_ms_max <= 3", "a bracket is not closed"),
        ("mrc.stall_ms_max ** 2 <= 3", "missing after '*'"),
        ("__import__('os') <= 3", "expected a claim"),
        ("mrc.stall_ms_max <= 1e3", "found 'e3'"),
        ("mrc.stall_ms_max <= 010", "expected a number"),
        ("1 <= 2", "speaks of no member"),
        ("(" * 300 + "mrc.stall_ms_max", "a bracket is not closed|missing"),
        ("(" * 500, "a claim of 500 characters"),
    ],
)
def test_what_is_no_claim_is_refused(text: str, said: str) -> None:
    with pytest.raises(Refused, match=said.replace("*", r"\*").replace("(", r"\(")):
        claims.parse(text)


def test_members_come_in_order_and_once() -> None:
    assert claims.parse("b.goodput_mbps <= a.goodput_mbps + b.goodput_ratio").members == ("b", "a")
