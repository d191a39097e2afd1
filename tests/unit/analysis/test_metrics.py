"""Metrics against the same numbers worked out from raw rows in another way."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from analysis.judge import summary_of
from analysis.metrics import measure
from analysis.metrics.definitions import DEFINITIONS
from analysis.results import read
from analysis.view import View, view
from testbed.model.metrics import METRICS
from tests.unit.analysis import synthetic
from tests.unit.analysis.conftest import SMALL

T0 = synthetic.T0_NS
START, END = T0 + 2 * 10**9, T0 + 20 * 10**9
RTT = 40_000_000
PER_FLOW_BPS = 4 * 5e6 * 4096 / 4262  # no fault of the made-up run costs capacity: 5 of 6 T1s still carry 4 hosts


@pytest.fixture(scope="module")
def metrics(seen: View) -> dict[str, float | int]:
    return measure(seen)


def test_every_metric_is_in_the_contract_and_in_its_order() -> None:
    names = [definition.name for definition in DEFINITIONS]
    assert set(names) <= set(METRICS)
    assert len(names) == len(set(names))


def test_goodput_counts_first_arrivals_placed_in_the_window(metrics: dict[str, float], raw: pd.DataFrame) -> None:
    arrived = raw[raw["placed_ns"].notna()].sort_values("placed_ns").drop_duplicates(["flow", "psn"])
    placed = arrived[(arrived["placed_ns"] >= START) & (arrived["placed_ns"] < END)]
    assert metrics["goodput_mbps"] == pytest.approx(placed["bytes"].sum() * 8 / 18 / 1e6, rel=1e-9)
    assert metrics["ideal_mbps"] == pytest.approx(8 * PER_FLOW_BPS / 1e6, rel=1e-6)
    assert metrics["ideal_equal_planes_mbps"] == pytest.approx(8 * PER_FLOW_BPS / 1e6, rel=1e-6)
    assert metrics["goodput_ratio"] == pytest.approx(metrics["goodput_mbps"] / metrics["ideal_mbps"], rel=1e-9)
    second = (placed["placed_ns"].astype("int64") - START) // 10**9
    worst = placed.groupby(second)["bytes"].sum().min() * 8 / (8 * PER_FLOW_BPS)
    assert metrics["goodput_ratio_min_1s"] == pytest.approx(worst, rel=1e-6)


def test_duplicates_are_not_goodput(raw: pd.DataFrame) -> None:
    assert raw["duplicate"].sum() > 0
    assert raw[raw["placed_ns"].notna() & ~raw["duplicate"]].duplicated(["flow", "psn"]).sum() == 0


def test_flow_ratios_and_jain(metrics: dict[str, float], raw: pd.DataFrame) -> None:
    counted = raw[raw["placed_ns"].notna() & ~raw["duplicate"] & (raw["placed_ns"] >= START) & (raw["placed_ns"] < END)]
    ratios = counted.groupby("flow")["bytes"].sum() * 8 / 18 / PER_FLOW_BPS
    assert metrics["flow_goodput_ratio_min"] == pytest.approx(ratios.min(), rel=1e-6)
    assert metrics["flow_goodput_ratio_max"] == pytest.approx(ratios.max(), rel=1e-6)
    assert metrics["flow_goodput_ratio_p50"] == pytest.approx(ratios.median(), rel=1e-6)
    assert metrics["jain_index"] == pytest.approx(ratios.sum() ** 2 / (8 * (ratios**2).sum()), rel=1e-9)


def test_messages_posted_in_the_window(metrics: dict[str, float], folder: Path) -> None:
    table = pd.read_parquet(folder / "messages.parquet")
    timed = table[(table["post_ns"] >= START) & (table["post_ns"] < END)]
    took = (timed["complete_ns"] - timed["post_ns"]).astype("int64") / 1e6
    assert metrics["message_ms_p50"] == pytest.approx(took.median())
    assert metrics["message_ms_max"] == pytest.approx(took.max())
    assert metrics["messages_completed"] == len(table)
    assert metrics["messages_incomplete"] == metrics["messages_corrupt"] == 0
    assert metrics["bytes_lost"] == 0


def test_packet_counts(metrics: dict[str, float], raw: pd.DataFrame) -> None:
    sent = raw[(raw["sent_ns"] >= START) & (raw["sent_ns"] < END)]
    assert metrics["packets_sent"] == len(sent)
    assert metrics["retransmit_ratio"] == pytest.approx(sent["retransmission"].mean())
    assert metrics["spurious_retransmit_ratio"] == pytest.approx(sent["duplicate"].mean())
    assert metrics["packets_marked"] == (sent["fate"] == "marked").sum()
    per_plane = sent.groupby("plane")["bytes"].sum()
    assert metrics["plane_imbalance"] == pytest.approx(per_plane.max() / per_plane.mean() - 1)
    assert (metrics["evs_retired"], metrics["evs_restored"], metrics["evs_skipped"]) == (16, 16, 0)


def test_delay_and_jitter_by_the_letter_of_rfc_3550(metrics: dict[str, float], raw: pd.DataFrame) -> None:
    sent = raw[(raw["sent_ns"] >= START) & (raw["sent_ns"] < END) & raw["placed_ns"].notna()]
    oneway = (sent["placed_ns"].astype("int64") - sent["sent_ns"]) / 1e3
    assert metrics["oneway_us_p50"] == pytest.approx(oneway.quantile(0.5))
    assert metrics["oneway_us_p99"] == pytest.approx(oneway.quantile(0.99))
    running: list[float] = []
    first = raw[~raw["retransmission"] & raw["placed_ns"].notna()]
    for _, path in first.groupby(["flow", "ev"]):
        rows = path.sort_values("placed_ns")
        placed, left = rows["placed_ns"].astype("int64").tolist(), rows["sent_ns"].tolist()
        j = 0.0
        for at in range(1, len(placed)):
            d = (placed[at] - placed[at - 1]) - (left[at] - left[at - 1])
            j += (abs(d) - j) / 16
            if START <= placed[at] < END:
                running.append(j)
    assert metrics["jitter_us"] == pytest.approx(float(np.mean(running)) / 1e3, rel=1e-9)


def test_faults_recovery_loss_and_stall(seen: View, raw: pd.DataFrame) -> None:
    first, second = summary_of(seen)["faults"]
    assert [first["what"], second["what"]] == ["down p0t0-0:p0t1-2", "blackhole p2t0-1:p2t1-4"]
    for cost, start, path in ((first, 4, "p0t1-2"), (second, 12, "p2t1-4")):
        begun = T0 + start * 10**9 + 400_000
        swallowed = raw[(raw["fate"] == "lost") & (raw["path"] == path)]
        assert cost["packets_lost"] == len(swallowed) > 0
        assert cost["recovery_ms"] == pytest.approx((swallowed["sent_ns"].max() - begun) / 1e6, rel=1e-5)
        assert cost["recovery_rtts"] == pytest.approx(cost["recovery_ms"] / 40, rel=1e-5)
        assert cost["stall_ms"] == pytest.approx(_stall_ms(raw, begun, start), abs=0.2)
    metrics = measure(seen)
    assert metrics["recovery_ms_max"] == pytest.approx(max(first["recovery_ms"], second["recovery_ms"]), rel=1e-5)
    assert metrics["stall_rtts_max"] == pytest.approx(max(first["stall_rtts"], second["stall_rtts"]), rel=1e-5)


def _stall_ms(raw: pd.DataFrame, begun: int, start: int) -> float:
    """By brute force on a grid of 0.1 ms: every flow of a cross-group permutation crosses each faulty link."""
    counted = raw[raw["placed_ns"].notna() & ~raw["duplicate"]]
    spans = [(START, T0 + 4 * 10**9 + 400_000)]
    if start == 12:
        spans.append((T0 + 8 * 10**9 + 400_000 + 20 * RTT, begun))
    length = sum(stop - at for at, stop in spans) / 1e9
    grid = np.arange(begun, begun + 4 * 10**9 + 20 * RTT, 100_000)
    behind = np.zeros(len(grid))
    rate = 0.0
    for _, flow in counted.groupby("flow"):
        placed = np.sort(flow["placed_ns"].to_numpy(dtype=np.int64))
        usual = sum(((placed >= at) & (placed < stop)).sum() for at, stop in spans) * 4096 / length
        done = (np.searchsorted(placed, grid) - np.searchsorted(placed, begun)) * 4096
        behind += usual * (grid - begun) / 1e9 - done
        rate += usual
    return float(behind.max() / rate * 1e3)


def test_a_reboot_and_a_slow_link(tmp_path: Path) -> None:
    """The reboot's losses are its own over every link of the switch; a slow link swallows nothing and lowers the ideal."""
    faults = (
        "  - {at: 2s, switch: p0t1-1, action: reboot, for: 1s}",
        "  - {at: 5s, link: {tier: nic-t0, plane: 1}, action: rate, to: 1mbit, direction: forward, for: 1s}",
    )
    text = SMALL.replace("expect:", "faults:\n" + "\n".join(faults) + "\nexpect:")
    seen = view(read(synthetic.write(tmp_path / "reboot", text)))
    reboot, slow = summary_of(seen)["faults"]
    assert reboot["what"] == "reboot p0t1-1"
    assert reboot["packets_lost"] > 0
    assert reboot["recovery_rtts"] > 0
    assert slow["what"].startswith("rate 1mbit h0:p1t0-0, h1:p1t0-0")
    assert (slow["packets_lost"], slow["recovery_ms"]) == (0, 0.0)
    edges, total = seen.ideal.steps()
    at = np.searchsorted(edges, T0 + np.array([4, 5.5]) * 10**9, side="right") - 1
    whole, slowed = (float(total[step]) for step in at)
    assert slowed / whole == pytest.approx((1 + 0.25) / 2)  # one of two planes at 1 of 4 Mbit/s, on the way up


