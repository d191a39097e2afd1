"""Suites as they really run: one child per run, whose death ends no suite; interruptions; the nightly; Dask workers."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from analysis import history
from testbed.run import nightly
from testbed.venv import ROOT
from tests.unit.test_nightly import exec_start

pytestmark = [pytest.mark.fabric, pytest.mark.skipif(os.geteuid() != 0, reason="needs root")]

RAN = {0, 1, 4}  # passed, an expectation failed, too slow: which one is the machine's business
TINY = """\
name: tiny
topology: {planes: 1, t0_groups: 2, t1_per_plane: 2, hosts_per_t0: 1}
links: {rate: 5mbit, delay: 20ms}
workload:
  - {kind: permutation, message: 64KiB}
measure: {warmup: 200ms, duration: 1500ms}
"""
SUITE = """\
name: three
retries: 0
suite:
  - {scenario: tiny, as: killed}
  - {scenario: tiny, as: interrupted}
  - {scenario: tiny, as: last}
"""


def command(folder: Path, *more: str) -> subprocess.Popen[str]:
    argv = [sys.executable, str(ROOT / "run_experiment.py"), f"--suite={folder / 'three.yaml'}"]
    argv += ["--out", str(folder / "out"), "--no-figures", *more]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for(what: Callable[[], Any], limit_s: float = 60.0) -> Any:
    end = time.monotonic() + limit_s
    while not (found := what()):
        assert time.monotonic() < end, "nothing came"
        time.sleep(0.05)
    return found


def runner_of(folder: Path, member: str) -> int | None:
    """The process of the run that the suite has started for `member`."""
    for entry in Path("/proc").iterdir():
        try:
            argv = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdecimal() else []
        except OSError:
            continue
        if any(argument.startswith(f"{folder}/out".encode()) and f"-{member}/".encode() in argument for argument in argv):
            return int(entry.name)
    return None


def building(folder: Path, member: str) -> bool:
    return any("building" in log.read_text() for log in folder.glob(f"out/three/*/logs/{member}-*.log"))


def holds(folder: Path, name: str) -> bool:
    """Whether a file of that name is somewhere below; what vanishes under our eyes is no trouble to os.walk."""
    return any(name in files for _, _, files in os.walk(folder))


def test_a_run_that_is_killed_ends_no_suite_and_an_interrupted_suite_goes_on(tmp_path: Path) -> None:
    (tmp_path / "tiny.yaml").write_text(TINY)
    (tmp_path / "three.yaml").write_text(SUITE)
    first = command(tmp_path)
    wait_for(lambda: building(tmp_path, "killed"))
    os.kill(wait_for(lambda: runner_of(tmp_path, "killed")), signal.SIGKILL)
    wait_for(lambda: building(tmp_path, "interrupted"))
    first.send_signal(signal.SIGTERM)
    _, said = first.communicate(timeout=200)
    assert first.returncode == 130, said
    assert "killed s1: error" in said
    again = command(tmp_path, "--resume", "--json")
    printed, said = again.communicate(timeout=200)
    assert "1 of 3 runs are there already" in said
    assert again.returncode == 5, said  # the one that was killed: a broken run is a result, and is not made again
    latest = tmp_path / "out" / "three" / "latest"
    journal = [json.loads(line) for line in (latest / "runs.jsonl").read_text().splitlines()]
    assert [(one["member"], one["status"] == 130) for one in journal] == [
        ("killed", False),
        ("interrupted", True),
        ("interrupted", False),
        ("last", False),
    ]
    words = {one["name"]: one["status"] for one in json.loads((latest / "summary.json").read_text())["members"]}
    assert words["killed"] == "error"
    assert {words["interrupted"], words["last"]} <= {"passed", "failed", "invalid"}  # what the machine made of them
    assert [one["scenario"] for one in json.loads(printed)] == ["tiny", "tiny"]


def test_the_timer_units_command_line_runs_a_suite_and_leaves_what_the_readme_says(tmp_path: Path) -> None:
    (tmp_path / "tiny.yaml").write_text(TINY)
    (tmp_path / "night.yaml").write_text("name: night\nretries: 0\nsuite: [tiny]\n")
    service, _ = nightly.write_units(tmp_path / "units", str(tmp_path / "night.yaml"), tmp_path / "out", "daily")
    done = subprocess.run(exec_start(service), cwd=ROOT, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode in RAN, done.stderr
    out = tmp_path / "out"
    assert {file.name for file in (out / "night" / "latest").iterdir()} >= {
        "suite.parquet",
        "summary.md",
        "junit.xml",
        "regression.md",
    }
    rows = history.read(out / "history" / "night.parquet")
    assert set(rows["member"]) == {"tiny"}
    assert "goodput_mbps" in set(rows["metric"]) or done.returncode == 4
    assert "<svg" in (out / "history" / "night.html").read_text() or done.returncode == 4
    (log,) = (out / "logs").glob("nightly-night-*.log")
    assert "[1/1] tiny s1 starts" in log.read_text()
    assert done.stdout.endswith(f"; {log}\n")


@contextmanager
def cluster(folder: Path) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """A scheduler and two workers of this project on this machine."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    address = f"tcp://127.0.0.1:{port}"
    python = [sys.executable, "-m"]
    scheduler = [*python, "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", str(port), "--no-dashboard"]
    worker = [*python, "distributed.cli.dask_worker", address, "--nthreads", "1", "--no-nanny", "--no-dashboard"]
    started = []
    try:
        for number, argv in enumerate([scheduler, *([*worker, "--resources", "emulation=1"] for _ in range(2))]):
            own = ["--local-directory", str(folder / str(number))] if number else []
            with (folder / f"dask-{number}.log").open("wb") as log:
                started.append(subprocess.Popen([*argv, *own], cwd=ROOT, stdout=log, stderr=log))
        yield address, started[1:]
    finally:
        for process in started:
            process.kill()
            process.wait()


@pytest.mark.skipif(find_spec("distributed") is None, reason="distributed is not installed (requirements-dask.txt)")
def test_a_sweep_on_two_dask_workers_outlives_one_of_them(tmp_path: Path) -> None:
    """Each run once, in one table, with its whole folder here, though a worker dies with a run in its hands."""
    (tmp_path / "tiny.yaml").write_text(TINY)
    (tmp_path / "three.yaml").write_text("name: three\nretries: 0\nsuite: [tiny]\n")
    with cluster(tmp_path) as (address, workers):
        wait_for(lambda: all("Registered to" in (tmp_path / f"dask-{number}.log").read_text() for number in (1, 2)))
        run = command(tmp_path, "--engine", "dask", "--scheduler", address, "--repeat", "3", "--json")
        wait_for(lambda: holds(tmp_path / "1", "scenario.yaml"))  # the first worker has begun a run
        workers[0].kill()
        printed, said = run.communicate(timeout=200)
    assert run.returncode in RAN, said
    assert [one["seed"] for one in json.loads(printed)] == [1, 2, 3]
    latest = tmp_path / "out" / "three" / "latest"
    table = pd.read_csv(latest / "suite.csv")
    assert table["try"].tolist() == [1, 1, 1]
    assert {(latest / path / "packets.parquet").is_file() for path in table["path"]} == {True}
    assert not list((tmp_path / "2").rglob("mrc-testbed-*"))  # a worker keeps nothing
