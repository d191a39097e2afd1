"""Runs as one bundle for other tools: each table of all runs in one file, metrics and faults, and what every column means."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import pandas as pd

from analysis.metrics.definitions import DEFINITIONS
from analysis.study import Study, label, study
from analysis.tables import TABLES

Format = Literal["parquet", "csv"]


def export(paths: Sequence[Path], out: Path, kind: Format) -> list[Path]:
    """Write the bundle into `out` (made if need be, files of the same names replaced); returns the files.

    Tables gain a first column `run`, scenario/run_id. ScenarioError for a path that holds no run.
    """
    loaded = study(paths)
    out.mkdir(parents=True, exist_ok=True)
    written = [_write(loaded.table(table.name), out / f"{table.name}.{kind}") for table in TABLES]
    written += [_write(loaded.metrics, out / f"metrics.{kind}"), _write(loaded.faults, out / f"faults.{kind}")]
    return [*written, *_about(loaded, out)]


def _write(frame: pd.DataFrame, path: Path) -> Path:
    if path.suffix == ".parquet":
        frame.to_parquet(path, index=False, compression="zstd")
    else:
        frame.to_csv(path, index=False)
    return path


def _about(loaded: Study, out: Path) -> list[Path]:
    """columns.csv, and each run's manifest and scenario in `runs/`."""
    rows = [(table.name, c.name, c.kind.value, c.meaning) for table in TABLES for c in table.columns]
    rows += [("metrics", one.name, "int64" if one.count else "float64", f"{one.meaning} [{one.unit}]") for one in DEFINITIONS]
    columns = out / "columns.csv"
    pd.DataFrame(rows, columns=["table", "column", "type", "meaning"]).to_csv(columns, index=False)
    written = [columns]
    for folder, summary in zip(loaded.folders, loaded.summaries, strict=True):
        place = out / "runs" / label(summary).replace("/", "-")
        place.mkdir(parents=True, exist_ok=True)
        (place / "summary.json").write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
        for name in ("manifest.json", "scenario.yaml"):
            if (folder / name).is_file():
                shutil.copyfile(folder / name, place / name)
        written.append(place)
    return written
