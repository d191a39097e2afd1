"""The history of nightlies: nothing is lost, nothing is counted twice, and changes are found where they are."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from analysis import history, regress, trend
from testbed.errors import ScenarioError
from tests.support.suite_folders import Made, write


def night(folder: Path, number: int, goodput: float, **more: Any) -> regress.Regression:
    metrics = {"goodput_mbps": goodput, "cpu_busy": 0.5}
    attempts = [Made("mrc", seed, metrics) for seed in (1, 2)] + [Made("gone", 1, status="invalid")]
    started = (pd.Timestamp("2026-01-01", tz="UTC") + pd.Timedelta(days=number)).isoformat()
    return regress.regress(write(folder / f"2026{number:04d}", attempts, started=started, **more), None)


def test_a_row_per_member_and_metric(tmp_path: Path) -> None:
    file = tmp_path / "history" / "made.parquet"
    history.append(file, night(tmp_path, 0, 150.0))
    rows = history.append(file, night(tmp_path, 1, 151.0))
    assert rows[["run_id", "member", "metric", "runs", "state"]].to_numpy().tolist() == [
        ["20260000", "mrc", "goodput_mbps", 2, ""],
        ["20260000", "mrc", "cpu_busy", 2, ""],
        ["20260000", "gone", "", 0, "invalid"],
        ["20260001", "mrc", "goodput_mbps", 2, ""],
        ["20260001", "mrc", "cpu_busy", 2, ""],
        ["20260001", "gone", "", 0, "invalid"],
    ]
    assert rows.equals(history.read(file))


def test_the_same_run_again_replaces_its_rows(tmp_path: Path) -> None:
    file = tmp_path / "made.parquet"
    one = night(tmp_path, 0, 150.0)
    history.append(file, one)
    assert len(history.append(file, one)) == 3


def test_a_history_that_cannot_be_read_is_never_replaced(tmp_path: Path) -> None:
    file = tmp_path / "made.parquet"
    file.write_bytes(b"half a file")
    with pytest.raises(ScenarioError, match="cannot be read"):
        history.append(file, night(tmp_path, 0, 150.0))
    assert file.read_bytes() == b"half a file"
    pd.DataFrame({"a": [1]}).to_parquet(file)
    with pytest.raises(ScenarioError, match="is no history"):
        history.append(file, night(tmp_path, 1, 150.0))


def test_a_crash_while_writing_leaves_the_old_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "made.parquet"
    history.append(file, night(tmp_path, 0, 150.0))
    before = file.read_bytes()

    def crash(_self: pd.DataFrame, path: Path, **_more: object) -> None:
        path.write_bytes(b"half")
        raise OSError("the disk is full")

    monkeypatch.setattr(pd.DataFrame, "to_parquet", crash)
    with pytest.raises(OSError, match="the disk is full"):
        history.append(file, night(tmp_path, 1, 150.0))
    assert file.read_bytes() == before
    assert [path.name for path in tmp_path.glob("*.parquet*")] == ["made.parquet"]


def test_changes_are_found_where_they_are() -> None:
    rng = np.random.default_rng(4)
    values = np.concatenate([rng.normal(150, 0.3, 20), rng.normal(147, 0.3, 15), rng.normal(150, 0.3, 15)])
    assert [change.at for change in trend.change_points(values, 0.75)] == [20, 35]
    assert trend.change_points(values, 5.0) == []  # smaller than what matters


def test_noise_is_no_change() -> None:
    rng = np.random.default_rng(5)
    found = [trend.change_points(rng.normal(150, 1.0, 40), 0.0) for _ in range(100)]
    assert sum(map(bool, found)) <= 1


@pytest.mark.parametrize("values", [[], [1.0], [1.0] * 30, [1.0, 2.0] * 3])
def test_short_and_constant_series_have_none(values: list[float]) -> None:
    assert trend.change_points(np.array(values), 0.0) == []


def test_the_page_is_self_contained_and_names_the_change(tmp_path: Path) -> None:
    file = tmp_path / "made.parquet"
    rng = np.random.default_rng(6)
    for number in range(12):
        commit = {"git": {"commit": f"{number:040x}", "dirty": False}}
        history.append(file, night(tmp_path, number, (150 if number < 6 else 140) + rng.normal(0, 0.2), **commit))
    page = trend.write(file, tmp_path / "made.html").read_text()
    assert not re.search(r"(?:src|href)=\"(?!data:)", page)
    assert re.search(r"<td>2026-01-07</td><td><code>000000000000</code></td><td>mrc</td><td>goodput_mbps</td><td>1\d\d", page)
    assert page.count("<svg") == 1  # cpu_busy is the machine's
    assert "<td>gone</td><td>invalid</td>" in page
