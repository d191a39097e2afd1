"""Whole runs under every kind of fault: each event confirmed by the kernel, all undone, no message hurt; and a killed host."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import analysis
from testbed.model import load
from testbed.model.faults import resolve
from testbed.model.scenario import FaultAction
from testbed.model.topology import build
from tests.fabric import inventory

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [
    pytest.mark.fabric,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: namespaces, raw sockets"),
]
SMALL = ("--set", "topology={planes: 2, t0_groups: 2, t1_per_plane: 2, hosts_per_t0: 2}", "--set", "expect=[]")


@pytest.fixture(autouse=True)
def nothing_stays() -> Iterator[None]:
    found = inventory.take(ROOT)
    yield
    assert inventory.settled(found, ROOT) == found


def run(out: Path, scenario: str, *arguments: str, ran: tuple[int, ...] = (0, 4)) -> tuple[dict[str, Any], Path, str]:
    """(summary.json, results folder, standard error) of a run that went through; 4: the machine was too slow."""
    command = [sys.executable, str(ROOT / "run_experiment.py"), scenario, "--out", str(out), "--no-figures", "--quiet"]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode in ran, done.stderr
    folder = (out / scenario / "latest").resolve()
    return json.loads((folder / "summary.json").read_text()), folder, done.stderr


def test_every_kind_of_fault_overlapping_is_confirmed_undone_and_survived(tmp_path: Path) -> None:
    """The run itself compares the fabric with its plan after the last fault has ended, and breaks when they differ."""
    summary, folder, _ = run(tmp_path, "every-fault")
    scenario = load.load(folder / "scenario.yaml")
    planned = resolve(scenario, build(scenario.topology))
    assert {event.spec.action for event in planned} == set(FaultAction) - {FaultAction.KILL}
    events = analysis.load(folder).events
    for kind in ("fault_start", "fault_end"):
        mine = events[events["kind"] == kind]
        whole = {event.index: 1 if event.spec.switch or event.spec.host else len(event.links) for event in planned}
        assert mine.groupby("fault").size().to_dict() == whole
        assert (mine["t_ns"] >= mine["planned_ns"]).all()
    assert len(summary["faults"]) == len(planned)
    assert (summary["metrics"]["messages_corrupt"], summary["metrics"]["messages_incomplete"]) == (0, 0)
    assert summary["metrics"]["bytes_lost"] == 0


def test_a_host_that_is_killed_on_purpose_abandons_its_messages_and_breaks_nothing(tmp_path: Path) -> None:
    """What it had posted is known although it took its memory with it, and so are its counters."""
    settings = ("--set", "measure={warmup: 500ms, duration: 3s, drain: 2s}", "--set", "workload.0.message=64KiB")
    fault = ("--set", "faults=[{at: 2s, host: h1, action: kill}]")
    summary, folder, stderr = run(tmp_path, "reboot", *SMALL, *settings, *fault)
    assert summary["metrics"]["messages_abandoned"] > 0
    assert (summary["metrics"]["messages_corrupt"], summary["metrics"]["messages_incomplete"]) == (0, 0)
    assert "Traceback" not in stderr
    (cost,) = summary["faults"]
    assert cost["what"] == "kill h1"
    messages = analysis.load(folder).messages
    others = messages[(messages["host"] != "h1") & (messages["peer"] != "h1")]
    assert set(others["verdict"]) == {"ok"}
    left = messages[messages["verdict"] == "incomplete"]
    assert len(left) == summary["metrics"]["messages_abandoned"]
    assert 1 <= (left["host"] == "h1").sum() <= 2, "as deep as the workload is"
    counters = json.loads((folder / "manifest.json").read_text())["counters"]
    assert counters["h1"]["packets_sent"] > 0
    assert counters["h1"].keys() == counters["h0"].keys()
