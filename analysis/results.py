"""A results folder in memory: typed tables, manifest and resolved scenario. Reading only; no arithmetic.

A run that was interrupted, broke or was killed leaves tables out or half written. Those load as empty tables and are named in
`Run.notes`; only a folder without a readable scenario or of another schema is refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from analysis.tables import SCHEMA, TABLES, Column, Kind, Table
from testbed.errors import Problem, ScenarioError
from testbed.model.load import load as load_scenario
from testbed.model.scenario import Scenario


@dataclass(frozen=True, slots=True)
class Run:
    """One results folder. Columns and units of the tables: `analysis.tables`."""

    path: Path
    scenario: Scenario
    manifest: Mapping[str, Any]  # empty when the run died before writing it
    packets: pd.DataFrame
    messages: pd.DataFrame
    steps: pd.DataFrame
    events: pd.DataFrame
    samples: pd.DataFrame
    ports: pd.DataFrame
    cpu: pd.DataFrame
    trace: pd.DataFrame
    missing: frozenset[str]  # names of tables that are not there or cannot be read
    notes: tuple[str, ...]  # what was found wrong while reading


def read(path: Path) -> Run:
    """Load `path`. ScenarioError when there is no readable scenario.yaml, or the schema is not one this version knows."""
    if not path.is_dir():
        raise _refused(path, "no such results folder", "give the folder that holds manifest.json and scenario.yaml")
    if not (path / "scenario.yaml").is_file():
        hint = "give results/<name>/<time>-s<seed>; analysis.load([folder]) reads all runs below a folder"
        raise _refused(path, "not a results folder: it has no scenario.yaml", hint)
    notes: list[str] = []
    manifest = _manifest(path, notes)
    scenario = load_scenario(path / "scenario.yaml")
    frames: dict[str, pd.DataFrame] = {}
    missing: set[str] = set()
    for table in TABLES:
        wanted = not table.on_request or scenario.measure.trace
        frame = _table(path, table, notes if wanted else [])
        if frame is None:
            if wanted:
                missing.add(table.name)
            frame = _frame(table, pa.table({}))
        frames[table.name] = frame
    return Run(path, scenario, manifest, **frames, missing=frozenset(missing), notes=tuple(notes))


def read_table(path: Path, name: str) -> pd.DataFrame:
    """One table of a results folder (`packets`, `ports`, ...); empty when it is missing or cut off. KeyError for no table."""
    table = {table.name: table for table in TABLES}[name]
    frame = _table(path, table, [])
    return _frame(table, pa.table({})) if frame is None else frame


def _manifest(path: Path, notes: list[str]) -> Mapping[str, Any]:
    file = path / "manifest.json"
    try:
        manifest = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        notes.append("manifest.json is missing")
        return {}
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        notes.append(f"manifest.json cannot be read ({error})")
        return {}
    if not isinstance(manifest, dict):
        raise _refused(file, "the manifest is not a mapping", "")
    schema = manifest.get("schema")
    if schema != SCHEMA:
        raise _refused(file, f"schema {schema!r} is not known", f"this version reads schema {SCHEMA}")
    return manifest


def _table(path: Path, table: Table, notes: list[str]) -> pd.DataFrame | None:
    """The table, or None (with a note) when the file is absent or was cut off while being written."""
    file = path / table.file
    if not file.is_file():
        notes.append(f"{table.file} is missing")
        return None
    try:
        data = pq.read_table(file)
    except (pa.ArrowException, OSError) as error:
        notes.append(f"{table.file} cannot be read ({str(error).splitlines()[0]})")
        return None
    present = set(data.column_names)
    absent = [c.name for c in table.columns if not c.optional and c.name not in present and c.alias not in present]
    if absent:
        raise _refused(file, f"columns missing: {', '.join(absent)}", f"this version reads schema {SCHEMA}")
    return _frame(table, data)


def _frame(table: Table, data: Any) -> pd.DataFrame:
    """`data` (an Arrow table) with exactly the documented columns and types."""
    present = set(data.column_names)
    columns: dict[str, Any] = {}
    for column in table.columns:
        name = column.name if column.name in present else column.alias
        columns[column.name] = _array(column, data.column(name) if name in present else None, data.num_rows)
    return pd.DataFrame(columns)


def _array(column: Column, values: Any, rows: int) -> Any:
    """One Arrow column in the documented type. Integers never pass through floats: a clock's ns need all 63 bits."""
    if values is None:
        values = pa.nulls(rows, pa.int64())
    values = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    match column.kind:
        case Kind.TEXT:
            plain = values.cast(pa.string()).fill_null("").dictionary_encode()
            if isinstance(plain, pa.ChunkedArray):
                plain = plain.combine_chunks()
            categories = plain.dictionary.to_pylist()
            return pd.Categorical.from_codes(
                plain.indices.to_numpy(zero_copy_only=False), categories=pd.Index(categories, dtype="str")
            )
        case Kind.NULLABLE_INT:
            mask = values.is_null().to_numpy(zero_copy_only=False)
            filled = values.cast(pa.int64(), safe=False).fill_null(0).to_numpy(zero_copy_only=False)
            return pd.arrays.IntegerArray(np.array(filled), np.array(mask))
        case Kind.INT:
            return np.array(values.cast(pa.int64(), safe=False).fill_null(0).to_numpy(zero_copy_only=False))
        case Kind.FLOAT:
            return np.array(values.cast(pa.float64()).to_numpy(zero_copy_only=False), dtype=np.float64)
        case Kind.BOOL:
            return np.array(values.cast(pa.bool_()).fill_null(False).to_numpy(zero_copy_only=False))


def _refused(path: Path, message: str, hint: str) -> ScenarioError:
    return ScenarioError([Problem(str(path), 0, "", message, hint)])
