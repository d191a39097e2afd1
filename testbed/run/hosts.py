"""The host processes as the runner sees them: start, talk over the control channel, watch, stop.

A host is a child in its own network namespace. It writes its records and its log to files, never to a pipe (a full pipe
would stall it), and speaks JSON on an inherited socket. A host that dies unplanned or falls silent breaks the run.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from testbed.errors import RunError
from testbed.run.channel import Channel, Message

SILENT_NS = 10_000_000_000  # a host reports every half second; ten seconds of nothing is a hang, not a slow machine
LOG_TAIL = 2000
DYING_S = 5.0
CONFIRM_S = 3.0
RUNNING = "running"
PYTHON = (sys.executable, "-m")


class Spawner(Protocol):
    """The part of `Fabric` that starts processes in a node's network namespace."""

    def spawn(
        self, node: str, argv: list[str], *, pass_fds: Sequence[int] = (), stdout: Any = None, stderr: Any = None
    ) -> subprocess.Popen[bytes]: ...


@dataclass(slots=True)
class HostProcess:
    """One running host. `phase`: the type of its last message other than progress, or "running" while it must report."""

    name: str
    process: subprocess.Popen[bytes]
    channel: Channel
    log: Path
    heard_ns: int
    phase: str = "started"
    progress: Message = field(default_factory=dict)  # the last one
    goodput_bps: float = 0.0  # between the last two
    messages: dict[str, Message] = field(default_factory=dict)  # the last one of each type
    paused: int = 0  # how many planned faults hold it
    killed: bool = False  # on purpose

    def take_progress(self, message: Message) -> None:
        before = self.progress
        if before and message["t_ns"] > before["t_ns"]:
            placed = message["placed_bytes"] - before["placed_bytes"]
            self.goodput_bps = placed * 8e9 / (message["t_ns"] - before["t_ns"])
        self.progress = message

    def failure(self, now_ns: int) -> str | None:
        """Why this host breaks the run, or None while it is well."""
        if self.killed:
            return None
        if "error" in self.messages:
            return f"host {self.name}: {self.messages['error'].get('message')}"
        if self.phase == "bye":
            return None
        status = self.process.poll()
        if status is None and self.channel.closed:
            with suppress(subprocess.TimeoutExpired):  # a dying process closes its channel a moment before it is gone
                status = self.process.wait(DYING_S)
        if status is not None or self.channel.closed:
            how = "closed its control channel" if status is None else _how_it_ended(status)
            return f"host {self.name} {how} while {self.phase}{self._log_tail()}"
        if self.phase == RUNNING and not self.paused and now_ns - self.heard_ns > SILENT_NS:
            return f"host {self.name} has said nothing for {SILENT_NS // 10**9} s while {self.phase}{self._log_tail()}"
        return None

    def _log_tail(self) -> str:
        text = self.log.read_text(errors="replace")[-LOG_TAIL:].strip()
        return f"; the end of its log:\n{text}" if text else ""


