"""Comparison and export: grouping, pairing, intervals, refusals; the figures' data equal the table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import analysis
from analysis import report
from analysis.__main__ import main
from analysis.compare import bootstrap, bootstrap_difference, compare
from analysis.tables import TABLES
from testbed.errors import ScenarioError
from testbed.model.load import dump, load_text
from tests.unit.analysis import synthetic
from tests.unit.analysis.conftest import SMALL

OBLIVIOUS = SMALL.replace("workload:", "transport: {policy: oblivious}\nworkload:")


def judged(folder: Path, seed: int, ratio: float, text: str = SMALL, status: str = "passed", **more: float) -> Path:
    """A folder that holds what a comparison reads: the scenario and a summary."""
    folder.mkdir(parents=True)
    (folder / "scenario.yaml").write_text(dump(load_text(text.replace("seed: 3", f"seed: {seed}"), "made.yaml")))
    summary: dict[str, Any] = {"schema": 1, "scenario": "small", "run_id": folder.name, "path": str(folder), "seed": seed}
    summary |= {"status": status, "fidelity": {"verdict": "invalid" if status == "invalid" else "valid", "reasons": []}}
    summary |= {"metrics": {"goodput_ratio": ratio} | more, "expectations": [], "faults": []}
    (folder / "summary.json").write_text(json.dumps(summary))
    return folder


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Four runs of each of two variants; B is 0.1 below A for every seed, and seeds differ by more than that."""
    for seed in range(4):
        judged(tmp_path / "a" / f"r{seed}", seed, 0.9 + 0.2 * seed)
        judged(tmp_path / "b" / f"q{seed}", seed, 0.8 + 0.2 * seed + 0.001 * seed, OBLIVIOUS)
    return tmp_path


def test_repeats_are_one_group_and_variants_are_named_by_what_differs(runs: Path) -> None:
    found = compare([runs])
    assert found.groups == ("small policy=mrc", "small policy=oblivious")
    first, second = found.rows
    assert (first.metric, first.runs, first.difference) == ("goodput_ratio", 4, None)
    assert first.value.mean == pytest.approx(1.2)
    assert second.difference is not None
    assert second.difference.mean == pytest.approx(-0.1 + 0.0015)


def test_pairing_by_seed_sees_what_the_spread_of_seeds_hides(runs: Path) -> None:
    unpaired = compare([runs / "a", runs / "b"]).rows[1].difference
    paired = compare([runs / "a", runs / "b"], ab=True).rows[1].difference
    assert unpaired is not None
    assert paired is not None
    assert paired.mean == pytest.approx(unpaired.mean)
    assert None not in (unpaired.low, unpaired.high, paired.low, paired.high)
    assert unpaired.low is not None and unpaired.high is not None and unpaired.low < 0 < unpaired.high  # noqa: PT018
    assert paired.low is not None and paired.high is not None and paired.low < paired.high < -0.09  # noqa: PT018


