"""Short runs of the incast and of a rebooting switch, a window that is given, and a person's hands in the fabric."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import analysis
from tests.fabric import inventory
from tests.support import agreement

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [
    pytest.mark.fabric,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: namespaces, raw sockets"),
]
SMALL = ("--set", "topology={planes: 2, t0_groups: 2, t1_per_plane: 2, hosts_per_t0: 3}", "--set", "expect=[]")
TIMES = ("--set", "measure.warmup=1s", "--set", "measure.duration=4s")
INCAST = "workload=[{kind: incast, senders: [h1, h3, h4], receiver: h0, bystander: [h5, h2], message: 64KiB}]"
RAN = {0, 4}  # passed, or too slow, which is the machine's business


@pytest.fixture(autouse=True)
def nothing_stays() -> Iterator[None]:
    found = inventory.take(ROOT)
    yield
    assert inventory.settled(found, ROOT) == found


def run(out: Path, scenario: str, *arguments: str, stdin: str = "") -> tuple[dict[str, Any], Path, str]:
    """(summary.json, results folder, standard output) of a run that went through."""
    command = [sys.executable, str(ROOT / "run_experiment.py"), scenario, "--out", str(out), "--no-figures", *SMALL, *TIMES]
    done = subprocess.run([*command, *arguments], input=stdin, capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode in RAN, done.stderr
    folder = (out / scenario / "latest").resolve()
    summary: dict[str, Any] = json.loads((folder / "summary.json").read_text())
    assert (summary["metrics"]["messages_corrupt"], summary["metrics"]["messages_incomplete"]) == (0, 0)
    return summary, folder, done.stdout


def test_an_incast_is_trimmed_and_not_dropped_and_every_flow_counts(tmp_path: Path) -> None:
    summary, folder, _ = run(tmp_path, "incast", "--set", INCAST)
    agreement.check(folder)
    metrics = summary["metrics"]
    assert metrics["packets_trimmed"] > 0
    assert metrics["packets_dropped_queue"] == 0
    assert metrics["flow_goodput_ratio_min"] > 0
    loaded = analysis.load(folder)
    nacks = {host: counters["nacks_sent"] for host, counters in loaded.manifest["counters"].items()}
    assert sum(nacks.values()) == loaded.ports["trimmed"].sum(), "one for each, over the whole run"
    assert nacks["h0"] > 0
    messages = loaded.messages
    finished = messages[messages["verdict"] == "ok"].groupby("job", observed=True)["host"].unique()
    assert set(finished["incast"]) == {"h1", "h3", "h4"}
    assert set(finished["incast-bystander"]) == {"h5"}


@pytest.mark.parametrize(("window", "frames"), [("12", 12), ("64KiB", 16)])
def test_a_fixed_window_is_the_windows_size(tmp_path: Path, window: str, frames: int) -> None:
    fixed = ("--set", "transport.cc=fixed", "--set", "transport.backpressure=false")
    _, folder, _ = run(tmp_path, "incast", "--set", INCAST, *fixed, "--set", f"transport.window={window}")
    samples = analysis.load(folder).samples
    sent = samples[samples["role"] == "sender"]
    assert set(sent["window"].unique()) == {frames * 4096}
    # one row per plane; a packet that was called lost is out of flight before its retransmission is in
    assert sent.groupby(["host", "flow", "t_ns"], observed=True)["inflight"].max().max() <= frames * 4096


def test_a_reboot_costs_packets_and_no_message(tmp_path: Path) -> None:
    fault = "faults=[{at: 1500ms, switch: p0t1-0, action: reboot, for: 1s}]"
    summary, folder, _ = run(tmp_path, "reboot", "--set", fault)
    (entry,) = summary["faults"]
    assert entry["what"] == "reboot p0t1-0"
    assert entry["packets_lost"] > 0
    assert summary["metrics"]["packets_dropped_fault"] > 0
    events = analysis.load(folder).events
    moments = events[events["kind"].isin(["fault_start", "fault_end"])]
    assert list(moments["where"]) == ["p0t1-0", "p0t1-0"]
    assert (moments["t_ns"] > moments["planned_ns"]).all()


@pytest.mark.parametrize(
    ("fault", "what"),
    [
        ("action: loss, ratio: 0.3, direction: forward", "loss 30% p0t0-0:p0t1-0 (forward only)"),
        ("action: corrupt, ratio: 0.3", "corrupt 30% p0t0-0:p0t1-0"),
        ("action: rate, to: 1mbit", "rate 1mbit p0t0-0:p0t1-0"),
    ],
)
def test_what_links_do_to_packets_is_survived(tmp_path: Path, fault: str, what: str) -> None:
    """A corrupt packet is refused by its ICRC, never placed; a slow link loses nothing."""
    summary, folder, _ = run(tmp_path, "reboot", "--set", f"faults=[{{at: 1500ms, link: 'p0t0-0:p0t1-0', for: 1s, {fault}}}]")
    (entry,) = summary["faults"]
    assert entry["what"] == what
    assert (entry["packets_lost"] == 0) == what.startswith("rate")
    starts = analysis.load(folder).events.query("kind == 'fault_start'")
    assert list(starts["where"]) == ["p0t0-0:p0t1-0"]


COMMANDS = """\
nodes
h0 ip -6 -o addr show dev lo

p0t1-0 ip -6 route
link h0 p0t0-0 down
h0 cat
exit
h1 echo not reached
"""


def shell(*arguments: str, commands: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "testbed", *arguments]
    return subprocess.run(command, input=commands, cwd=ROOT, capture_output=True, text=True, check=False, timeout=200)


@pytest.mark.skipif(shutil.which("mnexec") is None, reason="needs mnexec (Debian's mininet package)")
def test_shell_takes_commands_from_a_pipe() -> None:
    commands = COMMANDS.replace("h0 cat\n", "h0 ping6 -c1 -W2 5f00:0:4001::\n" if shutil.which("ping6") else "h0 true\n")
    done = shell("shell", "incast", *SMALL, "--set", INCAST, commands=commands)
    assert done.returncode == 0, done.stderr
    assert "h0 h1 h2 h3 h4 h5 p0t0-0" in done.stdout
    assert "inet6 fd00::1:0/128" in done.stdout
    assert "5f00:0:2000::/48" in done.stdout, "the T1's own uN"
    assert "not reached" not in done.stdout
    assert "Unknown command" not in done.stdout
    assert "link states are set by the scenario's faults" in done.stderr
    if shutil.which("ping6"):
        assert "1 received" in done.stdout


@pytest.mark.skipif(shutil.which("mnexec") is None, reason="needs mnexec (Debian's mininet package)")
def test_a_run_with_cli_opens_it_before_the_fabric_goes(tmp_path: Path) -> None:
    faults = ("--set", "faults=[]")
    _, _, said = run(tmp_path, "reboot", "--cli", "--quiet", *faults, stdin="h0 ip -o link show h0-eth1\nexit\n")
    assert "h0-eth1" in said


def test_exec_gives_the_commands_output_and_status() -> None:
    done = shell("exec", "incast", *SMALL, "--set", INCAST, "h4", "sh", "-c", "ip -6 -o addr show dev lo; exit 7", commands="")
    assert done.returncode == 7
    assert "fd00::1:4/128" in done.stdout
    assert shell("exec", "incast", *SMALL, "--set", INCAST, "h4", "no-such-tool", commands="").returncode == 127