class Hosts:
    """All host processes of a run, registered with the runner's one selector."""

    def __init__(self, selector: selectors.BaseSelector) -> None:
        self._selector = selector
        self._hosts: dict[str, HostProcess] = {}

    def start(
        self, fabric: Spawner, plans: Iterable[dict[str, Any]], logs: Path, command: Sequence[str] = (*PYTHON, "testbed.host")
    ) -> None:
        """Start one process per plan. The plan goes to a file next to the host's records."""
        for plan in plans:
            name = plan["host"]
            records = Path(plan["records"])
            records.mkdir(parents=True, exist_ok=True)
            plan_file = records / "plan.json"
            plan_file.write_text(json.dumps(plan))
            ours, theirs = socket.socketpair()
            log = logs / f"{name}.log"
            argv = [*command, "--plan", str(plan_file), "--control", str(theirs.fileno())]
            with theirs, log.open("wb") as log_file:
                process = fabric.spawn(name, argv, pass_fds=(theirs.fileno(),), stdout=log_file, stderr=log_file)
            host = HostProcess(name, process, Channel(ours), log, time.monotonic_ns())
            self._hosts[name] = host
            self._selector.register(host.channel, selectors.EVENT_READ, host)

    def __iter__(self) -> Iterator[HostProcess]:
        return iter(self._hosts.values())

    def __getitem__(self, name: str) -> HostProcess:
        return self._hosts[name]

    def read(self, host: HostProcess) -> None:
        """Take in what a host said. RunError when it makes no sense."""
        try:
            messages = host.channel.receive()
        except ValueError as error:
            raise RunError(f"host {host.name}: {error}") from error
        for message in messages:
            host.heard_ns = time.monotonic_ns()
            if message["type"] == "progress":
                host.take_progress(message)
            else:
                host.phase = RUNNING if message["type"] == "drained" else message["type"]
                host.messages[message["type"]] = message
        if host.channel.closed:
            self._selector.unregister(host.channel)
            host.channel.close()

    def pause(self, name: str) -> int:
        """Stop a host's process as it stands, until `resume`. Returns the ns at which the kernel showed it stopped."""
        host = self._living(name, "pause")
        host.paused += 1
        os.killpg(host.process.pid, signal.SIGSTOP)  # with what it has started
        return _in_state(host, "T")

    def resume(self, name: str) -> int:
        if name in self._hosts and self._hosts[name].killed:  # in mid-pause: there is nothing left to go on
            return time.monotonic_ns()
        host = self._living(name, "resume")
        host.paused -= 1
        if not host.paused:
            host.heard_ns = time.monotonic_ns()
            os.killpg(host.process.pid, signal.SIGCONT)
            return _in_state(host, "RSD")
        return time.monotonic_ns()

    def kill(self, name: str) -> int:
        """End a host's process on purpose: it is no failure, and nothing is expected of it any more."""
        host = self._living(name, "kill")
        host.killed = True
        host.process.kill()
        host.process.wait()
        confirmed_ns = time.monotonic_ns()
        if not host.channel.closed:
            self.read(host)
        return confirmed_ns

    def _living(self, name: str, what: str) -> HostProcess:
        host = self._hosts.get(name)
        if host is None:
            raise RunError(f"cannot {what} {name}: no flow begins or ends there, so it has no process")
        if host.process.poll() is not None:
            raise RunError(f"cannot {what} {name}: its process has ended")
        return host

    def check(self) -> None:
        """RunError naming every host that failed."""
        for host in self._hosts.values():
            if not host.channel.closed and host.process.poll() is not None:
                self.read(host)  # its last words come before the status it left with
        now = time.monotonic_ns()
        failures = [failure for host in self._hosts.values() if (failure := host.failure(now))]
        if failures:
            raise RunError("\n".join(failures))

    def begin(self, t0_ns: int) -> None:
        """Tell every host when t = 0 is. From then on each must be heard regularly."""
        for host in self._hosts.values():
            host.phase, host.heard_ns = RUNNING, t0_ns
        self.broadcast({"type": "start", "t0_ns": t0_ns})

    def broadcast(self, message: Message) -> None:
        for host in self._hosts.values():
            host.channel.send(message)

    def tell(self, host: str, message: Message) -> None:
        """Send one message to one host; nothing when that host takes no part in the run."""
        if host in self._hosts:
            self._hosts[host].channel.send(message)

    def flush(self) -> None:
        for host in self._hosts.values():
            if host.channel.pending():
                host.channel.flush()

    def all_said(self, kind: str) -> bool:
        """Every host that was not killed on purpose."""
        return all(kind in host.messages for host in self._hosts.values() if not host.killed)

    def wait(self, kind: str, limit_s: float, *, of: Iterable[HostProcess] | None = None, unless: Callable[[], bool]) -> None:
        """Serve the channels until every host, or each in `of`, has sent a message of this kind, or `unless()`.

        RunError when a host fails or `limit_s` passes first.
        """
        wanted = list(self._hosts.values() if of is None else of)
        deadline = time.monotonic_ns() + int(limit_s * 1e9)
        while (late := [host.name for host in wanted if kind not in host.messages]) and not unless():
            if time.monotonic_ns() > deadline:
                self.check()  # one that has died says why; the limit only says when
                raise RunError(f"no '{kind}' within {limit_s:g} s from {', '.join(late)}")
            self.serve(0.05)
            self.check()

    def serve(self, timeout_s: float) -> None:
        """Wait for messages at most this long and take them in."""
        self.flush()
        for key, _ in self._selector.select(timeout_s):
            if isinstance(key.data, HostProcess):
                self.read(key.data)
            else:
                key.data()

    def quit(self, limit_s: float) -> list[str]:
        """Let every host flush and leave; end those that do not within `limit_s`. Returns the names of those ended."""
        for host in self._hosts.values():
            if host.paused and host.process.poll() is None:
                os.killpg(host.process.pid, signal.SIGCONT)  # a planned pause to the end of the run
        self.broadcast({"type": "quit"})
        deadline = time.monotonic() + limit_s
        while self._running() and time.monotonic() < deadline:
            self.serve(0.02)
        stuck = self._running()
        for host in stuck:
            host.process.kill()
        for host in self._hosts.values():
            host.process.wait()
            if not host.channel.closed:
                self.read(host)
        return [host.name for host in stuck]

    def ended_badly(self) -> list[str]:
        """Who left with an error, after `quit`, and what it said of it: a disk may be full only at the last flush."""
        bad = [host for host in self._hosts.values() if host.process.returncode != 0 and not host.killed]
        errors = [host.messages.get("error", {}).get("message") for host in bad]
        return [f"{host.name} ({error})" if error else host.name for host, error in zip(bad, errors, strict=True)]

    def _running(self) -> list[HostProcess]:
        return [host for host in self._hosts.values() if host.process.poll() is None]


def _in_state(host: HostProcess, letters: str) -> int:
    """When the kernel shows the process in one of these states (proc(5), stat); RunError when it does not."""
    deadline = time.monotonic() + CONFIRM_S
    while time.monotonic() < deadline:
        state = Path(f"/proc/{host.process.pid}/stat").read_text().rpartition(")")[2].split()[0]
        if state in letters:
            return time.monotonic_ns()
        time.sleep(0.0005)
    raise RunError(f"host {host.name} is in state {state}, not {' or '.join(letters)}, {CONFIRM_S:g} s after the signal")


def _how_it_ended(status: int) -> str:
    if status < 0:
        return f"was ended by {signal.Signals(-status).name}"
    return f"exited with status {status}"
