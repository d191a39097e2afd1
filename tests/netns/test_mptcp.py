"""H-14: MPTCP has as many subflows as there are planes, one in each, at both ends; over routing that hashes and over SRv6."""

from __future__ import annotations

import os
import selectors
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from testbed.fabric.network import Fabric
from testbed.model import load, tcp
from testbed.model.flows import flows
from testbed.model.topology import build
from testbed.run import iperf
from testbed.run.hosts import Hosts

pytestmark = [pytest.mark.netns, pytest.mark.skipif(shutil.which("mptcpize") is None, reason="needs mptcpize")]
Sandbox = Callable[[Callable[[], None]], None]
ROOT = Path(__file__).resolve().parents[2]
SCENARIO = """
name: subflows
topology: {planes: 2, t0_groups: 2, t1_per_plane: 2, hosts_per_t0: 1}
links: {rate: 20mbit, delay: 1ms}
transport: {kind: mptcp}
workload:
  - {kind: permutation, message: 64KiB}
measure: {warmup: 15s, duration: 20s}
"""
LONGEST_S = 20.0  # well before the first packet is late


@pytest.mark.parametrize(("planes", "routing"), [(4, "srv6"), (2, "ecmp"), (9, "ecmp")])
def test_h14_one_subflow_per_plane_at_both_ends(sandbox: Sandbox, tmp_path: Path, planes: int, routing: str) -> None:
    """Both hosts send and receive: each opens its own flow's subflows, and none is refused by the other's limits."""

    def body() -> None:
        os.chdir(ROOT)
        scenario = load.load_text(SCENARIO, "subflows.yaml", [f"topology.planes={planes}", f"routing={routing}"])
        topology = build(scenario.topology)
        found = tcp.connections(scenario, topology, flows(scenario, topology))
        evs: dict[int, list[int]] = {one.flow.id: [] for one in found}
        stack = tcp.stack(scenario, topology)
        net = Fabric(topology, scenario.links, scenario.switch, Path("/run"), scenario.routing, tmp_path, stack)
        net.up()
        try:
            hosts = Hosts(selectors.DefaultSelector())
            hosts.start(net, iperf.plans(scenario, topology, found, evs, tmp_path), tmp_path, iperf.command(scenario))
            hosts.wait("ready", 30, unless=lambda: False)
            hosts.begin(time.monotonic_ns())
            reports: list[dict[str, Any]] = []
            deadline = time.monotonic() + LONGEST_S
            while time.monotonic() < deadline and not all(host.progress.get("placed_bytes", 0) > 10**6 for host in hosts):
                hosts.serve(0.1)
                hosts.check()
            hosts.quit(10)
            reports = iperf.outcome(scenario, found, evs, {host.name: host.messages["bye"] for host in hosts})
        finally:
            net.down()
        for report in reports:
            assert (report["subflows_at_sender"], report["subflows_at_receiver"]) == (planes, planes), report["failure"]
            assert "planes" not in report["failure"]
            assert "fell back" not in report["failure"]
            assert report["congestion_control"] == "cubic"

    sandbox(body)
