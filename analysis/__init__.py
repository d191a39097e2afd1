"""Reads a results folder: tables, metrics, fidelity, figures, report.

May import testbed.model and testbed.errors, numpy, pandas, pyarrow, matplotlib and jinja2; knows no kernel and no host.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from analysis.results import Run

__all__ = ["load"]


def load(path: str | Path) -> Run:
    """The results folder at `path` as typed tables. ScenarioError when it is not a results folder of a known schema."""
    from analysis.results import read  # pandas takes a second to import; `--help` does not need it

    return read(Path(path))
