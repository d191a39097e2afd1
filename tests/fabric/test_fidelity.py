"""Overload on purpose (pitfall H-06): the machine decides the result, and the run says so, with the right reason.

Whether an undisturbed run is valid is the machine's business and not tested here; that a disturbed one is not valid is.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fabric import inventory
from tests.fabric.test_run import ROOT, SHORT, Run, summary_of

pytestmark = [
    pytest.mark.fabric,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: namespaces, raw sockets"),
]
OVERLOAD = """
name: overload
description: 32 hosts at 500 Mbit/s each; no small machine carries that.
topology: {planes: 2, t0_groups: 4, t1_per_plane: 4, hosts_per_t0: 8}
links: {rate: 250mbit, delay: 2ms, mtu: 4500}
workload: [{kind: permutation, hosts: all, message: 256KiB, depth: 2}]
measure: {warmup: 500ms, duration: 2s, interval: 100ms}
seed: 1
"""
FASTEST = 60  # cores of a machine that might carry it
STOPPED_S = 0.5  # below the runner's watchdog
QUIET = ("--no-figures", "--quiet")


@pytest.fixture(autouse=True)
def nothing_stays() -> Iterator[None]:
    found = inventory.take(ROOT)
    yield
    assert inventory.settled(found, ROOT) == found


def reasons(summary: dict[str, Any]) -> str:
    """Why the run is not valid; fails when it is."""
    assert summary["fidelity"]["verdict"] in {"degraded", "invalid"}, summary["metrics"]
    return "\n".join(summary["fidelity"]["reasons"])


@pytest.mark.skipif((os.cpu_count() or 1) >= FASTEST, reason="this machine might carry 32 hosts at 500 Mbit/s")
def test_hosts_far_beyond_the_cores_are_an_invalid_run(tmp_path: Path) -> None:
    scenario = tmp_path / "overload.yaml"
    scenario.write_text(OVERLOAD)
    planned = subprocess.run(
        [sys.executable, "-m", "testbed", "plan", str(scenario)], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert "the machine may decide the result" in planned.stdout + planned.stderr
    command = [sys.executable, str(ROOT / "run_experiment.py"), str(scenario), "--out", str(tmp_path), *QUIET, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 4, done.stderr
    summary = json.loads(done.stdout)
    said = reasons(summary)
    assert summary["status"] == "invalid"
    assert "cores busy" in said, "the evidence: the share of the processor"
    assert "host loop lag" in said, "and how late timers were"
    report = (tmp_path / "overload" / "latest" / "report.html").read_text()
    assert "The machine, not the fabric, decided this result." in report
    assert "cores busy" in report


def test_a_burst_of_other_work_in_mid_run_is_seen(tmp_path: Path) -> None:
    run = Run(tmp_path, *SHORT, *QUIET)
    run.wait_for_traffic(1.5)
    loop = [sys.executable, "-c", "while True: pass"]
    hogs = [subprocess.Popen(loop) for _ in range(2 * (os.cpu_count() or 1))]
    try:
        run.end()
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()
    said = reasons(summary_of(run))
    assert "cores" in said or "lag" in said


def test_a_host_that_stood_still_for_half_a_second_is_seen(tmp_path: Path) -> None:
    run = Run(tmp_path, *SHORT, *QUIET)
    run.wait_for_traffic(2.5)
    stopped = run.hosts()[0]
    os.kill(stopped, signal.SIGSTOP)
    time.sleep(STOPPED_S)
    os.kill(stopped, signal.SIGCONT)
    status, _, stderr = run.end()
    assert status == 4, stderr
    summary = summary_of(run)
    assert "longest single standstill of a host loop" in reasons(summary)
    assert (summary["metrics"]["messages_corrupt"], summary["metrics"]["messages_incomplete"]) == (0, 0)
