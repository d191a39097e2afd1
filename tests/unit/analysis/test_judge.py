"""Expectations, status and summary.json."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from analysis import judge
from analysis.expectations import evaluate
from analysis.results import Run
from analysis.view import View, view
from testbed.model.scenario import Expectation


def _expect(op: str, value: float, metric: str = "m") -> Expectation:
    return Expectation(f"{metric} {op} {value}", metric, op, value)


@pytest.mark.parametrize(
    ("op", "value", "holds"),
    [
        (">=", 2.0, True),
        (">=", 2.1, False),
        ("<=", 2.0, True),
        ("<=", 1.9, False),
        ("==", 2.0, True),
        (">", 2.0, False),
        ("<", 2.1, True),
    ],
)
def test_operators(op: str, value: float, *, holds: bool) -> None:
    (outcome,) = evaluate([_expect(op, value)], {"m": 2.0})
    assert outcome.passed is holds
    assert outcome.actual == 2.0


@pytest.mark.parametrize("metrics", [{}, {"m": float("nan")}, {"m": float("inf")}])
@pytest.mark.parametrize("op", [">=", "<=", "==", "<"])
def test_what_is_not_measured_never_passes(metrics: dict[str, float], op: str) -> None:
    (outcome,) = evaluate([_expect(op, 0.0)], metrics)
    assert not outcome.passed
    assert outcome.actual is None


def test_a_passing_run(seen: View) -> None:
    summary = judge.summary_of(seen)
    assert list(summary) == [
        "schema",
        "scenario",
        "run_id",
        "path",
        "seed",
        "status",
        "fidelity",
        "metrics",
        "expectations",
        "faults",
    ]
    assert summary["status"] == "passed"
    assert summary["fidelity"] == {"verdict": "valid", "reasons": []}
    assert {one["text"] for one in summary["expectations"]} >= {"messages_corrupt == 0", "messages_incomplete == 0"}
    assert list(summary["faults"][0])[:7] == [
        "what", "at_s", "until_s", "recovery_ms", "recovery_rtts", "stall_ms", "stall_rtts",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("ended", "status"),
    [
        ("interrupted", "interrupted"),
        ("error", "error"),
        ("running", "interrupted"),
        ("passed", "passed"),
        ("failed", "passed"),
    ],
)
def test_how_the_run_ended_outranks_what_it_measured(run: Run, ended: str, status: str) -> None:
    other = replace(run, manifest={**run.manifest, "status": ended})
    assert judge.summarise(other)["status"] == status


def test_a_missed_expectation_fails_a_sound_run(run: Run) -> None:
    scenario = replace(run.scenario, expect=(_expect(">=", 0.999, "goodput_ratio"),))
    assert judge.summarise(replace(run, scenario=scenario))["status"] == "failed"


def test_an_expectation_on_an_absent_metric_fails(run: Run) -> None:
    scenario = replace(run.scenario, expect=(_expect(">=", 0.0, "busbw_mbps"),))
    assert judge.summarise(replace(run, scenario=scenario))["status"] == "failed"


def test_written_whole_or_not_at_all(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = view(replace(run, path=tmp_path))
    summary = judge.write(seen)
    assert json.loads((tmp_path / "summary.json").read_text()) == summary
    before = (tmp_path / "summary.json").read_text()

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="No space"):
        judge.write(seen)
    assert (tmp_path / "summary.json").read_text() == before
    assert [file.name for file in tmp_path.iterdir()] == ["summary.json"]
