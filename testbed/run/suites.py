"""A suite or a sweep from its description to its folder: plan, runs, table, verdict.

`<out>/<name>/<UTC time>/`: `suite.json` (the plan), `runs.jsonl` (how each run ended), `runs/<member>/` (its resolved scenario
and its results folders), `logs/`, and at the end `suite.parquet`, `suite.csv`, `summary.json` and `summary.md`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from testbed.errors import ExitStatus, Problem, ScenarioError
from testbed.model.load import dump
from testbed.model.suite import Suite
from testbed.run import provenance, results, tasks
from testbed.run.batch import Batch, Engine
from testbed.run.display import Display
from testbed.run.tasks import Journal, Task

SCHEMA = 1
PLAN = "suite.json"
BASE = "unchanged.yaml"  # a member as its suite has it, where the command line changed it
JOURNAL = "runs.jsonl"


@dataclass(frozen=True, slots=True)
class Done:
    """`claims`: what `--json` prints, one entry per run that counts and per comparison (DESIGN 4.2)."""

    folder: Path
    status: ExitStatus
    claims: list[dict[str, Any]]
    lines: list[str]


def run(
    suite: Suite, out: Path, display: Display, engine: Callable[[Path], Engine], *, resume: bool = False, figures: bool = True
) -> Done:
    """Run all of it, or with `resume` what the newest folder of that name still lacks, and judge what is there.

    ScenarioError when there is nothing to resume, or the folder is of another plan.
    """
    wanted = tasks.tasks(suite)
    folder = _resumed(suite, out, wanted) if resume else _created(suite, out, wanted)
    display.say(f"{suite.name}: {len(wanted)} runs of {len(suite.members)} members; results in {folder}")
    limit_s = None if suite.time_limit_ns is None else suite.time_limit_ns / 1e9
    batch = Batch(wanted, Journal(folder / JOURNAL), engine(folder), display, suite.retries, limit_s)
    try:
        complete = batch.run()
    except KeyboardInterrupt:  # between two runs: what has ended is in the journal
        complete = False
    return conclude(folder, complete=complete, figures=figures)


def conclude(folder: Path, *, complete: bool = True, figures: bool = True) -> Done:
    """Table, verdict and summaries of what has ended."""
    from analysis import suites

    found = suites.write(folder, complete=complete, figures=figures)
    results.give_batch_to_caller(folder)
    return Done(folder, ExitStatus(found.exit_status), found.claims, suites.lines(found))


def _created(suite: Suite, out: Path, wanted: list[Task]) -> Path:
    folder = results.create_batch(out, suite.name)
    try:
        files = {task.member: folder / task.file for task in wanted}
        for member in suite.members:
            spec, file = member.scenario.transport, files[member.name]
            file.parent.mkdir(parents=True)
            results.write_scenario(file.parent, dump(member.scenario), spec.policy_file, spec.policy_text, file.name)
            if member.base is not None:
                (file.parent / BASE).write_text(dump(member.base), encoding="utf-8")
        results.write_atomically(folder / PLAN, json.dumps(_plan(suite, wanted), indent=2) + "\n")
    except OSError as trouble:
        raise results.refused(folder, trouble) from trouble
    return folder


def _resumed(suite: Suite, out: Path, wanted: list[Task]) -> Path:
    latest = out.absolute() / suite.name / "latest"
    folder = latest.resolve()
    try:
        plan = json.loads((folder / PLAN).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise _refused(
            "--resume", f"there is nothing to resume: {latest} is no suite's folder", "run it without --resume"
        ) from None
    if plan["sha256"] != _digest(suite, wanted):
        raise _refused(
            "--resume", f"{folder} is of another plan: members, overrides or repeats differ", "run it without --resume"
        )
    return folder


def _plan(suite: Suite, wanted: list[Task]) -> dict[str, Any]:
    files = {task.member: task.file for task in wanted}
    return {
        "schema": SCHEMA,
        "suite": suite.name,
        "description": suite.description,
        "not_emulated": [" ".join(text.split()) for text in suite.not_emulated],
        "sha256": _digest(suite, wanted),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": provenance.command(),
        "git": provenance.git(),
        "kernel": provenance.kernel(),
        "cpu": provenance.cpu(),
        "versions": provenance.versions(),
        "retries": suite.retries,
        "members": [
            {
                "name": member.name,
                "scenario": member.scenario.name,
                "description": " ".join(member.scenario.description.split()),
                "source": member.scenario.source,
                "seeds": [task.seed for task in wanted if task.member == member.name],
                "file": files[member.name],
                "unchanged": str(Path(files[member.name]).with_name(BASE)) if member.base is not None else "",
                "values": dict(member.values),
            }
            for member in suite.members
        ],
        "comparisons": [
            {
                "name": one.name,
                "prefix": one.prefix,
                "description": " ".join(one.description.split()),
                "source": one.source,
                "expect": [claim.text for claim in one.expect],
            }
            for one in suite.comparisons
        ],
    }


def _digest(suite: Suite, wanted: list[Task]) -> str:
    """Of everything that decides what is run."""
    texts = [f"{member.name}\n{dump(member.scenario)}\n{member.scenario.transport.policy_text}" for member in suite.members]
    return hashlib.sha256("\0".join([suite.name, *texts, *(task.key for task in wanted)]).encode()).hexdigest()


def _refused(what: str, message: str, hint: str) -> ScenarioError:
    return ScenarioError([Problem(what, 0, "", message, hint)])
