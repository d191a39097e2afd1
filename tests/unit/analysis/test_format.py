"""docs/results-format.md is true: every file, column, key and metric, with the words that the code has for it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from analysis import report
from analysis.judge import summarise
from analysis.metrics.definitions import DEFINITIONS
from analysis.results import Run
from analysis.tables import SCHEMA, TABLES, Table
from tests.support.format_page import PAGE, keys, rows
from tests.unit.analysis import synthetic
from tests.unit.analysis.conftest import SMALL


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_every_column_is_documented(table: Table) -> None:
    expected = [
        [f"[`{c.name}`]" if c.optional else f"`{c.name}`", c.kind.value, c.meaning.replace("|", "/")] for c in table.columns
    ]
    assert rows(table.name) == expected


def test_every_metric_is_documented() -> None:
    assert rows("Metrics") == [[f"`{one.name}`", one.unit or "-", one.meaning] for one in DEFINITIONS]


def test_every_table_is_among_the_files() -> None:
    assert [row for row in rows("Files") if ".parquet" in row[0]] == [[f"`{t.file}`", t.meaning] for t in TABLES]


def test_every_key_of_the_summary_is_documented(run: Run) -> None:
    summary = summarise(run)
    assert keys("summary.json") == list(summary)
    fault_rows = PAGE[PAGE.index("Each entry of `faults`") : PAGE.index("### Metrics")]
    assert re.findall(r"^\| `(\w+)`", fault_rows, flags=re.MULTILINE) == list(summary["faults"][0])


def test_the_schema_number_is_the_codes() -> None:
    assert f"schema {SCHEMA}," in PAGE


def test_a_folder_holds_documented_files_only(tmp_path: Path) -> None:
    folder = synthetic.write(tmp_path / "run", SMALL)
    report.write(folder)
    assert {path.name for path in folder.iterdir()} <= set(keys("Files"))
    assert set(json.loads((folder / "manifest.json").read_text())) - {"synthetic"} <= set(keys("manifest.json"))