def test_losing_to_the_end_counts_as_the_whole_fault(tmp_path: Path) -> None:
    text = SMALL.replace("expect:", 'faults:\n  - {at: 3s, link: "p0t0-0:p0t1-1", action: blackhole, for: 2s}\nexpect:')
    place = synthetic.write(tmp_path / "oblivious", text)
    table = pd.read_parquet(place / "packets.parquet")
    # put back onto the dead path what the simulator moved away, as a sender without feedback would
    moved = (
        (table["plane"] == 0)
        & (table["sent_ns"] >= T0 + 3 * 10**9)
        & (table["sent_ns"] < T0 + 5 * 10**9)
        & (table["psn"] % 6 == 0)
    )
    table.loc[moved, "ev"] = 1
    table.loc[moved, "placed_ns"] = pd.NA
    table["fate"] = table["fate"].astype("str").where(~moved, "lost")
    table.to_parquet(place / "packets.parquet")
    (fault,) = summary_of(view(read(place)))["faults"]
    assert fault["recovery_ms"] == pytest.approx(2000, rel=1e-6)
    assert fault["recovery_rtts"] == pytest.approx(100, rel=1e-6)
    assert fault["stall_ms"] > 100


def test_a_dead_nic_link_lowers_the_ideal_of_its_host_only(tmp_path: Path) -> None:
    text = SMALL.replace("expect:", 'faults:\n  - {at: 4s, link: "h0:p1t0-0", action: down, for: 2s}\nexpect:')
    seen = view(read(synthetic.write(tmp_path / "nic", text)))
    flow = 2 * 4e6 * 4096 / 4262
    # h0 loses one of two planes as a sender and as a receiver for 2 of the window's 7 s
    expected = (4 * flow * 5 + (2 * flow + 2 * flow / 2) * 2) / 7
    assert measure(seen)["ideal_mbps"] == pytest.approx(expected / 1e6, rel=1e-6)
    assert seen.faults[0].removes_plane


