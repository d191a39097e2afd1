"""Flows of TCP through whole runs: one that loses its only link for good fails alone (pitfalls H-12, H-13)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import analysis
from tests.fabric import inventory

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [
    pytest.mark.fabric,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: namespaces, raw sockets"),
]
CUT = """
name: cut
description: One flow loses its host's only link for good; another runs beside it, a third between the same hosts' peers later.
topology: {planes: 1, t0_groups: 2, t1_per_plane: 2, hosts_per_t0: 2}
links: {rate: 10mbit, delay: 2ms}
routing: ecmp
transport: {kind: tcp}
workload:
  - {kind: stream, from: h0, to: h2, message: 64KiB, job: cut}
  - {kind: stream, from: h1, to: h3, message: 64KiB, job: whole}
  - {kind: stream, from: h1, to: h2, message: 64KiB, job: later, start: 2s}
faults:
  - {at: 1900ms, link: "h0:p0t0-0", action: down}
measure: {warmup: 500ms, duration: 4s, drain: 3s}
"""


def test_h13_a_flow_that_is_cut_is_ended_and_fails_alone(tmp_path: Path) -> None:
    found = inventory.take(ROOT)
    (tmp_path / "cut.yaml").write_text(CUT)
    command = [sys.executable, str(ROOT / "run_experiment.py"), str(tmp_path / "cut.yaml"), "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)
    assert inventory.settled(found, ROOT) == found
    assert done.returncode in {1, 4}, done.stderr  # the flow failed; or the machine was too slow, too
    assert "flow h0 to h2 failed: h0: iperf3 did not end within" in done.stderr
    folder = (tmp_path / "cut" / "latest").resolve()
    summary: dict[str, Any] = json.loads((folder / "summary.json").read_text())
    manifest: dict[str, Any] = json.loads((folder / "manifest.json").read_text())
    assert summary["metrics"]["flows_failed"] == 1
    assert [bool(flow["failure"]) for flow in manifest["kernel_flows"]] == [True, False, False]
    for flow in manifest["kernel_flows"]:
        assert (flow["subflows_at_sender"], flow["congestion_control"]) == (1, "cubic")
        assert flow["placed_bytes"] > 0
    for flow in manifest["kernel_flows"][1:]:  # the kernel's count and iperf3's own
        assert flow["placed_bytes"] <= flow["iperf3_receiver"]["received_bytes"] + 40
    samples = analysis.load(folder).samples
    streams = samples[samples["role"] == "stream"].groupby("flow")["bytes"].sum()
    assert streams.to_dict() == {flow["flow"]: flow["placed_bytes"] for flow in manifest["kernel_flows"]}
    assert manifest["kernel_parameters"]["h0"]["net.ipv6.fib_multipath_hash_policy"] == "3"
    assert (folder / "report.html").is_file()
