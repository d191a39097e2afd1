"""Short runs of jobs in a small fabric: collectives, training through a flap, two jobs side by side, random arrivals, and rc.

Ratios and invariants only; a run that the machine disturbed still has to be right, but not to be fast.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import analysis
from analysis.figures import steps as figure
from analysis.figures.style import Target
from analysis.results import Run
from analysis.steps import steps_of
from analysis.view import view
from tests.support import agreement, figure_data
from tests.support.machine import certain, undisturbed

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [
    pytest.mark.fabric,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: namespaces, raw sockets"),
]
SCENARIO = """\
name: jobs
topology: {planes: 2, t0_groups: 2, t1_per_plane: 4, hosts_per_t0: 2}
links: {rate: 10mbit, delay: 10ms, mtu: 4500}
workload: []
measure: {warmup: 1s, duration: 5s, interval: 100ms}
seed: 2
"""
RTT_MS = 20
RAN = {0, 1, 4}  # passed, an expectation failed, too slow: which one is the machine's business


def run(tmp_path: Path, *workload: str, settings: tuple[str, ...] = ()) -> tuple[dict[str, Any], Run]:
    """(summary.json, run) of a scenario with these jobs, whatever the machine made of it."""
    file = tmp_path / "jobs.yaml"
    file.write_text(SCENARIO.replace("[]", "".join(f"\n  - {{{job}}}" for job in workload)))
    overrides = [part for setting in settings for part in ("--set", setting)]
    command = [sys.executable, str(ROOT / "run_experiment.py"), str(file), "--out", str(tmp_path), "--no-figures", "--quiet"]
    done = subprocess.run([*command, *overrides], capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode in RAN, done.stderr
    folder = (tmp_path / "jobs" / "latest").resolve()
    summary: dict[str, Any] = json.loads((folder / "summary.json").read_text())
    assert (summary["metrics"]["messages_corrupt"], summary["metrics"]["messages_incomplete"]) == (0, 0)
    return summary, analysis.load(folder)


def skip_unless_valid(summary: dict[str, Any]) -> None:
    """What comes behind is only asked where the figures are the fabric's and not the machine's; a skip says that it was not."""
    if summary["fidelity"]["verdict"] != "valid":
        pytest.skip("right, but too disturbed to be measured: " + "; ".join(summary["fidelity"]["reasons"]))


def test_a_ring_is_right_bit_for_bit_and_reaches_its_bus_bandwidth(tmp_path: Path) -> None:
    def attempt() -> None:
        summary, loaded = run(tmp_path, "kind: ring_allreduce, hosts: [h0, h2, h1, h3], message: 1MiB")
        with certain():
            assert set(loaded.steps["verdict"]) == {"ok"}
            assert loaded.steps.groupby("step")["host"].nunique().iloc[:-1].eq(4).all()
            carried = loaded.messages[loaded.messages["verdict"] == "ok"]
            assert set(carried["phase"].dropna()) == set(range(6))
        skip_unless_valid(summary)
        assert summary["metrics"]["busbw_ratio"] >= 0.95
        assert summary["metrics"]["step_jitter"] <= 0.2

    undisturbed(attempt)


def test_all_to_all_is_right_bit_for_bit_and_reaches_its_bus_bandwidth(tmp_path: Path) -> None:
    def attempt() -> None:
        summary, loaded = run(tmp_path, "kind: all_to_all, message: 256KiB")
        with certain():
            assert set(loaded.steps["verdict"]) == {"ok"}
            assert len(set(zip(loaded.messages["host"], loaded.messages["peer"], strict=True))) == 12
        skip_unless_valid(summary)
        assert summary["metrics"]["busbw_ratio"] >= 0.95

    undisturbed(attempt)


def test_no_step_of_a_training_waits_for_a_flap_for_long(tmp_path: Path) -> None:
    flap = "faults=[{at: 2s, link: 'p0t0-0:p0t1-1', action: down, for: 500ms}]"
    training = "kind: training, hosts: [h0, h2, h1, h3], message: 512KiB, compute: 100ms"

    def attempt() -> None:
        summary, loaded = run(tmp_path, training, settings=(flap,))
        steps = steps_of(loaded, 0)
        with certain():
            assert steps is not None
            assert set(loaded.steps["verdict"]) == {"ok"}
            assert (loaded.steps["ready_ns"] - loaded.steps["start_ns"]).min() >= 100_000_000
            agreement.check(loaded.path)
            folder = loaded.path / "figures"
            folder.mkdir(exist_ok=True)
            figure.draw(view(loaded), Target(folder, ""))
            assert figure_data.check(loaded.path) == {"steps"}
        took = steps.took_ns[1:] / 1e6
        skip_unless_valid(summary)
        assert took.max() <= np.median(took) + 6 * RTT_MS

    undisturbed(attempt)


def test_two_jobs_share_the_fabric_and_each_is_measured(tmp_path: Path) -> None:
    jobs = [f"kind: training, hosts: {hosts}, message: 512KiB, compute: 100ms, job: {name}" for hosts, name in HALVES]

    def attempt() -> None:
        summary, loaded = run(tmp_path, *jobs)
        both = [steps_of(loaded, index) for index in (0, 1)]
        with certain():
            assert all(steps is not None for steps in both)
            assert set(loaded.steps["job"]) == {"one", "other"}
        skip_unless_valid(summary)
        assert all(steps is not None and len(steps.step) >= 3 for steps in both)
        means = [float(np.mean(steps.took_ns[1:])) for steps in both if steps is not None]
        assert max(means) <= 1.1 * min(means), "the same job twice"

    undisturbed(attempt)


HALVES = (("[h0, h2]", "one"), ("[h1, h3]", "other"))


def test_random_arrivals_are_carried_and_timed_from_their_arrival(tmp_path: Path) -> None:
    summary, loaded = run(tmp_path, "kind: poisson, load: 0.4, sizes: [4KiB, 32KiB, 256KiB]")
    messages = loaded.messages
    assert set(messages["bytes"]) == {4096, 32768, 262144}
    gaps = np.diff(np.sort(messages[messages["flow"] == 0]["post_ns"].to_numpy(dtype="int64")))
    assert gaps.std() > 0.3 * gaps.mean(), "at random, not paced"
    skip_unless_valid(summary)
    assert 0.3 < summary["metrics"]["goodput_ratio"] < 2, "in the mean what is offered"


def test_rc_keeps_each_connection_on_one_path(tmp_path: Path) -> None:
    settings = ("transport.kind=rc", "transport.policy=oblivious", "measure.drain=20s")
    summary, loaded = run(tmp_path, "kind: permutation, message: 128KiB", settings=settings)
    paths = loaded.packets.groupby("flow")["ev"].nunique()
    assert len(paths) == 4
    assert set(paths) == {1}
    metrics = summary["metrics"]
    assert metrics["ideal_transport_mbps"] <= 0.5 * metrics["ideal_mbps"] * 1.001, "one plane of two"
    assert "policy is unused" in loaded.scenario.warnings[0]
    skip_unless_valid(summary)  # what a host that stood still takes from its socket at once came over more than the window
    assert metrics["goodput_mbps"] <= 1.05 * metrics["ideal_transport_mbps"]


def test_rc_goes_back_and_loses_nothing_on_lossy_paths_one_for_each_qp(tmp_path: Path) -> None:
    faults = "faults=[{at: 1500ms, link: {tier: nic-t0}, action: loss, ratio: 0.02, for: 2s}]"
    settings = ("transport.kind=rc", "transport.qps=4", "measure.drain=20s", faults)
    summary, loaded = run(tmp_path, "kind: stream, from: h0, to: h2, message: 64KiB", settings=settings)
    paths = loaded.packets.groupby("qp")["ev"].nunique()
    assert list(paths) == [1] * 4
    assert set(loaded.messages["message"] % 4) == set(range(4))
    assert sorted(loaded.messages["message"])[:8] == list(range(8))
    assert summary["metrics"]["retransmit_ratio"] > 0
    fates = loaded.packets["fate"].value_counts()
    assert fates["lost"] > 0
    assert fates["refused"] > 0, "what came behind a hole"
    assert not loaded.packets[loaded.packets["fate"] == "refused"]["placed_ns"].notna().any()
    agreement.check(loaded.path)
