"""Runs that are killed at seeded random moments, from the making of namespaces to the writing of the report; nothing stays.

Not part of `make test`: `make test-chaos` kills 200 times (CHAOS_KILLS changes that) and then runs the quickstart once, whole.
"""

from __future__ import annotations

import json
import math
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import analysis
from tests.fabric import inventory

ROOT = Path(__file__).resolve().parents[2]
KILLS = int(os.environ.get("CHAOS_KILLS", "0"))
pytestmark = [
    pytest.mark.fabric,
    pytest.mark.timeout(0),
    pytest.mark.skipif(not KILLS, reason="only by `make test-chaos`"),
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: namespaces, raw sockets"),
]
SMALL = (
    *("--set", "topology={planes: 2, t0_groups: 2, t1_per_plane: 2, hosts_per_t0: 1}"),
    *("--set", "measure={warmup: 500ms, duration: 2s, drain: 1s}", "--set", "expect=[]"),
    *("--set", "faults=[{at: 1s, link: 'p0t0-0:p0t1-1', action: down, for: 500ms}]"),
)
STOPS_S = 2.0  # without its runner a run writes nothing for longer; left to itself it would go on for up to six seconds
MISSES = 5  # runs for one kill: a moment may find none of the wanted kind, or the run ended
VICTIMS = ("runner", "host", "helper")  # a helper: any process below the runner that is no host


def start(out: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(ROOT / "run_experiment.py"), "quickstart", "--out", str(out), "--quiet", *arguments]
    scratch = out.with_name("scratch")  # where temporary files would go
    scratch.mkdir(exist_ok=True)
    environment = os.environ | {"TMPDIR": str(scratch)}
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment)


def below(pid: int) -> list[int]:
    found, waiting = list[int](), [pid]
    while waiting:
        try:
            listed = [file.read_text() for file in Path(f"/proc/{waiting.pop()}/task").glob("*/children")]
        except OSError:  # it has ended meanwhile
            continue
        children = [int(child) for text in listed for child in text.split()]
        found += children
        waiting += children
    return found


def is_host(pid: int) -> bool:
    try:
        return b"testbed.host" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False


def kill_one(run: subprocess.Popen[str], victim: str, rng: random.Random) -> bool:
    """SIGKILL to the runner, or to one of the processes that it has at the moment; whether there was one."""
    if victim == "runner":
        run.kill()
        return True
    pids = [pid for pid in below(run.pid) if is_host(pid) == (victim == "host")]
    if not pids:
        return False
    pid = rng.choice(sorted(pids))
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def test_whatever_is_killed_nothing_stays(tmp_path: Path) -> None:
    rng = random.Random(int(os.environ.get("CHAOS_SEED", "1")))
    before, sysctls = inventory.take(ROOT), inventory.sysctls()
    began = time.monotonic()
    whole = start(tmp_path / "whole", *SMALL)
    stderr = whole.communicate(timeout=300)[1]
    assert whole.returncode in {0, 1, 4}, stderr
    lasts_s = time.monotonic() - began
    hit = dict.fromkeys(VICTIMS, 0)
    number = 0
    while sum(hit.values()) < KILLS:
        assert number < MISSES * KILLS, f"of {number} runs only {hit} were hit"
        moment, victim = rng.uniform(0.05, lasts_s), min(VICTIMS, key=lambda name: hit[name])
        began = time.monotonic()
        run = start(tmp_path / str(number), *SMALL)
        limit = math.inf
        try:
            run.wait(moment)
            lasts_s = 1.1 * (time.monotonic() - began)  # it ended by itself: about so long does one take by now
        except subprocess.TimeoutExpired:
            killed = time.time()
            if kill_one(run, victim, rng):
                hit[victim] += 1
                limit = killed + STOPS_S if victim == "runner" else limit
        stderr = run.communicate(timeout=120)[1]
        about = f"run {number}: {victim} after {moment:.2f} s, status {run.returncode}\n{stderr}"
        assert run.returncode in {0, 1, 4, 5, -signal.SIGKILL}, about
        assert "Traceback" not in stderr, about
        assert inventory.settled(before, ROOT) == before, about
        assert inventory.sysctls() == sysctls, about
        assert list((tmp_path / "scratch").iterdir()) == [], about
        check_results(tmp_path / str(number) / "quickstart", about)
        assert newest(tmp_path / str(number)) < limit, f"went on without its runner: {about}"
        number += 1
    print(f"{KILLS} kills in {number} runs, the last whole one of {lasts_s:.1f} s: {hit}")
    began = time.monotonic()
    last = start(tmp_path / "last")
    stderr = last.communicate(timeout=300)[1]
    assert last.returncode in {0, 1, 4}, stderr
    print(f"quickstart afterwards: status {last.returncode}, {time.monotonic() - began:.0f} s")
    assert inventory.settled(before, ROOT) == before


def newest(results: Path) -> float:
    """When something was written there last, seconds since the epoch."""
    return max((path.lstat().st_mtime for path in results.rglob("*")), default=0.0)


def check_results(results: Path, about: str) -> None:
    """Whatever is there of a run can be read: JSON as JSON, tables as tables, or raw records that `collect` takes."""
    for file in results.glob("*/*.json"):
        json.loads(file.read_text())
    for folder in {table.parent for table in results.glob("*/*.parquet")}:
        if (folder / "summary.json").exists():
            analysis.load(folder)
    for outcome in results.glob("*/raw/run/outcome.json"):
        json.loads(outcome.read_text())
    manifests = list(results.glob("*/manifest.json"))
    assert all(json.loads(file.read_text())["status"] for file in manifests), about