def test_invalid_runs_are_refused_or_marked(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    judged(tmp_path / "a" / "spoilt", 9, 0.1, status="invalid")
    with pytest.raises(ScenarioError, match="small/spoilt is invalid"):
        compare([runs])
    assert main(["compare", str(runs)]) == 2
    assert "must not be used" in capsys.readouterr().err
    assert compare([runs], allow_invalid=True).doubtful == ("small/spoilt",)
    assert main(["compare", str(runs), "--allow-invalid", "--out", str(tmp_path / "out")]) == 0
    assert "marked: 1 of these runs must not be used: small/spoilt" in capsys.readouterr().out


def test_what_cannot_be_compared_is_refused(runs: Path) -> None:
    with pytest.raises(ScenarioError, match="all runs are of one scenario"):
        compare([runs / "a"])
    with pytest.raises(ScenarioError, match="not every run of small policy=mrc has busbw_ratio"):
        compare([runs], metrics=["busbw_ratio"])
    judged(runs / "b" / "q7", 7, 0.5, OBLIVIOUS)
    with pytest.raises(ScenarioError, match=r"seeds do not pair: \[0, 1, 2, 3\] in A, \[0, 1, 2, 3, 7\] in B"):
        compare([runs / "a", runs / "b"], ab=True)
    with pytest.raises(ScenarioError, match="takes two folders, not 1"):
        compare([runs], ab=True)


def test_a_single_run_has_no_interval(tmp_path: Path) -> None:
    one, other = judged(tmp_path / "one", 1, 0.9), judged(tmp_path / "two", 1, 0.7, OBLIVIOUS)
    row = compare([one, other]).rows[1]
    assert (row.value.low, row.value.high) == (None, None)
    assert row.difference is not None
    assert row.difference.mean == pytest.approx(-0.2)
    assert row.difference.low is None


def test_intervals_hold_the_truth_about_as_often_as_they_say() -> None:
    """Of 200 samples of 20 from a skewed distribution; the percentile bootstrap is known to fall a few per cent short."""
    rng = np.random.default_rng(5)
    held = differ = 0
    for _ in range(200):
        values, others = rng.exponential(1.0, 20), rng.exponential(1.0, 20)
        found, between = bootstrap(values), bootstrap_difference(values, others, paired=False)
        held += found.low is not None and found.high is not None and found.low <= 1.0 <= found.high
        differ += between.low is not None and between.high is not None and between.low <= 0.0 <= between.high
    assert 0.84 < held / 200 < 0.99
    assert 0.86 < differ / 200 < 0.995


def test_figures_draw_the_table(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert main(["compare", "--ab", str(runs / "a"), str(runs / "b"), "--out", str(out)]) == 0
    assert "B: b" in capsys.readouterr().out
    table = pd.read_csv(out / "table.csv")
    expected = compare([runs / "a", runs / "b"], ab=True).table
    pd.testing.assert_frame_equal(table, expected, check_dtype=False)
    for name in ("bars", "differences"):
        drawn = pd.read_csv(out / f"{name}.csv")
        pd.testing.assert_frame_equal(drawn, table[drawn.columns], rtol=1e-5)
        assert (out / f"{name}.png").stat().st_size > 5000
        assert (out / f"{name}.svg").exists()
    page = (out / "comparison.md").read_text()
    assert page.count("\n| ") == 1 + len(table)
    assert all(f"({name}.svg)" in page for name in ("bars", "differences"))
    assert "paired by seed" in page


def test_a_bundle_holds_every_table_of_every_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for seed in (3, 4):
        short = SMALL.replace("duration: 8s", "duration: 2s").replace("seed: 3", f"seed: {seed}")
        report.write(synthetic.write(tmp_path / "runs" / f"s{seed}", short), figures=False)
    study = analysis.load([tmp_path / "runs"])
    for kind, reader in (("csv", pd.read_csv), ("parquet", pd.read_parquet)):
        out = tmp_path / kind
        assert main(["export", str(tmp_path / "runs"), "--out", str(out), "--format", kind]) == 0
        assert str(out / f"packets.{kind}") in capsys.readouterr().out
        for table in TABLES:
            frame = reader(out / f"{table.name}.{kind}")
            assert list(frame.columns) == ["run", *(column.name for column in table.columns)]
            assert len(frame) == len(study.table(table.name))
        packets = reader(out / f"packets.{kind}")
        assert packets["sent_ns"].tolist() == study.table("packets")["sent_ns"].tolist(), "to the nanosecond"
        assert reader(out / f"metrics.{kind}")["goodput_ratio"].tolist() == study.metrics["goodput_ratio"].tolist()
        documented = pd.read_csv(out / "columns.csv")
        assert set(documented["table"]) == {*(table.name for table in TABLES), "metrics"}
        assert (out / "runs" / "small-s3" / "scenario.yaml").exists()
