"""After traffic: tables, verdict, figures, report. The only file that imports analysis, and it does so when it is called."""

from __future__ import annotations

import json
from typing import Any

from testbed.errors import ExitStatus
from testbed.model.scenario import Scenario
from testbed.model.topology import build
from testbed.run.results import SCHEMA, ResultsFolder
from testbed.run.status import WORDS
from testbed.run.traffic import Outcome

Summary = dict[str, Any]


def judge(scenario: Scenario, folder: ResultsFolder, outcome: Outcome, *, figures: bool) -> Summary:
    """Turn the raw records into tables, judge them, and write summary, figures and report."""
    from analysis import report
    from testbed.run.collect import collect

    collect(folder, scenario, build(scenario.topology), outcome.connections)
    report.write(folder.path, figures=figures)
    summary: Summary = json.loads((folder.path / "summary.json").read_text())
    return summary


def bare(scenario: Scenario, folder: ResultsFolder, status: ExitStatus, error: str | None) -> Summary:
    """The summary of a run that has no results to judge: it names what happened, and no metric."""
    return {
        "schema": SCHEMA,
        "scenario": scenario.name,
        "run_id": folder.run_id,
        "path": str(folder.path),
        "seed": scenario.seed,
        "status": WORDS[status],
        "fidelity": {"verdict": "invalid", "reasons": [error or "no traffic was recorded"]},
        "metrics": {},
        "expectations": [],
        "faults": [],
    }
