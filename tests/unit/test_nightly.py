"""The nightly without a run: its units, its lock, its log rotation, and that retention deletes only what is ours and old."""

from __future__ import annotations

import fcntl
import json
import shlex
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from testbed.run import nightly, retention
from testbed.venv import ROOT
from tests.support.suite_folders import Made, write

NOW = datetime(2026, 3, 1, tzinfo=UTC).timestamp()


def exec_start(service: Path) -> list[str]:
    (line,) = [line for line in service.read_text().splitlines() if line.startswith("ExecStart=")]
    return shlex.split(line.removeprefix("ExecStart=").replace("%%", "%").replace("$$", "$"))


def test_the_units_name_the_command_and_systemd_takes_them(tmp_path: Path) -> None:
    service, timer = nightly.write_units(tmp_path, "quick", Path("/some where/50%"), "Mon..Fri 03:30")
    assert exec_start(service)[1:] == ["-m", "testbed", "nightly", "--suite=quick", "--out=/some where/50%"]
    assert f"WorkingDirectory={ROOT}" in service.read_text()
    assert "OnCalendar=Mon..Fri 03:30" in timer.read_text()
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze on this machine")
    done = subprocess.run(["systemd-analyze", "verify", service, timer], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_make_installs_and_takes_away_the_units(tmp_path: Path) -> None:
    def make(target: str) -> None:
        argv = ["make", "-s", "-o", "setup", target, f"DESTDIR={tmp_path}", "SUITE=quick"]
        subprocess.run(argv, cwd=ROOT, check=True, capture_output=True, timeout=60)

    units = tmp_path / "etc/systemd/system"
    make("install-nightly")
    assert sorted(file.name for file in units.iterdir()) == ["mrc-testbed-nightly.service", "mrc-testbed-nightly.timer"]
    make("uninstall-nightly")
    assert list(units.iterdir()) == []


def test_two_nightlies_do_not_overlap(tmp_path: Path) -> None:
    (tmp_path / ".nightly.lock").write_text("process 1 since yesterday\n")
    with (tmp_path / ".nightly.lock").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        argv = [sys.executable, "-m", "testbed", "nightly", "--suite=quick", f"--out={tmp_path}"]
        done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 5
    assert "another nightly is going on (process 1 since yesterday)" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == [".nightly.lock"]


def test_logs_rotate(tmp_path: Path) -> None:
    for day in range(1, 10):
        (tmp_path / f"nightly-quick-2026010{day}T020000Z.log").touch()
    (tmp_path / "nightly-slow-20250101T020000Z.log").touch()
    (tmp_path / "mine.log").touch()
    retention.prune_logs(tmp_path, "nightly-quick-*.log", 3)
    left = sorted(file.name for file in tmp_path.iterdir())
    assert left == [
        "mine.log",
        *(f"nightly-quick-2026010{day}T020000Z.log" for day in (7, 8, 9)),
        "nightly-slow-20250101T020000Z.log",
    ]


def run_folder(results: Path, name: str, size: int = 1000) -> Path:
    folder = results / "quickstart" / name
    (folder / "logs").mkdir(parents=True)
    (folder / "manifest.json").write_text(json.dumps({"schema": 1, "run_id": name}))
    (folder / "packets.parquet").write_bytes(bytes(size))
    (folder / "logs" / "h0.log").touch()
    return folder


def test_what_is_old_goes_and_what_is_newest_stays(tmp_path: Path) -> None:
    old, older = run_folder(tmp_path, "20260110T000000Z-s1"), run_folder(tmp_path, "20260101T000000Z-s1-2")
    young, newest = run_folder(tmp_path, "20260227T000000Z-s1"), run_folder(tmp_path, "20250101T000000Z-s2")
    (tmp_path / "quickstart" / "latest").symlink_to(newest.name)
    gone = retention.prune([tmp_path / "quickstart"], 30, None, now=NOW, dry=True)
    assert [one.path for one in gone] == [older, old]
    assert old.exists()
    retention.prune([tmp_path / "quickstart"], 30, None, now=NOW)
    assert sorted(path for path in (tmp_path / "quickstart").iterdir()) == sorted([young, newest, newest.parent / "latest"])


def test_the_oldest_go_until_the_rest_fits(tmp_path: Path) -> None:
    folders = [run_folder(tmp_path, f"2026020{day}T000000Z-s1", 10_000) for day in (1, 2, 3, 4)]
    retention.prune([tmp_path / "quickstart"], None, 25_000, now=NOW)
    assert [folder.exists() for folder in folders] == [False, False, True, True]


def test_nothing_that_was_not_written_by_a_run_is_deleted(tmp_path: Path) -> None:
    mine = run_folder(tmp_path, "20260101T000000Z-s1")
    (mine / "notes.txt").write_text("mine")
    (mine / "figures").mkdir()
    (mine / "figures" / "own.pdf").touch()
    elsewhere = tmp_path / "precious.parquet"
    elsewhere.touch()
    (mine / "events.parquet").symlink_to(elsewhere)
    alike = tmp_path / "quickstart" / "20260101T000000Z-s9"  # named like a run, and none
    alike.mkdir()
    (alike / "packets.parquet").touch()
    copied = run_folder(tmp_path, "20260102T000000Z-s1")
    copied.rename(copied.with_name("20260103T000000Z-s1"))  # its own record says another name
    linked = tmp_path / "elsewhere"
    run_folder(linked, "20260101T000000Z-s1")
    (tmp_path / "quickstart" / "20260104T000000Z-s1").symlink_to(linked / "quickstart" / "20260101T000000Z-s1")
    retention.prune([tmp_path / "quickstart"], 1, 0, now=NOW)
    assert sorted(path.relative_to(mine).as_posix() for path in mine.rglob("*")) == [
        "events.parquet",
        "figures",
        "figures/own.pdf",
        "notes.txt",
    ]
    assert elsewhere.exists()
    assert (alike / "packets.parquet").exists()
    assert (copied.with_name("20260103T000000Z-s1") / "packets.parquet").exists()
    assert (linked / "quickstart" / "20260101T000000Z-s1" / "packets.parquet").exists()


def test_of_a_suite_the_summaries_stay(tmp_path: Path) -> None:
    folder = write(tmp_path / "made" / "20260101T020000Z", [Made("a", 1), Made("a", 2)])
    for run in folder.glob("runs/*/*/*"):
        (run / "manifest.json").write_text(json.dumps({"schema": 1, "run_id": run.name}))
        (run.parent / "latest").unlink(missing_ok=True)
        (run.parent / "latest").symlink_to(run.name)
    (folder / "summary.json").write_text("{}")
    retention.prune([tmp_path / "made"], 30, None, now=NOW)
    assert sorted(path.name for path in folder.iterdir()) == ["runs.jsonl", "suite.json", "summary.json"]
    assert retention.prune([tmp_path / "made"], 30, None, now=NOW) == []


def test_a_command_without_a_limit_deletes_nothing(tmp_path: Path) -> None:
    run_folder(tmp_path, "20250101T000000Z-s1")

    def prune(*more: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "testbed", "prune", str(tmp_path), *more]
        return subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)

    assert "how much may stay?" in prune().stderr
    assert prune("--days", "30", "--dry-run").stdout.startswith("would delete ")
    assert (tmp_path / "quickstart" / "20250101T000000Z-s1").exists()
    assert prune("--days", "30").stdout.startswith("deleted ")
    assert not (tmp_path / "quickstart").joinpath("20250101T000000Z-s1").exists()
