"""Whole runs of the quickstart, shortened. Invariants and exit statuses only: how fast this machine is does not matter."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import analysis
from analysis.results import Run as Loaded
from analysis.tables import TABLES
from testbed.fabric.bgp import DAEMONS
from testbed.run.interrupts import SAME_PRESS_S
from tests.fabric import inventory
from tests.support import agreement, figure_data
from tests.support.format_page import keys
from tests.support.machine import Witness

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [
    pytest.mark.fabric,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: namespaces, raw sockets"),
]
SHORT = (
    *("--set", "measure.duration=5s", "--set", "measure.warmup=1s"),
    *("--set", "faults=[{at: 2s, link: 'p0t0-0:p0t1-2', action: down, for: 1s}]"),
)
BRIEF = ("--set", "measure={warmup: 500ms, duration: 2s}", "--set", "faults=[]", "--set", "workload.0.message=64KiB")
RAN = {0, 1, 4}  # passed, an expectation failed, too slow: which one is the machine's business


class Run:
    """One run_experiment.py under way."""

    def __init__(self, out: Path, *arguments: str) -> None:
        self.out = out
        command = [sys.executable, str(ROOT / "run_experiment.py"), "quickstart", "--out", str(out), *arguments]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    @property
    def folder(self) -> Path:
        return (self.out / "quickstart" / "latest").resolve()

    def wait_for_traffic(self, seconds: float) -> None:
        """Until t = 0 is `seconds` ago."""
        outcome = self.folder / "raw" / "run" / "outcome.json"
        deadline = time.monotonic() + 60
        while not outcome.exists():
            assert self.process.poll() is None, self.process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.05)
            outcome = self.folder / "raw" / "run" / "outcome.json"
        t0_ns = json.loads(outcome.read_text())["t0_ns"]
        time.sleep(max(0.0, t0_ns / 1e9 + seconds - time.monotonic()))

    def children(self) -> list[int]:
        """Every process below the runner."""
        found, waiting = list[int](), [self.process.pid]
        while waiting:
            listed = Path(f"/proc/{waiting.pop()}/task").glob("*/children")
            below = [int(pid) for children in listed for pid in read(children).split()]
            found += below
            waiting += below
        return found

    def commands(self) -> dict[int, str]:
        """Of every process below the runner, by pid; words are separated by single spaces."""
        return {pid: read(Path(f"/proc/{pid}/cmdline")).replace("\0", " ") for pid in self.children()}

    def hosts(self) -> list[int]:
        return [pid for pid, command in self.commands().items() if "testbed.host" in command.split()]

    def is_driving(self) -> bool:
        """Whether the runner has the priority that it takes for as long as there is traffic."""
        stats = [read(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split() for pid in self.children()]
        return any(int(fields[16]) < 0 for fields in stats if fields)  # proc(5): nice

    def end(self) -> tuple[int, str, str]:
        stdout, stderr = self.process.communicate(timeout=200)
        return self.process.returncode, stdout, stderr


def read(path: Path) -> str:
    """Empty for what belongs to a process that has just ended."""
    try:
        return path.read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


@pytest.fixture
def before() -> Iterator[inventory.Inventory]:
    """The machine before the run; what is there after the test must be the same."""
    found = inventory.take(ROOT)
    yield found
    assert inventory.settled(found, ROOT) == found


def start(out: Path, arguments: Sequence[str] = SHORT) -> Run:
    return Run(out, *arguments)


def summary_of(run: Run) -> dict[str, Any]:
    summary: dict[str, Any] = json.loads((run.folder / "summary.json").read_text())
    return summary


@pytest.mark.usefixtures("before")
def test_a_whole_run_leaves_a_results_folder_and_nothing_else(tmp_path: Path) -> None:
    run = start(tmp_path, [*SHORT, "--json"])
    status, stdout, stderr = run.end()
    assert status in RAN, stderr
    summary = json.loads(stdout)
    assert summary == summary_of(run)
    agreement.check(run.folder)
    assert figure_data.check(run.folder) >= {"goodput", "paths", "windows", "ports", "recovery"}
    assert summary["metrics"]["messages_corrupt"] == 0
    assert summary["metrics"]["messages_incomplete"] == 0
    assert summary["metrics"]["messages_completed"] > 0
    assert [fault["what"] for fault in summary["faults"]] != []
    names = {path.name for path in run.folder.iterdir()}
    assert {"manifest.json", "scenario.yaml", "summary.json", "connections.json", "report.html", "figures", "logs"} <= names
    assert {table.file for table in TABLES if not table.on_request} <= names
    assert "trace.parquet" not in names
    assert "raw" not in names
    manifest = json.loads((run.folder / "manifest.json").read_text())
    assert names <= set(keys("Files")), "docs/results-format.md lists every file"
    assert set(manifest) == set(keys("manifest.json")), "and every key of the manifest"
    assert manifest["status"] == summary["status"]
    assert manifest["window_ns"][1] - manifest["window_ns"][0] == 4_000_000_000
    assert [entry["plane"] for entry in manifest["rtt_measured"]] == [0, 1, 2, 3]
    events = analysis.load(run.folder).events
    faults = events[events["kind"].isin(["fault_start", "fault_end"])]
    assert len(faults) == 2
    assert (faults["t_ns"] >= faults["planned_ns"]).all()


@pytest.mark.usefixtures("before")
def test_every_packet_that_was_placed_was_sent_and_every_byte_counts_once(tmp_path: Path) -> None:
    run = start(tmp_path, [*SHORT, "--no-figures", "--quiet", "--set", "measure.trace=true"])
    status, _, stderr = run.end()
    assert status in RAN, stderr
    loaded = analysis.load(run.folder)
    check_trace(loaded)
    packets, messages = loaded.packets, loaded.messages
    placed = packets[packets["placed_ns"].notna()]
    # Nothing is faster than the delay of 20 ms; `sent_ns` is the sender's own clock, off by a frame time (7 ms) at most.
    assert ((placed["placed_ns"] - placed["sent_ns"]) >= 13_000_000).all()
    first = placed[~placed["duplicate"]]
    assert not first.duplicated(["flow", "psn"]).any()
    finished = messages[messages["verdict"] == "ok"]
    assert first["bytes"].sum() >= finished["bytes"].sum()


def check_trace(loaded: Loaded) -> None:
    """The trace has each transmission and each of its fates once, and says why whatever was lost was called so."""
    trace, packets = loaded.trace, loaded.packets
    assert trace["t_ns"].is_monotonic_increasing
    assert (trace["kind"] == "sent").sum() == len(packets)
    lost, evidence = trace[trace["kind"] == "lost"], trace[trace["kind"] == "evidence"]
    assert len(lost) == (packets["fate"] == "lost").sum() > 0  # a link went down
    by_time_alone = (lost["reason"] == "rto").sum()
    assert len(evidence) == len(lost) - by_time_alone
    retired = trace[(trace["kind"] == "ev_state") & (trace["after"] == "ASSUMED_BAD")]
    told = set(zip(lost["host"], lost["peer"], lost["ev"], lost["t_ns"], strict=True))
    assert {(row.host, row.peer, row.ev, row.t_ns) for row in retired.itertuples() if row.reason == "lost"} <= told
    assert (trace["kind"] == "ev_probe").any()
    assert set(trace[trace["kind"] == "qp_state"]["after"]) == {"INIT", "RTR", "RTS"}


@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.usefixtures("before")
def test_an_interrupt_in_mid_run_keeps_partial_results(tmp_path: Path, signal_number: signal.Signals) -> None:
    run = start(tmp_path)
    run.wait_for_traffic(1.5)
    run.process.send_signal(signal_number)
    status, _, stderr = run.end()
    assert status == 130, stderr
    assert summary_of(run)["status"] == "interrupted"
    loaded = analysis.load(run.folder)
    assert len(loaded.packets) > 0
    t0_ns = loaded.manifest["t0_ns"]
    assert (int(loaded.packets["sent_ns"].max()) - t0_ns) / 1e9 > 0.5
    assert not (run.folder / "raw").exists()


@pytest.mark.usefixtures("before")
def test_a_second_interrupt_ends_at_once(tmp_path: Path) -> None:
    run = start(tmp_path)
    run.wait_for_traffic(1.0)
    for host in run.hosts():
        os.kill(host, signal.SIGSTOP)  # they will not answer `quit`: the first interrupt is not done with when the second comes
    assert run.is_driving()
    run.process.send_signal(signal.SIGINT)
    while run.is_driving():
        time.sleep(0.01)
    time.sleep(SAME_PRESS_S + 0.1)
    run.process.send_signal(signal.SIGINT)
    status, _, stderr = run.end()
    assert status == 130
    assert "testbed collect" in stderr  # what only this way out says: the first interrupt would wait for the hosts


def test_h01_sigkill_of_the_runner_leaves_nothing_and_the_next_run_works(tmp_path: Path, before: inventory.Inventory) -> None:
    run = start(tmp_path)
    with Witness() as witness:
        run.wait_for_traffic(2.0)
        assert len(run.hosts()) == 8
        inside = inventory.namespaces(run.children())
        assert len(inside) > 8
        nobody = "\t".join(["65534"] * 4)
        assert {inventory.rights(host) for host in run.hosts()} == {(nobody, 0, True)}, "sockets and files are open"
        assert inventory.listeners([run.process.pid, *run.children()]) == []
        run.process.kill()
        killed_ns = time.monotonic_ns()
    run.end()
    assert inventory.settled(before, ROOT) == before
    assert inventory.inhabited(inside) == frozenset()
    killed = run.folder
    outcome = json.loads((killed / "raw" / "run" / "outcome.json").read_text())
    assert not outcome["ended"], "what went on without its runner would have come to its end by now"
    again = start(tmp_path, [*BRIEF, "--no-figures", "--quiet"])
    assert again.end()[0] in RAN
    command = [sys.executable, "-m", "testbed", "collect", str(killed)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    loaded = analysis.load(killed)
    last_ns = max(int(loaded.ports["t_ns"].max()), int(loaded.packets["sent_ns"].max()))
    assert killed_ns - last_ns < 1_000_000_000 + witness.worst_s * 1e9  # a machine that stands still records nothing
    assert loaded.manifest["status"] == "interrupted"


@pytest.mark.usefixtures("before")
def test_a_host_that_dies_breaks_the_run_and_is_named(tmp_path: Path) -> None:
    run = start(tmp_path)
    run.wait_for_traffic(1.5)
    victim = run.hosts()[3]
    os.kill(victim, signal.SIGKILL)
    status, _, stderr = run.end()
    assert status == 5
    assert "was ended by SIGKILL" in stderr
    assert "Traceback" not in stderr
    summary = summary_of(run)
    assert summary["status"] == "error"
    assert len(analysis.load(run.folder).packets) > 0


@pytest.mark.usefixtures("before")
def test_two_runs_at_once_do_not_meet(tmp_path: Path) -> None:
    small = ("--set", "topology={planes: 2, t0_groups: 2, t1_per_plane: 2, hosts_per_t0: 1}", "--set", "links.rate=1mbit")
    arguments = [*small, *("--set", "measure.duration=3s", "--set", "measure.warmup=1s", "--set", "faults=[]"), "--quiet"]
    runs = [start(tmp_path / name, [*arguments, "--no-figures"]) for name in ("one", "other")]
    for run in runs:
        status, _, stderr = run.end()
        assert status in RAN, stderr
        assert summary_of(run)["metrics"]["messages_incomplete"] == 0


@pytest.mark.usefixtures("before")
def test_a_full_disk_is_said_and_breaks_the_run(tmp_path: Path) -> None:
    """A file system of 3 MiB: room for the folder, none for the records of a run."""
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(disk)], check=True)
    try:
        run = start(disk)
        status, _, stderr = run.end()
        summary, manifest = summary_of(run), json.loads((run.folder / "manifest.json").read_text())
        analysis.load(run.folder)
    finally:
        subprocess.run(["umount", str(disk)], check=True)
    assert status == 5
    assert "space" in stderr
    assert "Traceback" not in stderr
    assert summary["status"] == manifest["status"] == "error"


@pytest.mark.usefixtures("before")
def test_a_results_folder_that_is_deleted_during_the_run_is_said_and_breaks_it(tmp_path: Path) -> None:
    run = start(tmp_path, [*BRIEF, "--quiet"])
    run.wait_for_traffic(0.5)
    gone = run.folder
    shutil.rmtree(tmp_path / "quickstart")
    status, _, stderr = run.end()
    assert status == 5
    assert stderr.splitlines() == [f"{gone}: was deleted during the run", "the run broke; see above", *stderr.splitlines()[2:]]
    assert "Traceback" not in stderr
    assert list(tmp_path.iterdir()) == [], "nothing is written where it was"


@pytest.mark.usefixtures("before")
def test_a_place_that_cannot_be_written_is_refused_and_nothing_is_made(tmp_path: Path) -> None:
    """A read-only file system; a file."""
    disk, file = tmp_path / "disk", tmp_path / "file"
    disk.mkdir()
    file.write_text("as it was")
    subprocess.run(["mount", "--bind", str(disk), str(disk)], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", str(disk)], check=True)
        for out, why in ((disk / "new", "Read-only"), (file, "Not a dir")):
            status, stdout, stderr = start(out, BRIEF).end()
            assert (status, stdout) == (2, "")
            assert stderr.splitlines()[-1].startswith(f"--out: cannot write results to {out / 'quickstart'}: {why}")
            assert "Traceback" not in stderr
    finally:
        subprocess.run(["umount", str(disk)], check=True)
    assert sorted(tmp_path.rglob("*")) == [disk, file]
    assert file.read_text() == "as it was"


@pytest.mark.usefixtures("before")
def test_an_interrupt_while_results_are_worked_out_names_what_goes_on(tmp_path: Path) -> None:
    run = start(tmp_path, BRIEF)
    run.wait_for_traffic(0)
    folder = run.folder
    while not any(folder.glob("*.parquet")):
        assert run.process.poll() is None, run.end()
        time.sleep(0.01)
    run.process.send_signal(signal.SIGINT)
    status, _, stderr = run.end()
    assert status == 130, stderr
    assert "Traceback" not in stderr
    assert summary_of(run)["status"] == "interrupted"
    command = next(line for line in stderr.splitlines() if "python3 -m " in line).partition("python3 ")[2].split()
    done = subprocess.run([sys.executable, *command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (folder / "report.html").exists()
    assert summary_of(run)["metrics"]["messages_completed"] > 0


@pytest.mark.usefixtures("before")
def test_a_delay_line_that_is_killed_breaks_the_run_and_is_named(tmp_path: Path) -> None:
    run = start(tmp_path)
    run.wait_for_traffic(1.5)
    lines = [pid for pid, command in run.commands().items() if "delay_line.py" in command]
    for pid in lines:
        os.kill(pid, signal.SIGKILL)
    status, _, stderr = run.end()
    if lines:  # this kernel has no netem
        assert status == 5
        assert "delay line: statistics: its process was ended by SIGKILL" in stderr
        assert "Traceback" not in stderr
        assert len(analysis.load(run.folder).packets) > 0


@pytest.mark.skipif(not (DAEMONS / "bgpd").exists(), reason="needs FRR")
@pytest.mark.usefixtures("before")
def test_a_bgpd_that_dies_breaks_the_run_with_the_end_of_its_log(tmp_path: Path) -> None:
    small = "topology={planes: 1, t0_groups: 2, t1_per_plane: 1, hosts_per_t0: 1}"
    bgp = [*BRIEF, "--set", small, "--set", "routing=bgp", "--set", "transport={kind: rc}", "--quiet"]
    run = start(tmp_path, [*bgp, "--set", "measure.duration=30s"])
    run.wait_for_traffic(0.2)
    (victim,) = (pid for pid, command in run.commands().items() if f"{DAEMONS}/bgpd" in command and "/p0t1-0/" in command)
    os.kill(victim, signal.SIGKILL)
    status, _, stderr = run.end()
    assert status == 5
    said = stderr[stderr.index("bgpd of p0t1-0 was ended by SIGKILL; the end of its log:\n") :]
    log = (run.folder / "logs" / "frr" / "p0t1-0-bgpd.log").read_text()
    assert said.splitlines()[1] in log
    assert "Traceback" not in stderr
    summary = summary_of(run)
    assert summary["status"] == "error"


@pytest.mark.usefixtures("before")
def test_verify_finds_the_fabric_as_planned() -> None:
    command = [sys.executable, "-m", "testbed", "verify", "quickstart"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 0, done.stderr
    assert " 0 problems" in done.stdout
