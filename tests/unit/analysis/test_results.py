"""Loading: typed tables, exact times, partial runs, refusals."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import analysis
from analysis import report
from analysis.judge import summarise
from analysis.results import Run, read
from analysis.tables import TABLES, Kind
from testbed.errors import ScenarioError
from tests.unit.analysis import synthetic
from tests.unit.analysis.conftest import SMALL


def test_every_documented_column_is_there_in_its_type(run: Run) -> None:
    assert not run.missing
    assert not run.notes
    for table in TABLES:
        frame = getattr(run, table.name)
        assert list(frame.columns) == [column.name for column in table.columns]
        for column in table.columns:
            kind = "category" if column.kind is Kind.TEXT else column.kind.value
            assert str(frame[column.name].dtype) == kind, (table.name, column.name)


def test_times_survive_to_the_nanosecond(run: Run, raw: pd.DataFrame) -> None:
    """A clock at 81 days has more digits than a float; a null among the times must not cost the last ones."""
    assert synthetic.T0_NS > 2**52
    assert run.packets["placed_ns"].isna().any()
    assert np.array_equal(run.packets["sent_ns"].to_numpy(), raw["sent_ns"].to_numpy())
    known = raw["placed_ns"].notna().to_numpy()
    assert run.packets["placed_ns"][known].tolist() == raw["placed_ns"][known].tolist()


def test_the_package_loads_by_name(folder: Path) -> None:
    assert len(analysis.load(folder).packets) > 90_000


@pytest.mark.parametrize("left", ["packets", "messages", "events", "samples", "ports", "cpu"])
def test_a_run_without_one_table_still_has_a_summary(tmp_path: Path, left: str) -> None:
    wrong = synthetic.Wrong(skip_tables=frozenset({left}), status="interrupted")
    run = read(synthetic.write(tmp_path / "part", SMALL, wrong))
    assert run.missing == {left}
    assert f"{left}.parquet is missing" in run.notes
    summary = summarise(run)
    assert summary["status"] == "interrupted"
    json.dumps(summary, allow_nan=False)


def test_a_trace_is_missing_only_where_one_was_asked_for(tmp_path: Path) -> None:
    run = read(synthetic.write(tmp_path / "plain", SMALL))
    assert run.missing == frozenset()
    assert not run.notes
    assert len(run.trace) == 0
    asked = SMALL.replace("duration:", "trace: true, duration:")
    place = synthetic.write(tmp_path / "asked", asked)
    assert read(place).missing == {"trace"}
    rows = {"t_ns": [5], "host": ["h0"], "peer": ["h1"], "flow": [0], "qp": [16], "kind": ["lost"], "psn": [7], "ev": [65537]}
    left = {"plane": [1], "before": [""], "after": [""], "reason": ["rto"], "value": pd.array([None], dtype="Int64")}
    pd.DataFrame(rows | left).to_parquet(place / "trace.parquet")
    (row,) = read(place).trace.itertuples()
    assert (row.kind, row.psn, row.plane, row.reason) == ("lost", 7, 1, "rto")


def test_a_run_killed_at_once_has_a_summary(tmp_path: Path) -> None:
    every = frozenset(table.name for table in TABLES)
    place = synthetic.write(tmp_path / "killed", SMALL, synthetic.Wrong(skip_tables=every))
    (place / "manifest.json").unlink()
    run = read(place)
    summary = summarise(run)
    assert summary["status"] == "interrupted"
    assert set(summary["metrics"]) == {"rtt_base_ms"}
    assert all(one["actual"] is None and not one["passed"] for one in summary["expectations"])
    assert summary["fidelity"]["verdict"] == "degraded"


def test_a_table_cut_off_while_being_written_counts_as_missing(tmp_path: Path) -> None:
    place = synthetic.write(tmp_path / "cut", SMALL)
    whole = (place / "ports.parquet").read_bytes()
    (place / "ports.parquet").write_bytes(whole[: len(whole) // 2])
    run = read(place)
    assert run.missing == {"ports"}
    assert "cannot be read" in run.notes[0]


def test_an_empty_table_with_untyped_columns_loads(tmp_path: Path) -> None:
    place = synthetic.write(tmp_path / "empty", SMALL)
    names = [column.name for column in next(table for table in TABLES if table.name == "events").columns]
    pd.DataFrame().reindex(columns=names).to_parquet(place / "events.parquet")
    assert len(read(place).events) == 0
    assert summarise(read(place))["metrics"]["evs_retired"] == 0


def test_refusals_name_the_file_and_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="no such results folder"):
        read(tmp_path / "nowhere")
    with pytest.raises(ScenarioError, match=r"no scenario\.yaml"):
        read(tmp_path)
    place = synthetic.write(tmp_path / "future", SMALL)
    manifest = json.loads((place / "manifest.json").read_text())
    (place / "manifest.json").write_text(json.dumps(manifest | {"schema": 2}))
    with pytest.raises(ScenarioError, match=r"manifest\.json: schema 2 is not known \(this version reads schema 1\)"):
        read(place)
    (place / "manifest.json").write_text(json.dumps(manifest))
    pd.read_parquet(place / "packets.parquet").drop(columns="psn").to_parquet(place / "packets.parquet")
    with pytest.raises(ScenarioError, match=r"packets\.parquet: columns missing: psn"):
        read(place)


def test_several_runs_are_a_study(tmp_path: Path) -> None:
    short = SMALL.replace("duration: 8s", "duration: 3s")
    for seed in (3, 4):
        place = synthetic.write(tmp_path / "small" / f"run-s{seed}", short.replace("seed: 3", f"seed: {seed}"))
        report.write(place, figures=False)
    killed = synthetic.write(tmp_path / "other" / "killed", short, synthetic.Wrong(skip_tables=frozenset({"messages"})))
    (killed / "manifest.json").unlink()
    (tmp_path / "small" / "latest").symlink_to("run-s4")
    study = analysis.load([tmp_path])
    assert study.metrics["run"].tolist() == ["small/killed", "small/run-s3", "small/run-s4"]
    assert study.metrics["status"].tolist() == ["interrupted", "passed", "passed"]
    assert study.metrics["goodput_ratio"].notna().all()
    messages = study.table("messages")
    assert set(messages["run"]) == {"small/run-s3", "small/run-s4"}
    assert messages.columns[0] == "run"
    assert str(messages["host"].dtype) == "category"
    alone = analysis.load(study.folders[1]).messages
    assert len(messages[messages["run"] == "small/run-s3"]) == len(alone)
    assert analysis.load([study.folders[1], tmp_path / "other"]).metrics["seed"].tolist() == [3, 3]


def test_a_study_of_nothing_or_of_another_schema_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="no results folder in it"):
        analysis.load([tmp_path])
    place = synthetic.write(tmp_path / "run", SMALL)
    (place / "summary.json").write_text('{"schema": 2}')
    with pytest.raises(ScenarioError, match="not of schema 1"):
        analysis.load([place])
    (place / "summary.json").write_text("{")
    with pytest.raises(ScenarioError, match="cannot be read"):
        analysis.load([place])
