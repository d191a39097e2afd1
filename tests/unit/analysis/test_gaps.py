"""Pitfall H-22: no data and no traffic are different things, and the last partial bin is not a drop."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from analysis.figures import draw_all, style
from analysis.metrics import measure
from analysis.metrics.goodput import binned, flow_rates
from analysis.results import read
from analysis.view import view
from tests.unit.analysis import synthetic
from tests.unit.analysis.conftest import SMALL

T0 = synthetic.T0_NS


def test_h22_a_silent_live_host_is_zero(tmp_path: Path) -> None:
    seen = view(read(synthetic.write(tmp_path / "silent", SMALL, synthetic.Wrong(silent=(3.0, 6.0)))))
    edges = style.bin_edges(seen, 100_000_000)
    placed, _ = binned(seen, edges)
    assert not np.isnan(placed).any()
    quiet = (edges[:-1] >= T0 + 3_100_000_000) & (edges[1:] <= T0 + 6_000_000_000)
    assert (placed[quiet] == 0).all()
    assert measure(seen)["goodput_ratio"] == pytest.approx(0.985 * 4 / 7, abs=0.01)
    assert measure(seen)["goodput_ratio_min_1s"] == 0


def test_h22_a_dead_host_is_a_gap_and_means_leave_it_out(tmp_path: Path) -> None:
    wrong = synthetic.Wrong(dead_host="h2", dead=(3.0, 6.0))
    seen = view(read(synthetic.write(tmp_path / "dead", SMALL, wrong)))
    edges = style.bin_edges(seen, 100_000_000)
    placed, ideal = binned(seen, edges)
    to_h2 = next(at for at in range(len(seen.flows)) if seen.receiver(at) == "h2")
    hole = (edges[:-1] >= T0 + 3_200_000_000) & (edges[1:] <= T0 + 5_800_000_000)
    assert np.isnan(placed[hole, to_h2]).all()
    assert np.isnan(ideal[hole, to_h2]).all()
    others = [at for at in range(len(seen.flows)) if at != to_h2]
    assert not np.isnan(placed[:, others]).any()
    metrics = measure(seen)
    assert metrics["goodput_ratio"] == pytest.approx(0.985, abs=0.01)
    assert metrics["goodput_ratio_min_1s"] > 0.9
    assert metrics["flow_goodput_ratio_min"] > 0.95


def test_h22_jitter_does_not_bridge_a_gap(tmp_path: Path) -> None:
    """Delay that jumps while nothing is recorded is not jitter."""
    wrong = synthetic.Wrong(dead_host="h2", dead=(3.0, 6.0))
    place = synthetic.write(tmp_path / "dead", SMALL, wrong)
    before = measure(view(read(place)))["jitter_us"]
    table = pd.read_parquet(place / "packets.parquet")
    late = (table["peer"] == "h2") & (table["sent_ns"] > T0 + 5_900_000_000) & table["placed_ns"].notna()
    table.loc[late, "placed_ns"] += 400_000_000
    table.to_parquet(place / "packets.parquet")
    assert measure(view(read(place)))["jitter_us"] == pytest.approx(before, rel=0.05)


def test_a_stalled_loop_that_says_so_is_no_gap(tmp_path: Path) -> None:
    wrong = synthetic.Wrong(dead_host="h2", dead=(3.0, 6.0))
    place = synthetic.write(tmp_path / "stalled", SMALL, wrong)
    cpu = pd.read_parquet(place / "cpu.parquet")
    woke = cpu[(cpu["who"] == "h2") & (cpu["t_ns"] > T0 + 6_000_000_000)]["t_ns"].min()
    cpu.loc[(cpu["who"] == "h2") & (cpu["t_ns"] == woke), "lag_ms_max"] = 2_950.0
    cpu.to_parquet(place / "cpu.parquet")
    seen = view(read(place))
    assert len(seen.coverage.spans["h2"]) == 1
    assert measure(seen)["goodput_ratio_min_1s"] < 0.9


def test_without_samples_packets_themselves_are_the_signs_of_life(tmp_path: Path) -> None:
    wrong = synthetic.Wrong(dead_host="h2", dead=(3.0, 6.0), skip_tables=frozenset({"samples", "cpu"}))
    place = synthetic.write(tmp_path / "bare", SMALL, wrong)
    table = pd.read_parquet(place / "packets.parquet")
    lost_rows = (table["host"] == "h2") & table["sent_ns"].between(T0 + 3 * 10**9, T0 + 6 * 10**9)
    table[~lost_rows].to_parquet(place / "packets.parquet")
    seen = view(read(place))
    assert len(seen.coverage.spans["h2"]) == 2
    assert all(len(spans) == 1 for host, spans in seen.coverage.spans.items() if host != "h2")
    to_h2 = next(at for at in range(len(seen.flows)) if seen.receiver(at) == "h2")
    rates = flow_rates(seen)
    assert rates.placed[to_h2] / rates.ideal[to_h2] > 0.95


def test_h22_the_last_partial_bin_is_not_drawn(tmp_path: Path) -> None:
    text = SMALL.replace("duration: 8s", "duration: 8050ms")
    seen = view(read(synthetic.write(tmp_path / "odd", text)))
    edges = style.bin_edges(seen, 100_000_000)
    assert edges[-1] == T0 + 8_000_000_000
    draw_all(seen)
    drawn = pd.read_csv(seen.run.path / "figures" / "goodput.csv")
    assert drawn["t_s"].max() == pytest.approx(7.95)
    assert drawn["goodput_mbps"].iloc[-1] > 0.9 * drawn["ideal_mbps"].iloc[-1]


def test_gaps_reach_the_csv_as_empty_cells(tmp_path: Path) -> None:
    wrong = synthetic.Wrong(dead_host="h2", dead=(3.0, 6.0))
    seen = view(read(synthetic.write(tmp_path / "dead", SMALL, wrong)))
    draw_all(seen)
    for name in ("goodput", "planes", "paths"):
        drawn = pd.read_csv(seen.run.path / "figures" / f"{name}.csv")
        hole = drawn[(drawn["t_s"] > 3.5) & (drawn["t_s"] < 5.5)]
        assert hole.iloc[:, 1].isna().all(), name
        assert drawn[drawn["t_s"] > 6.5].iloc[:, 1].notna().all(), name
