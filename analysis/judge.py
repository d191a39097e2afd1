"""summary.json: metrics, fidelity, expectations, faults and the one word that says how the run ended (DESIGN 4.4)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from analysis.expectations import Outcome, evaluate
from analysis.fidelity import Fidelity, Verdict, assess
from analysis.metrics import measure
from analysis.metrics.faults import costs
from analysis.results import Run
from analysis.view import View, view
from testbed.whole import replacing

SUMMARY_SCHEMA = 1
DIGITS = 6  # significant; more would be noise


def summarise(run: Run) -> dict[str, Any]:
    """The summary of a run, ready for `json.dumps`."""
    return summary_of(view(run))


def summary_of(seen: View) -> dict[str, Any]:
    """The same from a view that is already there."""
    run = seen.run
    metrics = measure(seen)
    fidelity = assess(seen)
    outcomes = evaluate(run.scenario.expect, metrics)
    return {
        "schema": SUMMARY_SCHEMA,
        "scenario": run.scenario.name,
        "run_id": run.path.resolve().name,
        "path": str(run.path),
        "seed": run.scenario.seed,
        "status": status(run, fidelity, outcomes),
        "fidelity": {"verdict": str(fidelity.verdict), "reasons": list(fidelity.reasons)},
        "metrics": _rounded(metrics),
        "expectations": [_rounded(asdict(outcome)) for outcome in outcomes],
        "faults": [_rounded(asdict(cost)) for cost in costs(seen)],
    }


def status(run: Run, fidelity: Fidelity, outcomes: Sequence[Outcome]) -> str:
    """passed | failed | invalid | error | interrupted, worst first as DESIGN 4.1 ranks exit statuses.

    A folder whose manifest is missing, or still says `running`, belongs to a run that was killed.
    """
    ended = str(run.manifest.get("status", "running"))
    if ended in {"interrupted", "running"}:
        return "interrupted"
    if ended == "error":
        return "error"
    if fidelity.verdict is Verdict.INVALID:
        return "invalid"
    return "passed" if all(outcome.passed for outcome in outcomes) else "failed"


def write(seen: View) -> dict[str, Any]:
    """Write summary.json beside the tables, whole or not at all, and return it."""
    summary = summary_of(seen)
    text = json.dumps(summary, indent=2, allow_nan=False, ensure_ascii=False) + "\n"
    write_atomically(seen.run.path / "summary.json", text)
    return summary


def write_atomically(path: Path, text: str) -> None:
    """A reader sees the old file or the new one, never half of one."""
    with replacing(path) as part:
        part.write_text(text, encoding="utf-8")


def _rounded(mapping: dict[str, Any]) -> dict[str, Any]:
    return {key: float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value for key, value in mapping.items()}
