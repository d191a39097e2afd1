"""Suite and sweep files: what they stand for, and every mistake with its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.errors import ScenarioError
from testbed.model import load, suite, sweep
from testbed.venv import ROOT

TINY = """\
name: tiny
topology: {planes: 2, t0_groups: 2, t1_per_plane: 2, hosts_per_t0: 1}
links: {rate: 5mbit, delay: 20ms}
workload:
  - {kind: permutation, message: 64KiB}
measure: {warmup: 500ms, duration: 2s}
"""


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "tiny.yaml").write_text(TINY)
    return tmp_path


def loaded(here: Path, text: str, given: suite.Given | None = None) -> suite.Suite:
    file = here / "suite.yaml"
    file.write_text(text)
    return suite.load_suite(file, ROOT, given or suite.Given())


def test_members_overrides_repeats_and_claims(here: Path) -> None:
    found = loaded(
        here,
        """\
name: pair
time_limit: 5m
retries: 1
suite:
  - tiny
  - scenario: tiny
    as: slow
    repeat: 3
    set: {links.rate: 1mbit, seed: 7, faults: [{at: 1s, link: "p0t0-0:p0t1-0", action: down}]}
expect:
  - tiny.goodput_mbps >= 2 * slow.goodput_mbps
""",
    )
    assert [(one.name, one.repeat, one.scenario.seed, one.scenario.links.rate_bps) for one in found.members] == [
        ("tiny", 1, 1, 5_000_000),
        ("slow", 3, 7, 1_000_000),
    ]
    assert len(found.members[1].scenario.faults) == 1
    assert (found.time_limit_ns, found.retries) == (300 * 10**9, 1)
    assert [(one.name, one.prefix, [claim.members for claim in one.expect]) for one in found.comparisons] == [
        ("pair", "", [("tiny", "slow")])
    ]


def test_the_command_line_has_the_last_word(here: Path) -> None:
    given = suite.Given(("links.delay=5ms",), seed=9, repeat=2)
    (member,) = loaded(here, "name: one\nsuite: [{scenario: tiny, repeat: 5, set: {links.delay: 1ms}}]\n", given).members
    assert (member.repeat, member.scenario.seed, member.scenario.links.delay_ns) == (2, 9, (5_000_000, 5_000_000))
    assert member.base is not None  # what the suite says without it is what a baseline is of
    assert member.base.links.delay_ns == (1_000_000, 1_000_000)


def test_a_member_may_be_a_comparison(here: Path) -> None:
    (here / "inner.yaml").write_text(
        "name: inner\nsuite: [{scenario: tiny, as: a}, {scenario: tiny, as: b}]\nexpect: [a.goodput_mbps >= b.goodput_mbps]\n"
    )
    found = loaded(here, "name: outer\nsuite: [tiny, {scenario: inner, as: fig}]\n")
    assert [member.name for member in found.members] == ["tiny", "fig/a", "fig/b"]
    assert [(one.name, one.prefix) for one in found.comparisons] == [("inner", "fig/")]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name: x\nsuite: []\n", "suite.yaml:2: suite: no member: nothing would run"),
        ("name: x\nsuite:\n  - {scenario: tinny}\n", "suite.yaml:3: suite: tinny there is no such scenario"),
        ("name: x\nsuite: [tiny, tiny]\n", "suite.yaml:2: suite: two members are called tiny (give one of them `as: NAME`)"),
        ("name: x\nsuite:\n  - {scenario: tiny, times: 3}\n", "suite.yaml:3: suite.0.times: unknown key"),
        ("name: x\nsuite:\n  - {scenario: tiny, repeat: yes}\n", "suite.yaml:3: suite.0.repeat: expected a whole number"),
        ("name: x\nsuite:\n  - scenario: tiny\n    set: {links.rat: 1mbit}\n", "suite.yaml:4: links.rat: unknown key"),
        ("name: x\nsuite:\n  - scenario: tiny\n    set: {links.rate: fast}\n", "suite.yaml:4: links.rate: expected a rate"),
        ("name: x\nsuite: [tiny]\nexpect:\n  - tiny.goodput >= 1\n", "suite.yaml:4: expect.0: there is no metric 'goodput'"),
        ("name: x\nsuite: [tiny]\nexpect:\n  - tinny.goodput_mbps >= 1\n", "suite.yaml:4: expect.0: there is no member tinny"),
        ("name: x\nsuite: [tiny]\ntopology: {planes: 1}\n", "suite.yaml:3: topology: unknown key"),
        ("name: x\nsuite: [suite]\n", "a suite cannot be its own member"),
        ("suite: [tiny]\n", "name: this key is required"),
    ],
)
def test_mistakes_are_said_with_their_place(here: Path, text: str, said: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        loaded(here, text)
    assert said in str(caught.value)


def test_every_suite_of_the_project_loads() -> None:
    suites = [file for file in (ROOT / "scenarios").rglob("*.yaml") if suite.is_suite(file)]
    assert suites
    for file in suites:
        assert suite.load_suite(file, ROOT).members


def test_a_suite_is_no_scenario() -> None:
    with pytest.raises(ScenarioError, match="a suite is no scenario"):
        load.load(ROOT / "scenarios" / "quick.yaml")


def test_a_sweep_is_every_combination_in_order(here: Path) -> None:
    found = sweep.load_sweep(here / "tiny.yaml", ["transport.evs=2,4", "links.delay=5ms,6ms"], suite.Given(repeat=3))
    assert [member.values for member in found.members] == [
        (("transport.evs", evs), ("links.delay", delay)) for evs in ("2", "4") for delay in ("5ms", "6ms")
    ]
    assert [member.scenario.transport.evs for member in found.members] == [2, 2, 4, 4]
    assert {member.repeat for member in found.members} == {3}


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("seed=1..4", ("1", "2", "3", "4")),
        ("seed=0..10..5,7", ("0", "5", "10", "7")),
        ("faults=[],[{at: 1s, action: down}]", ("[]", "[{at: 1s, action: down}]")),
        ("description='a,b',c", ("'a,b'", "c")),
    ],
)
def test_values_of_a_sweep(text: str, values: tuple[str, ...]) -> None:
    assert sweep.axis(text)[1] == values


@pytest.mark.parametrize(
    ("swept", "said"),
    [
        (["transport.evs"], "expected KEY=a,b,c or KEY=1..8"),
        (["transport.evs=1,,2"], "expected KEY=a,b,c or KEY=1..8"),
        (["transport.evs=8..1"], "is an empty range"),
        (["transport.evs=1,1"], "has a value twice"),
        (["transport.evs=1..100000"], "more than 10000 values"),
        (["transport.evs=2,4", "transport.evs=8"], "transport.evs is swept twice"),
        (["seed=1..1000", "transport.evs=2..100"], "99000 runs"),
        (["transport.ev=2,4"], "transport.ev: unknown key"),
        (["transport.evs=2,many"], "transport.evs: expected a whole number"),
    ],
)
def test_a_wrong_sweep_is_refused(here: Path, swept: list[str], said: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        sweep.load_sweep(here / "tiny.yaml", swept)
    assert said in str(caught.value)
