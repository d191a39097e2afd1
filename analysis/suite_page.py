"""report.html of a suite: claim, what was measured, verdict, and a figure beside each. One file, no outside request."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from analysis import pages
from analysis.judge import write_atomically
from analysis.rows import Row, figure, rows, what_and_why
from analysis.suites import Suite, Verdict, commit

NAME = "report.html"


def write(suite: Suite, verdict: Verdict, *, figures: bool = True) -> Path:
    """The page in the suite's folder; with `figures` the bars of each comparison are drawn first."""
    every = rows(suite, verdict)
    if figures:
        _draw(suite, every)
    path = suite.folder / NAME
    write_atomically(path, render(suite, verdict, every))
    return path


def render(suite: Suite, verdict: Verdict, every: Sequence[Row]) -> str:
    """The page as text."""
    plan = suite.plan
    return pages.template("suite.html.j2").render(
        suite=verdict.summary["suite"],
        run_id=verdict.summary["run_id"],
        status=verdict.summary["status"],
        description=" ".join(plan["description"].split()),
        provenance=provenance(plan, commit(suite)),
        rows=[(row, _image(suite, row)) for row in every],
        counts=_counts(every),
        not_emulated=[what_and_why(text) for text in plan.get("not_emulated", [])],
    )


def provenance(plan: Mapping[str, Any], source: str) -> str:
    """When, from what source and on what the suite ran."""
    cpu = plan.get("cpu") or {}
    machine = f"Linux {plan['kernel']}, {cpu.get('model', '?')}, {cpu.get('cores', '?')} cores"
    return f"Started {plan['started']}, commit {source}, {machine}."


def _counts(every: Sequence[Row]) -> str:
    words = [row.verdict for row in every]
    return ", ".join(f"{words.count(word)} {word}" for word in dict.fromkeys(words))


def _draw(suite: Suite, every: Sequence[Row]) -> None:
    table = suite.table
    if not len(table):
        return
    table = table[table["counts"]]
    for row in every:
        shown = [name for name in row.metrics if name in table and table[name].notna().any()]
        if row.group and shown:
            from analysis.figures import members

            members.draw(table, [ran.name for ran in row.members], shown, suite.folder / "figures", row.name)


def _image(suite: Suite, row: Row) -> str:
    """The figure as a data URI; empty where there is none."""
    drawn = figure(suite, row)
    if drawn is None:
        return ""
    return "data:image/png;base64," + base64.b64encode(drawn.with_suffix(".png").read_bytes()).decode("ascii")