def test_plane_imbalance_looks_away_while_a_plane_is_gone(tmp_path: Path) -> None:
    text = SMALL.replace("expect:", 'faults:\n  - {at: 4s, link: "h0:p1t0-0", action: down, for: 2s}\nexpect:')
    place = synthetic.write(tmp_path / "nic", text)
    table = pd.read_parquet(place / "packets.parquet")
    during = (table["sent_ns"] >= T0 + 4_001 * 10**6) & (table["sent_ns"] < T0 + 5_999 * 10**6)
    table[~(during & (table["plane"] == 1))].to_parquet(place / "packets.parquet")
    assert measure(view(read(place)))["plane_imbalance"] < 0.005


def test_flows_on_one_path_have_an_ideal_of_their_own(tmp_path: Path) -> None:
    """Two flows of one T0 on one uplink, the others apart: half a port each, then a port each."""
    place = synthetic.write(tmp_path / "hashed", SMALL.replace("workload:", "transport: {policy: single_path}\nworkload:"))
    table = pd.read_parquet(place / "packets.parquet")
    path_of = {0: 0 << 16 | 1, 1: 0 << 16 | 1, 2: 1 << 16 | 0, 3: 1 << 16 | 2}
    table.assign(ev=table["flow"].map(path_of), plane=table["flow"].map(path_of) // 2**16).to_parquet(place / "packets.parquet")
    port = 4e6 * 4096 / 4262
    metrics = measure(view(read(place)))
    assert metrics["ideal_transport_mbps"] == pytest.approx((2 * 0.5 + 2) * port / 1e6, rel=1e-6)
    assert metrics["ideal_mbps"] == pytest.approx(4 * 2 * port / 1e6, rel=1e-6)


def test_a_flow_of_several_qps_may_use_the_paths_of_all_of_them(tmp_path: Path) -> None:
    """Both QPs of flow 1 and one of flow 0 on one uplink: flow 0 has its other path to itself and leaves that one to flow 1."""
    rc = SMALL.replace("workload:", "transport: {kind: rc, qps: 2}\nworkload:")
    place = synthetic.write(tmp_path / "hashed", rc)
    table = pd.read_parquet(place / "packets.parquet")
    path_of = {0: (1, 1 << 16 | 1), 1: (1, 1), 2: (1 << 16, 1 << 16), 3: (2, 1 << 16 | 2)}
    second = table["psn"] % 2
    ev = [path_of[flow][qp] for flow, qp in zip(table["flow"], second, strict=True)]
    table.assign(qp=table["qp"] + 100 * second, ev=ev, plane=np.array(ev) // 2**16).to_parquet(place / "packets.parquet")
    seen = view(read(place))
    assert seen.ideal_transport is not None
    port = 4e6 * 4096 / 4262
    assert list(seen.ideal_transport.rates[0]) == pytest.approx([port, port, port, 2 * port], rel=1e-6)


def test_an_ideal_of_its_own_only_where_paths_are_left_out(tmp_path: Path, metrics: dict[str, float]) -> None:
    assert "ideal_transport_mbps" not in metrics
    few = SMALL.replace("workload:", "transport: {evs: 4}\nworkload:")
    assert "ideal_transport_mbps" in measure(view(read(synthetic.write(tmp_path / "few", few))))


def test_without_faults_there_are_no_fault_metrics(tmp_path: Path) -> None:
    metrics = measure(view(read(synthetic.write(tmp_path / "calm", SMALL))))
    assert not {"recovery_ms_max", "stall_rtts_max"} & metrics.keys()
    assert metrics["goodput_ratio"] == pytest.approx(0.985, abs=0.005)


def test_a_flow_that_stops_posting_still_sends_what_it_had_posted(tmp_path: Path) -> None:
    """Its ideal goes on until the last of those messages is complete: goodput is never above it."""
    run = read(synthetic.write(tmp_path / "stopped", SMALL))
    (job,) = run.scenario.workload
    stopped = replace(run, scenario=replace(run.scenario, workload=(replace(job, stop_ns=5 * 10**9),)))
    ratio = measure(view(stopped))["goodput_ratio"]
    assert ratio == pytest.approx(measure(view(run))["goodput_ratio"], rel=0.02)
    assert ratio <= 1
