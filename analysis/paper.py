"""docs/paper.md from the folder of a suite's run: every claim with its set-up, what was measured, and the verdict.

Nothing in it is written by hand but the causes of what does not reproduce, which a file of their own gives by row.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml

from analysis import suites
from analysis.rows import Line, Row, rows, what_and_why
from testbed.errors import Problem, ScenarioError

COMMAND = "python -m analysis paper"


def markdown(folder: Path, scenarios: Path, causes: Mapping[str, str], link: str = "../scenarios") -> str:
    """The page of the suite's run in `folder`. `scenarios`: where its files are looked up, `link` the way there from the page.

    ScenarioError for what is no suite's folder, and for a cause that belongs to no row.
    """
    suite = suites.read(folder)
    verdict = suites.judge(suite)
    every = rows(suite, verdict)
    unknown = sorted(set(causes) - {row.name for row in every})
    if unknown:
        raise ScenarioError([Problem("causes", 0, unknown[0], "there is no such row", ", ".join(row.name for row in every))])
    found = ["# What reproduces", "", f"Made by `{COMMAND}` from a run of `--suite={suite.plan['suite']}`; do not edit.", ""]
    found += [" ".join(suite.plan["description"].split()), "", _origin(suite), ""]
    found += [_row(["source", "claim", "scaled set-up", "measured", "verdict", "scenario"]), _row(["---"] * 6)]
    for row in every:
        measured = "; ".join(map(_line, row.lines)) or "nothing"
        file = _file(row, scenarios)
        at = f"[{row.name}]({link}/{file.relative_to(scenarios)})" if file is not None else row.name
        found.append(_row([_source(row), row.claim, row.setup, measured, f"**{row.verdict}**{_fidelity(row)}", at]))
    found += _missing(every, causes)
    if suite.plan.get("not_emulated"):
        found += ["", "## What cannot be emulated", ""]
        found += [f"- **{what}.** {reason}" for what, reason in map(what_and_why, suite.plan["not_emulated"])]
    return "\n".join(found) + "\n"


def causes_in(path: Path) -> dict[str, str]:
    """Row -> why it does not reproduce, from a YAML mapping."""
    try:
        read = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ScenarioError([Problem(str(path), 0, "", f"cannot be read ({error})", "")]) from error
    if not isinstance(read, dict) or not all(isinstance(one, str) for pair in read.items() for one in pair):
        raise ScenarioError([Problem(str(path), 0, "", "expected row names with texts", "fig17: why it does not reproduce")])
    return {name: " ".join(text.split()) for name, text in read.items()}


def _origin(suite: suites.Suite) -> str:
    """Date, commit and machine. Commits are those that the runs themselves name: a resumed suite may have several."""
    commits = dict.fromkeys(_commit(suite.folder / one.path) for one in suite.attempts if one.usable)
    cpu, day = suite.plan.get("cpu") or {}, str(suite.plan["started"])[:10]
    usable = sum(one.usable for one in suite.attempts)
    return (
        f"Run of {day}, commit {' and '.join(f'`{one}`' for one in commits) or 'unknown'}; Linux {suite.plan['kernel']}, "
        f"{cpu.get('model', '?')}, {cpu.get('cores', '?')} cores; {usable} runs that count."
    )


def _commit(run: Path) -> str:
    try:
        git = json.loads((run / "manifest.json").read_text(encoding="utf-8")).get("git") or {}
    except (OSError, ValueError):
        git = {}
    return f"{str(git.get('commit', 'unknown'))[:12]}{' with changes' if git.get('dirty') else ''}"


def _source(row: Row) -> str:
    return row.source.removeprefix("arXiv 2605.04333, ")


def _line(line: Line) -> str:
    return f"`{line.text}` {'' if line.holds else '**missed** '}({line.measured})"


def _fidelity(row: Row) -> str:
    """Said only where the machine was felt."""
    words = dict.fromkeys(word for ran in row.members for word in ran.fidelity.split(", ") if word not in ("", "valid"))
    return f" (fidelity {', '.join(words)})" if words else ""


def _file(row: Row, scenarios: Path) -> Path | None:
    name = row.name if row.group else row.members[0].scenario
    return next(iter(sorted(scenarios.rglob(f"{name}.yaml"))), None)


def _missing(every: Sequence[Row], causes: Mapping[str, str]) -> list[str]:
    """Each claim that does not reproduce, with its cause as far as it is known."""
    failed = [row for row in every if row.status == "failed"]
    if not failed:
        return []
    found = ["", "## What does not reproduce", ""]
    for row in failed:
        missed = "; ".join(_line(line) for line in row.lines if not line.holds)
        found.append(f"- **{row.name}**: {missed}. {causes.get(row.name, 'The cause is not known.')}")
    return found


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
