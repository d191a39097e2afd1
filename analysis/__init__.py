"""Reads results folders: tables, metrics, fidelity, figures, report, comparison.

May import testbed.model and testbed.errors, numpy, pandas, pyarrow, matplotlib and jinja2; knows no kernel and no host.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, overload

if TYPE_CHECKING:
    from analysis.results import Run
    from analysis.study import Study

__all__ = ["load"]


@overload
def load(path: str | Path) -> Run: ...
@overload
def load(path: list[str] | list[Path]) -> Study: ...
def load(path: str | Path | list[str] | list[Path]) -> Run | Study:
    """One results folder as typed tables, or a list of them (or of folders of them: `results/quickstart`) as a study.

    Columns and units: docs/results-format.md. Tables of a run that ended early are empty and named in `Run.missing`.
    ScenarioError when a folder is no results folder, or of a schema that this version does not know.
    """
    from analysis.results import read  # pandas takes a second to import; `--help` does not need it
    from analysis.study import study

    return read(Path(path)) if isinstance(path, (str, Path)) else study([Path(one) for one in path])
