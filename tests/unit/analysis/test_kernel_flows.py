"""TCP's flows are judged from samples by the analysis that judges ours from packets: the same bytes give the same figures."""

from __future__ import annotations

import json
from typing import Any

import pandas as pd
import pytest

import analysis
from analysis.judge import summarise
from analysis.wording import kernel_flows
from tests.unit.analysis import synthetic

INTERVAL_MS = 100
TCP = (
    synthetic.SCENARIO.replace("transport: {kind: mrc, payload: 4096B}", "transport: {kind: tcp}")
    .replace("recovery_rtts_max <= 3", "recovery_rtts_max <= 200")
    .replace("  - plane_imbalance <= 0.03\n", "")
)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], dict[str, Any]]:
    """(summary from packets, summary of the same arrivals told as TCP's samples)."""
    ours = synthetic.write(tmp_path_factory.mktemp("ours"))
    theirs = synthetic.write(tmp_path_factory.mktemp("theirs"), TCP)
    packets, samples = (pd.read_parquet(ours / f"{name}.parquet") for name in ("packets", "samples"))
    packets.head(0).to_parquet(theirs / "packets.parquet")
    pd.read_parquet(ours / "messages.parquet").head(0).to_parquet(theirs / "messages.parquet")
    mine = samples[samples["role"] == "receiver"].groupby(["t_ns", "host", "flow"], observed=True)["bytes"].sum().reset_index()
    streams = mine.assign(plane=-1, role="stream", segments=0, retransmissions=0)
    senders = samples[samples["role"] == "sender"].assign(segments=100, retransmissions=1)
    pd.concat([streams, senders], ignore_index=True).astype({"role": "category"}).to_parquet(theirs / "samples.parquet")
    manifest = json.loads((theirs / "manifest.json").read_text())
    flows = [{"flow": flow, "host": f"h{flow}", "peer": "?", "failure": "", "evs": []} for flow in range(8)]
    flows[3]["failure"] = "h3: iperf3 said nothing"
    manifest |= {"kernel_flows": flows, "counters": {}}
    (theirs / "manifest.json").write_text(json.dumps(manifest))
    return summarise(analysis.load(ours)), summarise(analysis.load(theirs))


def test_goodput_and_ideal_are_the_same(both: tuple[dict[str, Any], dict[str, Any]]) -> None:
    ours, theirs = (summary["metrics"] for summary in both)
    for name in ("goodput_mbps", "goodput_ratio", "flow_goodput_ratio_min", "flow_goodput_ratio_max"):
        assert theirs[name] == pytest.approx(ours[name], rel=0.005)
    assert theirs["ideal_mbps"] == ours["ideal_mbps"]


def test_stalls_agree_to_an_interval(both: tuple[dict[str, Any], dict[str, Any]]) -> None:
    ours, theirs = (summary["faults"] for summary in both)
    assert len(ours) == len(theirs) == 2
    for mine, other in zip(ours, theirs, strict=True):
        assert other["stall_ms"] == pytest.approx(mine["stall_ms"], abs=INTERVAL_MS)
        assert other["packets_lost"] >= 0
        assert 0 <= other["recovery_ms"] <= 4000 + 2 * INTERVAL_MS


def test_segments_failures_and_what_does_not_apply(both: tuple[dict[str, Any], dict[str, Any]]) -> None:
    metrics = both[1]["metrics"]
    assert metrics["retransmit_ratio"] == pytest.approx(0.01)
    assert metrics["flows_failed"] == 1
    assert {"messages_incomplete", "bytes_lost", "oneway_us_p50", "nacks"}.isdisjoint(metrics)
    assert "not recorded" not in " ".join(both[1]["fidelity"]["reasons"])
    assert [one["text"] for one in both[1]["expectations"] if not one["passed"]] == [
        "retransmit_ratio <= 0.002",
        "flows_failed == 0",
    ]


def test_h14_the_report_names_subflows_at_both_ends_and_what_failed() -> None:
    sound = {"host": "h0", "peer": "h2", "failure": "", "subflows_at_sender": 4, "subflows_at_receiver": 4}
    text = kernel_flows([sound, sound | {"failure": "h0 had 1 subflows on 1 of 4 planes", "subflows_at_sender": 1}])
    assert "1 at the sender and 4 at the receiver, 4 at the sender and 4 at the receiver" in text
    assert "Failed: h0 to h2: h0 had 1 subflows on 1 of 4 planes" in text
