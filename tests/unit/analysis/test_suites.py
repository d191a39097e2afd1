"""A suite's table and verdict from its folder: which attempts count, claims over medians, exit statuses."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from analysis import rows, study, suites
from testbed.errors import ExitStatus, ScenarioError
from tests.support.suite_folders import Made, write


def goodput(value: float) -> dict[str, float]:
    return {"goodput_mbps": value}


def test_medians_of_the_runs_that_count_and_claims_over_them(tmp_path: Path) -> None:
    attempts = [
        Made("mrc", 1, goodput(100.0), faults=[{"what": "x", "stall_ms": 2.0, "recovery_ms": None}]),
        Made("mrc", 2, goodput(1.0), "invalid", ["host lag"]),
        Made("mrc", 3, goodput(120.0), faults=[{"what": "x", "stall_ms": 4.0, "recovery_ms": None}]),
        Made("rc-bgp", 1, goodput(30.0)),
        Made("mrc", 2, goodput(110.0), faults=[{"what": "x", "stall_ms": 3.0, "recovery_ms": None}]),
    ]
    claims = ["rc-bgp.goodput_mbps * 3 < mrc.goodput_mbps", "mrc.fault0_stall_ms == 3", "mrc.goodput_mbps > rc-bgp.busbw_mbps"]
    folder = write(tmp_path / "suite", attempts, claims)
    verdict = suites.write(folder, figures=True)
    drawn = pd.read_csv(folder / "figures" / "members.csv")
    assert drawn[["member", "metric", "median"]].to_numpy().tolist()[:2] == [
        ["mrc", "goodput_mbps", 110.0],
        ["rc-bgp", "goodput_mbps", 30.0],
    ]
    assert verdict.summary["members"][0]["metrics"] == {"goodput_mbps": 110.0, "fault0_stall_ms": 3.0}
    (comparison,) = verdict.summary["comparisons"]
    assert [(one["passed"], one["actual"], one["bound"]) for one in comparison["expectations"]] == [
        (True, 90.0, 110.0),
        (True, 3.0, 3.0),
        (False, 110.0, None),
    ]
    assert comparison["members"] == ["mrc", "rc-bgp"]
    assert verdict.exit_status == ExitStatus.EXPECTATION_FAILED
    assert [one["scenario"] for one in verdict.claims] == ["mrc", "mrc", "mrc", "rc-bgp", "made"]
    table = pd.read_parquet(folder / "suite.parquet")
    assert table[["member", "seed", "try", "counts"]].to_numpy().tolist() == [
        ["mrc", 1, 1, True],
        ["mrc", 2, 1, False],
        ["mrc", 3, 1, True],
        ["rc-bgp", 1, 1, True],
        ["mrc", 2, 2, True],
    ]
    assert len(pd.read_csv(folder / "suite.csv")) == 5
    assert json.loads((folder / "summary.json").read_text())["status"] == "failed"
    page = (folder / "summary.md").read_text()
    assert "| `mrc.fault0_stall_ms == 3` | yes | 3 | 3 |" in page
    assert "| **no** |" in page


@pytest.mark.parametrize(
    ("status", "word", "exit_status"),
    [
        ("passed", "passed", ExitStatus.PASSED),
        ("failed", "failed", ExitStatus.EXPECTATION_FAILED),
        ("invalid", "invalid", ExitStatus.INVALID),
        ("error", "error", ExitStatus.BROKEN),
        ("unsupported", "unsupported", ExitStatus.MISSING_CAPABILITY),
    ],
)
def test_the_worst_member_decides(tmp_path: Path, status: str, word: str, exit_status: ExitStatus) -> None:
    folder = write(tmp_path / "suite", [Made("a"), Made("b", 1, status=status, reasons=["why"])])
    verdict = suites.write(folder)
    assert verdict.exit_status == exit_status
    assert [one["status"] for one in verdict.summary["members"]] == ["passed", word]


def test_a_claim_about_a_member_without_a_valid_run_is_invalid_not_failed(tmp_path: Path) -> None:
    folder = write(tmp_path / "s", [Made("a"), Made("b", 1, status="invalid")], ["a.goodput_mbps > b.goodput_mbps"])
    verdict = suites.write(folder)
    assert verdict.summary["comparisons"][0]["status"] == "invalid"
    assert verdict.exit_status == ExitStatus.INVALID


def test_members_that_never_ran_make_it_invalid_and_an_interruption_wins(tmp_path: Path) -> None:
    folder = write(tmp_path / "suite", [Made("a"), Made("b", 1), Made("b", 2)])
    journal = (folder / "runs.jsonl").read_text().splitlines()
    (folder / "runs.jsonl").write_text("\n".join(journal[:2]) + "\n" + journal[2][:10])
    verdict = suites.write(folder)
    assert [one["status"] for one in verdict.summary["members"]] == ["passed", "not run"]
    assert verdict.exit_status == ExitStatus.INVALID
    assert suites.write(folder, complete=False).exit_status == ExitStatus.INTERRUPTED


def test_expectations_that_failed_are_named_with_their_seed(tmp_path: Path) -> None:
    line = {"text": "goodput_ratio >= 0.97", "actual": 0.9, "passed": False}
    verdict = suites.write(write(tmp_path / "suite", [Made("a", 7, status="failed", expectations=[line])]))
    assert verdict.summary["members"][0]["failed"] == ["goodput_ratio >= 0.97 (actual 0.9, seed 7)"]
    assert "    FAIL goodput_ratio >= 0.97 (actual 0.9, seed 7)" in suites.lines(verdict)


def test_the_runs_of_a_suite_are_those_that_count(tmp_path: Path) -> None:
    folder = write(tmp_path / "suite", [Made("a", 1, status="invalid"), Made("a", 1), Made("b", 1, status="invalid")])
    assert [run.name for run in study.runs_in(folder)] == ["20260101T000001Z-s1"]


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="not a suite's folder"):
        suites.read(tmp_path)


def test_a_claim_is_also_told_for_each_seed(tmp_path: Path) -> None:
    """The medians may say what not every pair of runs does; a seed that one of the members lacks says nothing."""
    pairs = [(100.0, 80.0), (100.0, 120.0), (100.0, 70.0)]
    attempts = [Made("mrc", seed, goodput(mrc)) for seed, (mrc, _) in enumerate(pairs, 1)]
    attempts += [Made("rc", seed, goodput(rc)) for seed, (_, rc) in enumerate(pairs, 1)] + [Made("mrc", 9, goodput(100.0))]
    folder = write(tmp_path / "suite", attempts, ["mrc.goodput_mbps > rc.goodput_mbps"])
    suite = suites.read(folder)
    verdict = suites.judge(suite)
    (claim,) = verdict.summary["comparisons"][0]["expectations"]
    assert claim["passed"]
    assert [(one["seed"], one["passed"], one["bound"]) for one in claim["seeds"]] == [
        (1, True, 80),
        (2, False, 120),
        (3, True, 70),
    ]
    (line,) = rows.rows(suite, verdict)[-1].lines
    assert line.measured == "100 against 80; true of 2 of 3 seeds"
