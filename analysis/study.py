"""Several results folders side by side: their metrics as one table, and any of their tables with a column that names the run.

Nothing large is held: metrics come from each run's summary.json, tables are read when asked for.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.judge import SUMMARY_SCHEMA, summarise
from analysis.results import read, read_table
from testbed.errors import Problem, ScenarioError

DEPTH = 2  # results/ -> its scenarios -> their runs


@dataclass(frozen=True, slots=True)
class Study:
    """Runs in the order they were named; `summaries` as summary.json has them (DESIGN 4.4)."""

    folders: tuple[Path, ...]
    summaries: tuple[dict[str, Any], ...]

    @property
    def metrics(self) -> pd.DataFrame:
        """One row per run: run, scenario, seed, status, fidelity, then every metric; NaN where a run has none."""
        rows = [_identity(summary) | summary["metrics"] for summary in self.summaries]
        return pd.DataFrame(rows)

    @property
    def faults(self) -> pd.DataFrame:
        """One row per run and fault, as summary.json lists them."""
        return pd.DataFrame([_identity(summary) | fault for summary in self.summaries for fault in summary["faults"]])

    def table(self, name: str) -> pd.DataFrame:
        """The table `name` of every run, one below the other, with the run's name in the column `run` (a category)."""
        names = [label(summary) for summary in self.summaries]
        frames = [read_table(folder, name).assign(run=run) for folder, run in zip(self.folders, names, strict=True)]
        joined = pd.concat(frames, ignore_index=True)
        order = ["run", *(column for column in joined.columns if column != "run")]
        texts = [column for column in order if column == "run" or str(joined[column].dtype) in {"str", "object"}]
        return joined[order].astype(dict.fromkeys(texts, "category"))


def study(paths: Sequence[Path]) -> Study:
    """ScenarioError for a path that holds no run."""
    folders = tuple(folder for path in paths for folder in runs_in(path))
    return Study(folders, tuple(summary_of(folder) for folder in folders))


def runs_in(path: Path) -> list[Path]:
    """`path` itself when it is a results folder, else those below it in order of name; links such as `latest` are left out.

    Of a suite's folder the runs that count, in the suite's order.
    """
    if not path.is_dir():
        raise _refused(path, "no such folder")
    if (path / "suite.json").is_file():
        from analysis import suites

        suite = suites.read(path)
        return [path / one.path for member in suite.members for one in suite.of(member) if one.usable]
    if (path / "scenario.yaml").is_file():
        return [path]
    level, found = [path], list[Path]()
    for _ in range(DEPTH):
        level = sorted(below for folder in level for below in folder.iterdir() if below.is_dir() and not below.is_symlink())
        found += [folder for folder in level if (folder / "scenario.yaml").is_file()]
    if not found:
        raise _refused(path, "no results folder in it: none has a scenario.yaml")
    return found


def summary_of(folder: Path) -> dict[str, Any]:
    """summary.json as it is, or made now from the tables where a killed run left none."""
    file = folder / "summary.json"
    if not file.is_file():
        return summarise(read(folder))
    try:
        summary = json.loads(file.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise _refused(file, f"cannot be read ({error}); `python3 -m analysis report` writes it again") from error
    if not isinstance(summary, dict) or summary.get("schema") != SUMMARY_SCHEMA:
        raise _refused(file, f"not of schema {SUMMARY_SCHEMA}, the one that this version reads")
    return summary


def label(summary: dict[str, Any]) -> str:
    """A run's name among others: scenario/run_id."""
    return f"{summary['scenario']}/{summary['run_id']}"


def _identity(summary: dict[str, Any]) -> dict[str, Any]:
    own = {"run": label(summary)} | {name: summary[name] for name in ("scenario", "seed", "status")}
    return own | {"fidelity": summary["fidelity"]["verdict"]}


def _refused(path: Path, message: str) -> ScenarioError:
    return ScenarioError([Problem(str(path), 0, "", message, "give results/<name>/<time>-s<seed>, or a folder of such")])
