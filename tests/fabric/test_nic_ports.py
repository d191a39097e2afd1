"""Short runs of the two scenarios of NIC ports: carriers that go and come, and a way back that is dead on most planes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import analysis
from tests.fabric import inventory
from tests.support import agreement
from tests.support.machine import Witness, certain, undisturbed

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [
    pytest.mark.fabric,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: namespaces, raw sockets"),
]
PLANES = 4
RTT_NS = 40_000_000
SMALL = ("--set", "topology={planes: 4, t0_groups: 2, t1_per_plane: 2, hosts_per_t0: 1}", "--set", "expect=[]")
BOTH_WAYS = "workload=[{kind: stream, from: h0, to: h1, message: 256KiB}, {kind: stream, from: h1, to: h0, message: 256KiB}]"
RAN = {0, 4}  # passed, or too slow, which is the machine's business
VALID = 0


@pytest.fixture(autouse=True)
def nothing_stays() -> Iterator[None]:
    found = inventory.take(ROOT)
    yield
    assert inventory.settled(found, ROOT) == found


def run(out: Path, scenario: str, *arguments: str) -> tuple[int, dict[str, Any], Path]:
    """(exit status, summary.json, results folder) of a run that went through."""
    command = [sys.executable, str(ROOT / "run_experiment.py"), scenario, "--out", str(out), "--no-figures", "--quiet", *SMALL]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False, timeout=200)
    with certain():
        assert done.returncode in RAN, done.stderr
    folder = (out / scenario / "latest").resolve()
    summary: dict[str, Any] = json.loads((folder / "summary.json").read_text())
    with certain():
        assert (summary["metrics"]["messages_corrupt"], summary["metrics"]["messages_incomplete"]) == (0, 0)
    return done.returncode, summary, folder


def moment(events: pd.DataFrame, **wanted: object) -> int:
    """When the one event of this description happened."""
    rows = events
    for name, value in wanted.items():
        rows = rows[rows[name] == value]
    assert len(rows) == 1, f"{wanted}: {len(rows)} times"
    return int(rows["t_ns"].iloc[0])


@pytest.mark.parametrize(
    "dead",
    [[("h0", 1)], [("h0", 0), ("h0", 3)], [("h0", 2), ("h1", 2)]],
    ids=["one port", "two ports at once", "the same plane at both ends"],
)
def test_a_plane_without_a_port_is_left_by_both_ends_and_used_again(tmp_path: Path, dead: list[tuple[str, int]]) -> None:
    faults = ", ".join(
        f"{{at: 1500ms, link: '{host}:p{plane}t0-{host[1]}', action: down, for: 1500ms}}" for host, plane in dead
    )
    times = ("--set", "measure.warmup=500ms", "--set", "measure.duration=4500ms")
    planes = {plane for _, plane in dead}

    def attempt() -> None:
        with Witness() as witness:
            status, summary, folder = run(tmp_path, "nic-port-down", "--set", f"faults=[{faults}]", "--set", BOTH_WAYS, *times)
        loaded = analysis.load(folder)
        events, packets = loaded.events, loaded.packets
        with certain():
            agreement.check(folder)
            states = events[events["kind"] == "plane_state"].groupby(["host", "plane"], observed=True)["after"].last()
            assert set(states) == {"OPEN"}
        assert summary["metrics"]["evs_retired"] == 0, "no EV is blamed"
        held_up_ns = int(2e9 * witness.worst_s)
        down, up = check_planes(events, packets, dead, held_up_ns)
        inside = packets[(packets["sent_ns"] > down + 2 * RTT_NS) & (packets["sent_ns"] < up - RTT_NS)]
        for _, mine in inside.groupby("host", observed=True):
            counts = mine["plane"].value_counts()
            assert set(counts.index) == set(range(PLANES)) - planes
            assert counts.max() - counts.min() <= 4, "the planes left carry the same"
        if status == VALID:
            assert summary["metrics"]["flow_goodput_ratio_min"] >= 0.95

    undisturbed(attempt)


def check_planes(events: pd.DataFrame, packets: pd.DataFrame, dead: list[tuple[str, int]], held_up_ns: int) -> tuple[int, int]:
    """When both ends left and used again each plane of `dead` ports. Returns the last carrier's going and coming, ns."""
    down = up = 0
    for plane in {plane for _, plane in dead}:
        owners = {host for host, one in dead if one == plane}
        ports = events[(events["kind"] == "port_state") & (events["plane"] == plane) & events["host"].isin(owners)]
        down = ports[ports["after"] == "DOWN"]["t_ns"].max()
        up = ports[ports["after"] == "UP"]["t_ns"].max()
        starts = events[(events["kind"] == "fault_start") & (events["plane"] == plane)]["t_ns"].max()
        assert down - starts <= RTT_NS // 2 + held_up_ns, "the kernel told the host"
        for host in ("h0", "h1"):
            told = down if host in owners else moment(events, kind="plane_state", host=host, plane=plane, reason="peer_down")
            assert told - down <= RTT_NS + held_up_ns
            sent = packets[(packets["host"] == host) & (packets["plane"] == plane)]["sent_ns"]
            assert not ((sent > told + RTT_NS) & (sent < up)).any(), "data on a plane that was left"
            assert sent[sent > up].min() - up <= 5 * RTT_NS + held_up_ns
    return down, up


def test_acknowledgements_come_over_the_only_way_back_that_is_left(tmp_path: Path) -> None:
    stream = "workload=[{kind: stream, from: h0, to: h1, message: 256KiB}]"
    faults = ", ".join(
        f"{{at: {at}, link: 'h1:p{plane}t0-1', action: blackhole, direction: forward}}"
        for plane, at in ((0, "1s"), (2, "1s"), (3, "1500ms"))
    )
    times = ("--set", "measure.warmup=500ms", "--set", "measure.duration=4s")

    def attempt() -> None:
        status, summary, folder = run(tmp_path, "way-back-dead", "--set", f"faults=[{faults}]", "--set", stream, *times)
        metrics = summary["metrics"]
        assert metrics["evs_retired"] == 0
        ports = analysis.load(folder).ports
        mine = ports[(ports["node"] == "h1") & (ports["direction"] == "up")]
        settled = mine[mine["t_ns"] > mine["t_ns"].min() + 2_500_000_000]
        control = settled.groupby("plane")["control_packets"].sum()
        lost = settled.groupby("plane")["dropped_fault"].sum()
        with certain():
            assert control[1] > 0
            assert lost[1] == 0
        intervals = (settled["t_ns"].max() - settled["t_ns"].min()) / RTT_NS
        assert lost.sum() <= 1.2 * intervals + 5, "nothing but a probe each round trip goes where nothing returns"
        if status == VALID:
            assert metrics["goodput_ratio"] >= 0.95

    undisturbed(attempt)
