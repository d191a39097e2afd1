"""The regression gate over made-up suite runs: what it reports, what it must not, and what a baseline may be made of."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest
import xmlschema

from analysis import __main__ as command
from analysis import baseline, junit, regress, suites
from analysis.regress import State
from testbed.errors import ExitStatus, ScenarioError
from tests.support.suite_folders import Made, write

SCHEMA = xmlschema.XMLSchema(str(Path(__file__).parents[2] / "support" / "junit-10.xsd"))
USUAL = {
    "goodput_mbps": 150.0,
    "message_ms_p50": 440.0,
    "evs_retired": 12,
    "evs_restored": 12,
    "recovery_rtts_max": 2.0,
    "retransmit_ratio": 0.0004,
    "messages_corrupt": 0,
    "messages_incomplete": 0,
    "cpu_busy": 0.6,
}
RUNS = 3


def session(
    folder: Path, rng: np.random.Generator, change: Mapping[str, float] | None = None, noise: float = 0.001, bias: float = 0.002
) -> Path:
    """A run of a suite of two members, three repeats each: a bias that the session shares, and noise of each run.

    Both as standard deviations, relative. `change`: factors by metric; a factor of 0 is what a broken mechanism leaves.
    """
    shared = {name: 1 + rng.normal(0, bias) for name in USUAL}
    attempts = []
    for member in ("links", "other"):
        for seed in range(1, RUNS + 1):
            metrics = {name: value * shared[name] * (1 + rng.normal(0, noise)) for name, value in USUAL.items()}
            metrics |= {name: round(value) for name, value in metrics.items() if isinstance(USUAL[name], int)}
            if member == "links":
                metrics |= {name: metrics[name] * factor for name, factor in (change or {}).items()}
            attempts.append(Made(member, seed, metrics))
    return write(folder, attempts)


@pytest.fixture
def reference(tmp_path: Path) -> baseline.Baseline:
    rng = np.random.default_rng(5)
    folders = [session(tmp_path / "base" / str(number), rng) for number in range(3)]
    baseline.write(tmp_path / "made.yaml", [suites.read(folder) for folder in folders])
    return baseline.read(tmp_path / "made.yaml")


def failed(found: regress.Regression) -> list[tuple[str, str]]:
    return [(case.member, case.name) for case in found.cases if case.state is State.FAILED]


def test_h24_the_same_commit_raises_no_alarm_and_a_slow_down_does(tmp_path: Path, reference: baseline.Baseline) -> None:
    """Ten sessions, each with a bias of its own, one of them under background load; then one that is 20 % slower."""
    rng = np.random.default_rng(6)
    for number in range(10):
        noise = 0.02 if number == 7 else 0.001
        found = regress.regress(session(tmp_path / "same" / str(number), rng, noise=noise), reference)
        assert failed(found) == []
        assert found.status is ExitStatus.PASSED
    slow = regress.regress(session(tmp_path / "slow", rng, {"goodput_mbps": 0.8, "message_ms_p50": 1.25}), reference)
    assert failed(slow) == [("links", "goodput_mbps"), ("links", "message_ms_p50")]
    assert slow.status is ExitStatus.EXPECTATION_FAILED


def test_h24_what_sessions_differ_by_is_not_taken_for_a_regression() -> None:
    """Repeats of one session confirm its bias; only other sessions tell how large that may be."""
    apart = [np.array([-0.1, 0.0, 0.1]) + bias for bias in (0.0, -2.0, 2.0)]
    tonight = np.array([-3.1, -3.0, -2.9])
    alike = [np.array([-0.1, 0.0, 0.1])] * 3
    assert regress.interval(tonight, alike)[1] < -1.5  # beyond the 1 % that is allowed
    assert regress.interval(tonight, apart)[1] > -1.5


def test_what_seeds_differ_by_is_no_scatter(tmp_path: Path) -> None:
    """A hash gives some seeds half of what it gives others; each is held against itself."""
    by_seed = {1: 20.0, 2: 32.0, 3: 45.0}

    def hashed(folder: Path, factor: float) -> Path:
        return write(folder, [Made("rc", seed, {"goodput_mbps": value * factor}) for seed, value in by_seed.items()])

    folders = [hashed(tmp_path / str(number), 1 + number / 1000) for number in range(3)]
    baseline.write(tmp_path / "rc.yaml", [suites.read(folder) for folder in folders])
    reference = baseline.read(tmp_path / "rc.yaml")
    assert failed(regress.regress(hashed(tmp_path / "same", 1.002), reference)) == []
    assert failed(regress.regress(hashed(tmp_path / "slow", 0.95), reference)) == [("rc", "goodput_mbps")]


def test_h24_a_baseline_takes_several_sessions_and_a_noisy_one_cannot_replace_it(
    tmp_path: Path, reference: baseline.Baseline
) -> None:
    rng = np.random.default_rng(7)
    quiet = [session(tmp_path / str(number), rng) for number in range(3)]
    noisy = session(tmp_path / "noisy", rng, noise=0.05)
    biased = session(tmp_path / "biased", rng, {"goodput_mbps": 0.95})
    file = tmp_path / "made.yaml"
    before = file.read_text()
    for folders, said in [
        (quiet[:2], "2 sessions; a baseline takes at least 3"),
        ([*quiet[:2], quiet[0]], "the same session twice"),
        ([*quiet[:2], noisy], "links: goodput_mbps scatters by"),
        ([*quiet[:2], biased], "goodput_mbps scatters by .* between sessions"),
    ]:
        with pytest.raises(ScenarioError, match=said):
            baseline.write(file, [suites.read(folder) for folder in folders])
        assert file.read_text() == before
    baseline.write(file, [suites.read(folder) for folder in quiet])
    assert file.read_text() != before


def test_h06_invalid_runs_are_reported_as_such_never_as_a_regression(tmp_path: Path, reference: baseline.Baseline) -> None:
    """A machine too slow for its hosts: the numbers are far off, and the gate does not use them."""
    slow = USUAL | {"goodput_mbps": 30.0}
    reasons = ["mean share of the machine's cores busy: 0.99, limit 0.95"]
    attempts = [Made("links", seed, slow, "invalid", reasons) for seed in (1, 2, 3)]
    attempts += [Made("other", seed, USUAL) for seed in (1, 2, 3)]
    folder = write(tmp_path / "slow", attempts)
    found = regress.regress(folder, reference)
    assert failed(found) == []
    assert [(case.member, case.name, case.state) for case in found.cases if case.state is not State.PASSED] == [
        ("links", "expectations", State.INVALID)
    ]
    assert reasons[0] in found.cases[0].text
    assert found.status is ExitStatus.INVALID
    rng = np.random.default_rng(8)
    others = [session(tmp_path / str(number), rng) for number in range(2)]
    with pytest.raises(ScenarioError, match="links is invalid"):
        baseline.write(tmp_path / "made.yaml", [suites.read(one) for one in (*others, folder)])


def test_one_invalid_run_among_three_leaves_two_to_judge_by(tmp_path: Path, reference: baseline.Baseline) -> None:
    attempts = [Made("links", 1, USUAL | {"goodput_mbps": 30.0}, "invalid"), Made("links", 2, USUAL), Made("links", 3, USUAL)]
    found = regress.regress(write(tmp_path / "run", attempts), reference)
    assert failed(found) == []
    assert found.status is ExitStatus.PASSED
    assert found.notes == ("not in this run: other",)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"evs_restored": 0.0}, ["evs_restored"]),  # probes are off
        ({"evs_restored": 2.0}, ["evs_restored"]),  # either way is a change
        ({"evs_retired": 0.0}, []),  # fewer is no regression
        ({"goodput_mbps": 0.975}, ["goodput_mbps"]),  # one host of eight at nine tenths
        ({"goodput_mbps": 1.1}, []),
        ({"recovery_rtts_max": 2.0}, ["recovery_rtts_max"]),
        ({"cpu_busy": 1.5}, []),  # the machine's, not the fabric's
    ],
)
def test_the_right_metrics_and_only_those(
    tmp_path: Path, reference: baseline.Baseline, change: dict[str, float], expected: list[str]
) -> None:
    found = regress.regress(session(tmp_path / "run", np.random.default_rng(9), change), reference)
    assert failed(found) == [("links", name) for name in expected]


def test_a_corrupt_message_has_no_tolerance(tmp_path: Path, reference: baseline.Baseline) -> None:
    attempts = [Made("links", seed, USUAL | {"messages_corrupt": 1}) for seed in (1, 2, 3)]
    assert failed(regress.regress(write(tmp_path / "run", attempts), reference)) == [("links", "messages_corrupt")]


@pytest.mark.parametrize(
    ("attempts", "said"),
    [
        ([Made("links", 1, status="unsupported")], "tool X: needed by Y"),
        ([Made("new", seed, USUAL) for seed in (1, 2)], "the baseline does not have this member"),
        ([Made("links", 1, USUAL)], "1 valid runs have this metric; 2 are needed"),
    ],
)
def test_what_cannot_be_compared_is_unsupported(
    tmp_path: Path, reference: baseline.Baseline, attempts: list[Made], said: str
) -> None:
    found = regress.regress(write(tmp_path / "run", attempts), reference)
    wrong = [case for case in found.cases if case.state is not State.PASSED]
    assert {case.state for case in wrong} == {State.UNSUPPORTED}
    assert said in wrong[0].text
    assert found.status is ExitStatus.PASSED


def test_a_scenario_that_changed_is_not_compared(tmp_path: Path, reference: baseline.Baseline) -> None:
    folder = session(tmp_path / "run", np.random.default_rng(1), {"goodput_mbps": 0.5})
    (folder / "runs/links/member.yaml").write_text("name: links\nlinks: {rate: 9mbit}\n")
    found = regress.regress(folder, reference)
    assert [case.text for case in found.cases if case.state is State.UNSUPPORTED] == [
        "the scenario has changed since the baseline was made: update it"
    ]
    (folder / "runs/links/member.yaml").write_text("name: links\nseed: 7\nexpect: [goodput_ratio >= 0.5]\n")
    assert failed(regress.regress(folder, reference)) == [("links", "goodput_mbps")]


def test_what_the_command_line_changed_is_under_test_not_another_scenario(tmp_path: Path, reference: baseline.Baseline) -> None:
    folder = session(tmp_path / "run", np.random.default_rng(1), {"goodput_mbps": 0.8})
    plan = json.loads((folder / "suite.json").read_text())
    for member in plan["members"]:
        member["unchanged"] = f"runs/{member['name']}/unchanged.yaml"
        (folder / member["unchanged"]).write_text(f"name: {member['name']}\n")
        (folder / member["file"]).write_text(f"name: {member['name']}\nlinks: {{rate: 1mbit}}\n")
    (folder / "suite.json").write_text(json.dumps(plan | {"command": "run_experiment.py --set links.rate=1mbit"}))
    found = regress.regress(folder, reference)
    assert failed(found) == [("links", "goodput_mbps")]
    assert found.notes == ("the command line changed this run's scenarios: run_experiment.py --set links.rate=1mbit",)
    rng = np.random.default_rng(8)
    others = [session(tmp_path / str(number), rng) for number in range(2)]
    with pytest.raises(ScenarioError, match="was run with --set"):
        baseline.write(tmp_path / "made.yaml", [suites.read(one) for one in (*others, folder)])


def test_a_run_that_broke_fails(tmp_path: Path, reference: baseline.Baseline) -> None:
    attempts = [Made("links", 1, USUAL), Made("links", 2, USUAL, "error"), Made("links", 3, USUAL)]
    assert failed(regress.regress(write(tmp_path / "run", attempts), reference)) == [("links", "expectations")]


def test_gates_of_the_baseline_file_hold_and_stay(tmp_path: Path, reference: baseline.Baseline) -> None:
    file = tmp_path / "made.yaml"
    wide = "gates:\n  links.goodput_mbps: {better: higher, relative: 0.3, absolute: 0.0}\n"
    file.write_text(file.read_text().replace("gates: {}\n", wide))
    slow = session(tmp_path / "slow", np.random.default_rng(2), {"goodput_mbps": 0.8})
    assert failed(regress.regress(slow, baseline.read(file))) == []
    rng = np.random.default_rng(3)
    baseline.write(file, [suites.read(session(tmp_path / str(number), rng)) for number in range(3)])
    assert baseline.read(file).gates["links.goodput_mbps"].relative == 0.3


def test_a_gate_can_be_there_before_the_first_baseline(tmp_path: Path) -> None:
    """What is known to scatter more than the usual gate allows, of one member only."""
    rng = np.random.default_rng(4)
    folders = [session(tmp_path / str(number), rng, {"goodput_mbps": factor}) for number, factor in enumerate((0.97, 1, 1.03))]
    read = [suites.read(folder) for folder in folders]
    file = tmp_path / "made.yaml"
    with pytest.raises(ScenarioError, match=r"give links\.goodput_mbps a wider gate there"):
        baseline.write(file, read)
    for member, enough in (("other", False), ("links", True)):
        file.write_text(f"schema: 1\ngates:\n  {member}.goodput_mbps: {{better: higher, relative: 0.1}}\n")
        if enough:
            baseline.write(file, read)
        else:
            with pytest.raises(ScenarioError, match="scatters by"):
                baseline.write(file, read)
    assert baseline.read(file).gates["links.goodput_mbps"].relative == 0.1


def test_another_suite_or_machine_is_said(tmp_path: Path, reference: baseline.Baseline) -> None:
    with pytest.raises(ScenarioError, match="a run of quick, the baseline is of made"):
        regress.regress(write(tmp_path / "quick", [Made("links")], name="quick"), reference)
    moved = regress.regress(
        write(tmp_path / "moved", [Made("links", seed, USUAL) for seed in (1, 2)], kernel="6.1 x"), reference
    )
    assert moved.notes[0].startswith("the baseline comes from another machine or kernel: made made up 2, here 6.1 made up 2")


HARD = "goodput_ratio >= 0.97 & <b>\x01"


def everything(folder: Path) -> Path:
    """A run with every state in it."""
    line: dict[str, Any] = {"text": HARD, "actual": 0.9, "passed": False}
    attempts = [Made("links", seed, USUAL, "failed", expectations=[line]) for seed in (1, 2, 3)]
    attempts += [Made("other", seed, USUAL, "invalid", ["lag"]) for seed in (1, 2, 3)] + [Made("bgp", 1, status="unsupported")]
    return write(folder, attempts, ["links.goodput_mbps > 2 * links.ideal_mbps"])


def test_the_junit_file_is_valid_and_shows_what_failed(tmp_path: Path, reference: baseline.Baseline) -> None:
    found = regress.regress(everything(tmp_path / "run"), reference)
    text = junit.xml(found)
    SCHEMA.validate(text)
    root = ET.fromstring(text)
    failure = root.find(".//testsuite[@name='made.links']/testcase[@name='expectations']/failure")
    assert failure is not None
    assert failure.text is not None
    assert failure.text.startswith("goodput_ratio >= 0.97 & <b>\ufffd (actual 0.9, seed 1)")
    assert root.find(".//testsuite[@name='made.other']/testcase/error") is not None
    assert root.find(".//testsuite[@name='made.bgp']/testcase/skipped") is not None
    counts = [(suite.get("name"), suite.get("failures"), suite.get("errors"), suite.get("skipped")) for suite in root]
    assert counts == [
        ("made.links", "1", "0", "0"),
        ("made.other", "0", "1", "0"),
        ("made.bgp", "0", "0", "1"),
        ("made.made", "1", "0", "0"),
    ]


def test_a_schema_that_takes_anything_would_be_no_test() -> None:
    with pytest.raises(xmlschema.XMLSchemaValidationError):
        SCHEMA.validate("<testsuites><testsuite name='x'/></testsuites>")


def test_the_command_writes_its_files_and_says_it_in_its_exit_status(
    tmp_path: Path, reference: baseline.Baseline, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(tmp_path / "made.yaml")
    slow = session(tmp_path / "slow", np.random.default_rng(2), {"goodput_mbps": 0.8})
    history = tmp_path / "history" / "made.parquet"
    assert command.main(["regress", str(slow), "--baseline", file, "--history", str(history)]) == 1
    said = capsys.readouterr().out
    assert said == (slow / "regression.md").read_text()
    assert "| links | goodput_mbps | failed | goodput_mbps 119.98, baseline 1" in said
    SCHEMA.validate((slow / "junit.xml").read_text())
    assert command.main(["trend", str(history)]) == 0
    assert (tmp_path / "history" / "made.html").is_file()
    assert command.main(["regress", str(slow), "--baseline", str(tmp_path / "nothing.yaml")]) == 2
    assert command.main(["regress", str(slow), str(slow)]) == 2
    assert command.main(["regress", str(slow), "--update-baseline"]) == 2
    assert command.main(["regress", str(slow)]) == 0  # only expectations, and they hold
