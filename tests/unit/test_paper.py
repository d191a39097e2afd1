"""The suite of the paper's figures: each member says what it claims, what it stands for, and asserts it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from testbed.model import load, plan, suite
from testbed.model.topology import build
from testbed.venv import ROOT

FOLDER = ROOT / "scenarios" / "paper"
PAPER = suite.load_suite(ROOT / "scenarios" / "paper.yaml", ROOT)
GROUPED = {member.name: one for one in PAPER.comparisons for member in PAPER.members if member.name.startswith(one.prefix)}
MINUTES = 50
OVERHEAD_S = 14  # bring-up, verification, drain, tables, figures, verdict: 9.4 and 11 on average over two suites on two cores
CORES = 2


def claimed(text: str) -> re.Match[str] | None:
    return re.search(r"Claim: .+? (Here .+)", " ".join(text.split()))


@pytest.mark.parametrize("member", PAPER.members, ids=lambda member: member.name)
def test_every_member_claims_something_and_asserts_it(member: suite.Member) -> None:
    scenario, group = member.scenario, GROUPED.get(member.name)
    about, source = (scenario.description, scenario.source) if group is None else (group.description, group.source)
    assert claimed(about), "`Claim: ...` as the paper has it, then `Here ...`, how it is scaled"
    assert source.startswith("arXiv 2605.04333")
    assert scenario.scale is not None
    own = {line.metric for line in scenario.expect} - {"messages_corrupt", "messages_incomplete", "bytes_lost"}
    spoken_of = group is not None and any(member.name.removeprefix(group.prefix) in line.members for line in group.expect)
    assert own or spoken_of


@pytest.mark.parametrize("member", PAPER.members, ids=lambda member: member.name)
def test_no_claim_is_about_absolute_speed(member: suite.Member) -> None:
    """Ratios, shares, counts and orderings: what holds whatever the rate of the links."""
    speeds = re.compile(r"_mbps$|_ms|_us|_s$")
    assert not [line for line in member.scenario.expect if speeds.search(line.metric)]


def test_comparisons_set_speeds_only_against_speeds() -> None:
    for group in PAPER.comparisons:
        for claim in group.expect:
            lines = re.findall(r"\.([a-z][a-z0-9_]+)", claim.text)
            timed = [name for name in lines if re.search(r"_mbps$|_ms", name)]
            assert not timed or len(timed) == len(lines) >= 2, claim.text


def test_no_member_asks_for_more_than_the_quickstart_does() -> None:
    """The quickstart is what the project's machine can surely do."""
    known = load.load(ROOT / "scenarios" / "quickstart.yaml")
    most = plan.predict(known, build(known.topology)).data_packets_per_s
    asked = {one.name: plan.predict(one.scenario, build(one.scenario.topology)).data_packets_per_s for one in PAPER.members}
    assert {name: packets for name, packets in asked.items() if packets > most} == {}


def test_the_whole_fits_the_time() -> None:
    seconds = sum(one.repeat * (one.scenario.measure.duration_ns / 1e9 + OVERHEAD_S) for one in PAPER.members)
    assert seconds <= MINUTES * 60
    assert all(one.scenario.measure.duration_ns <= 48e9 for one in PAPER.members)


def test_no_file_is_left_out() -> None:
    files = {file.stem for file in FOLDER.glob("*.yaml") if not suite.is_suite(file)}
    assert files <= {one.scenario.name for one in PAPER.members}
    whole = Path(ROOT / "scenarios" / "paper.yaml").read_text()
    assert [file.stem for file in FOLDER.glob("*.yaml") if suite.is_suite(file) and f"paper/{file.stem}\n" not in whole] == []


def test_what_cannot_be_emulated_is_named_with_its_reason() -> None:
    said = " ".join(PAPER.not_emulated)
    for what in ("NIC latency", "42,000 GPUs", "PFC"):
        assert what in said
    assert all(": " in text for text in PAPER.not_emulated)
