"""The runner's side of the control channel, with a child that speaks the protocol and can misbehave on request."""

from __future__ import annotations

import json
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed.errors import RunError
from testbed.run.channel import Channel
from testbed.run.hosts import RUNNING, SILENT_NS, Hosts

LATEST_S = 60.0  # a limit for what hangs, not for what is slow
CHILD = """
import json, os, socket, sys, time
plan = json.load(open(sys.argv[1]))
channel = socket.socket(fileno=int(sys.argv[2]))
reader = channel.makefile("r")
say = lambda **message: channel.sendall(json.dumps(message).encode() + b"\\n")
mood = plan["mood"]
if mood == "noise":
    sys.stderr.write("x" * 4_000_000)
if mood == "error":
    say(type="error", message="no such interface")
    sys.exit(1)
if mood == "garbage":
    channel.sendall(b"42\\n")
say(type="ready", flows=[])
if mood == "dies":
    sys.stderr.write("the last words of a host\\n")
    sys.stderr.flush()
    os.kill(os.getpid(), 9)
for line in reader:
    if json.loads(line)["type"] == "quit":
        if mood == "stuck":
            time.sleep(200)
        if mood == "full":
            say(type="error", message="no space left")
            sys.exit(1)
        say(type="bye", counters={"packets_sent": 3})
        sys.exit(0)
"""


class Spawner:
    """Starts the child above where Fabric would start a host."""

    def spawn(
        self, node: str, argv: list[str], *, pass_fds: Any = (), stdout: Any = None, stderr: Any = None
    ) -> subprocess.Popen[bytes]:
        assert node.startswith("h")
        assert argv[1:3] == ["-m", "testbed.host"]
        plan, descriptor = argv[argv.index("--plan") + 1], argv[argv.index("--control") + 1]
        command = [sys.executable, "-c", CHILD, plan, descriptor]
        return subprocess.Popen(command, pass_fds=pass_fds, stdout=stdout, stderr=stderr, start_new_session=True)


class Bench:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.selector = selectors.DefaultSelector()
        self.hosts = Hosts(self.selector)

    def start(self, *moods: str) -> Hosts:
        plans = [{"host": f"h{n}", "mood": mood, "records": str(self.path / f"h{n}")} for n, mood in enumerate(moods)]
        self.hosts.start(Spawner(), plans, self.path)
        return self.hosts

    def wait(self, kind: str, limit_s: float = LATEST_S) -> None:
        self.hosts.wait(kind, limit_s, unless=lambda: False)

    def ready(self) -> None:
        self.wait("ready")


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    for host in made.hosts:
        host.process.kill()
        host.process.wait()
        host.channel.close()
    made.selector.close()


def test_ready_and_quit(bench: Bench) -> None:
    hosts = bench.start("good", "good")
    bench.ready()
    assert hosts.quit(LATEST_S) == []
    assert [host.messages["bye"]["counters"] for host in hosts] == [{"packets_sent": 3}] * 2
    assert json.loads((bench.path / "h1" / "plan.json").read_text())["host"] == "h1"


def test_what_goes_wrong_at_the_very_end_is_said(bench: Bench) -> None:
    hosts = bench.start("good", "full")
    bench.ready()
    assert hosts.quit(LATEST_S) == []
    assert hosts.ended_badly() == ["h1 (no space left)"]


def test_a_pause_may_end_after_its_host_was_killed(bench: Bench) -> None:
    hosts = bench.start("well")
    bench.wait("ready")
    hosts.pause("h0")
    hosts.kill("h0")
    hosts.resume("h0")
    hosts.check()
    assert hosts.quit(LATEST_S) == []


def test_a_host_that_is_killed_is_named_with_its_signal_and_last_words(bench: Bench) -> None:
    bench.start("good", "dies")
    with pytest.raises(RunError, match=r"(?s)host h1 was ended by SIGKILL while ready.*the last words of a host"):
        bench.wait("connected")
    assert bench.hosts.quit(LATEST_S) == []  # the others still leave in order
    assert bench.hosts["h0"].messages["bye"]["counters"] == {"packets_sent": 3}


def test_what_a_host_reports_as_its_error_is_the_runs_error(bench: Bench) -> None:
    bench.start("error")
    with pytest.raises(RunError, match="host h0: no such interface"):
        bench.wait("ready")


def test_what_is_not_a_message_breaks_the_run(bench: Bench) -> None:
    bench.start("garbage")
    with pytest.raises(RunError, match="host h0: not a message"):
        bench.wait("ready")


def test_a_limit_names_who_is_late(bench: Bench) -> None:
    hosts = bench.start("good", "good")
    bench.ready()
    hosts["h0"].messages["connected"] = {}
    with pytest.raises(RunError, match=r"no 'connected' within 0.2 s from h1"):
        bench.wait("connected", 0.2)


def test_a_host_that_does_not_leave_is_ended(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """And no other: the limit passes once the one that leaves has left."""
    hosts = bench.start("good", "stuck")
    bench.ready()
    monkeypatch.setattr(time, "monotonic", lambda: 0.0 if hosts["h0"].process.poll() is None else 1.0)
    assert hosts.quit(0.5) == ["h1"]
    assert hosts["h0"].process.returncode == 0
    assert hosts["h1"].process.returncode == -signal.SIGKILL  # it would have slept longer


def test_silence_breaks_a_run_only_once_it_is_running(bench: Bench) -> None:
    hosts = bench.start("good")
    bench.ready()
    host = hosts["h0"]
    long_after = host.heard_ns + SILENT_NS + 1
    assert host.failure(long_after) is None
    hosts.begin(host.heard_ns)
    assert host.phase == RUNNING
    assert "has said nothing" in str(host.failure(long_after))


def test_h23_megabytes_on_standard_error_stall_nobody(bench: Bench) -> None:
    bench.start("noise")
    bench.ready()
    assert (bench.path / "h0.log").stat().st_size == 4_000_000


def test_goodput_is_the_growth_between_two_reports(bench: Bench) -> None:
    host = next(iter(bench.start("good")))
    host.take_progress({"t_ns": 0, "placed_bytes": 0})
    host.take_progress({"t_ns": 500_000_000, "placed_bytes": 1_000_000})
    assert host.goodput_bps == pytest.approx(16e6)


def test_a_channel_keeps_what_the_socket_does_not_take() -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        channel = Channel(ours)
        big = {"type": "connect", "flows": ["x" * 100] * 20_000}
        channel.send(big)
        assert channel.pending()
        received = b""
        while not received.endswith(b"\n"):
            received += theirs.recv(1 << 20)
            channel.flush()
        assert json.loads(received) == big
        assert not channel.pending()
        channel.close()


def test_a_half_line_at_the_end_of_a_channel_is_left_out() -> None:
    ours, theirs = socket.socketpair()
    channel = Channel(ours)
    theirs.sendall(b'{"type":"ready","flows":[]}\n{"type":"pro')
    theirs.close()
    assert channel.receive() == [{"type": "ready", "flows": []}]
    assert channel.closed
    channel.close()
