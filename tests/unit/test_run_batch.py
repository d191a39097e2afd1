"""Batches of runs over a made-up engine: order, repeats of invalid runs, the time limit, going on after an interruption."""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from testbed.errors import ExitStatus
from testbed.model import suite
from testbed.run import tasks
from testbed.run.batch import Batch
from testbed.run.display import Display
from testbed.run.tasks import Ended, Journal, Task
from testbed.venv import ROOT
from tests.unit.test_suite import TINY


@dataclass
class Scripted:
    """Ends runs as `script` says by key, one entry per try, else PASSED; each claims to have taken `seconds`."""

    script: dict[str, list[ExitStatus]] = field(default_factory=dict)
    width: int = 1
    seconds: float = 3.0
    done: list[str] = field(default_factory=list)
    waiting: list[Task] = field(default_factory=list)
    most: int = 0

    def start(self, task: Task, attempt: int) -> None:
        self.waiting.append(task)
        self.most = max(self.most, len(self.waiting))

    def next(self) -> Ended:
        task = self.waiting.pop(0)
        self.done.append(task.key)
        left = self.script.get(task.key, [])
        status = left.pop(0) if left else ExitStatus.PASSED
        return Ended(task.member, task.seed, int(status), "", self.seconds)

    def stop(self) -> None:
        self.waiting.clear()


@pytest.fixture
def wanted(tmp_path: Path) -> list[Task]:
    (tmp_path / "tiny.yaml").write_text(TINY)
    (tmp_path / "suite.yaml").write_text("name: x\nsuite: [{scenario: tiny, as: a, repeat: 2}, {scenario: tiny, as: b}]\n")
    return tasks.tasks(suite.load_suite(tmp_path / "suite.yaml", ROOT))


def batch(wanted: list[Task], folder: Path, engine: Scripted, limit_s: float | None = None) -> tuple[Batch, io.StringIO]:
    said = io.StringIO()
    return Batch(wanted, Journal(folder / "runs.jsonl"), engine, Display(said), retries=2, time_limit_s=limit_s), said


def test_runs_come_in_the_suites_order_with_an_estimate(wanted: list[Task], tmp_path: Path) -> None:
    engine = Scripted()
    one, said = batch(wanted, tmp_path, engine)
    assert one.run()
    assert engine.done == ["a s1", "a s2", "b s1"]
    assert engine.most == 1
    lines = said.getvalue().splitlines()
    assert lines[0] == "[1/3] a s1 starts; 0 s gone, about 36 s to go"  # 2 s each, and 10 s until the first has shown
    assert lines[2].startswith("[2/3] a s2 starts; ")
    assert lines[2].endswith(" about 6 s to go")  # as the first took: 3 s


def test_an_invalid_run_comes_again_at_the_end_until_the_retries_are_used(wanted: list[Task], tmp_path: Path) -> None:
    bad = ExitStatus.INVALID
    engine = Scripted({"a s1": [bad], "a s2": [bad, bad, bad, bad]})
    assert batch(wanted, tmp_path, engine)[0].run()
    assert engine.done == ["a s1", "a s2", "b s1", "a s1", "a s2", "a s2"]


@pytest.mark.parametrize("status", [ExitStatus.BROKEN, ExitStatus.MISSING_CAPABILITY, ExitStatus.EXPECTATION_FAILED])
def test_what_else_goes_wrong_with_one_run_stops_no_other_and_is_not_repeated(
    wanted: list[Task], tmp_path: Path, status: ExitStatus
) -> None:
    engine = Scripted({"a s1": [status]})
    assert batch(wanted, tmp_path, engine)[0].run()
    assert engine.done == ["a s1", "a s2", "b s1"]


def test_after_an_interruption_only_what_is_missing_runs(wanted: list[Task], tmp_path: Path) -> None:
    engine = Scripted({"a s2": [ExitStatus.INTERRUPTED]})
    assert not batch(wanted, tmp_path, engine)[0].run()
    assert engine.done == ["a s1", "a s2"]
    with (tmp_path / "runs.jsonl").open("a") as file:
        file.write('{"member": "b", "se')  # a crash in mid-line
    again = Scripted()
    resumed, said = batch(wanted, tmp_path, again)
    assert resumed.run()
    assert again.done == ["a s2", "b s1"]
    assert said.getvalue().startswith("1 of 3 runs are there already")
    nothing = Scripted()
    assert batch(wanted, tmp_path, nothing)[0].run()
    assert nothing.done == []


def test_retries_count_over_an_interruption(wanted: list[Task], tmp_path: Path) -> None:
    bad = ExitStatus.INVALID
    assert not batch(wanted, tmp_path, Scripted({"a s1": [bad], "b s1": [ExitStatus.INTERRUPTED]}))[0].run()
    engine = Scripted({"a s1": [bad, bad, bad]})
    assert batch(wanted, tmp_path, engine)[0].run()
    assert engine.done == ["b s1", "a s1", "a s1"]


def test_no_run_begins_that_does_not_fit_into_the_time_limit(wanted: list[Task], tmp_path: Path) -> None:
    engine = Scripted(seconds=500.0)
    one, said = batch(wanted, tmp_path, engine, limit_s=400.0)
    assert one.run()
    assert engine.done == ["a s1"]
    assert "the time limit of 6.7 min is reached: a s2 and what follows is not run" in said.getvalue()


def test_a_wide_engine_has_as_many_runs_as_it_takes(wanted: list[Task], tmp_path: Path) -> None:
    engine = Scripted(width=2)
    assert batch(wanted, tmp_path, engine)[0].run()
    assert engine.most == 2
    assert sorted(engine.done) == ["a s1", "a s2", "b s1"]


def test_the_journal_holds_every_attempt(wanted: list[Task], tmp_path: Path) -> None:
    assert batch(wanted, tmp_path, Scripted({"a s1": [ExitStatus.INVALID]}))[0].run()
    assert [(one.key, one.status) for one in Journal(tmp_path / "runs.jsonl").read()] == [
        ("a s1", 4),
        ("a s2", 0),
        ("b s1", 0),
        ("a s1", 0),
    ]


def test_names_become_folders() -> None:
    assert tasks.slug("transport.evs=8 faults=[{at: 1s}]") == "transport.evs=8_faults=_at_1s_"
