"""One run as a child process of the same command, so that what befalls it does not befall the batch it belongs to."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.errors import ExitStatus
from testbed.fabric import syscalls
from testbed.venv import ROOT

GRACE_S = 60.0  # an interrupted run judges what it recorded
ERROR_CHARACTERS = 2000


@dataclass(frozen=True, slots=True)
class Finished:
    """`summary` is what the run printed; None when it printed none. `error`: the end of its standard error where it failed."""

    status: ExitStatus
    summary: dict[str, Any] | None
    seconds: float
    error: str


def run(scenario: Path, seed: int, out: Path, log: Path, limit_s: float, *, figures: bool) -> Finished:
    """Run `scenario` and wait for it. Its standard error goes to `log`.

    An interrupt of the caller is handed on; the child is waited for and the KeyboardInterrupt swallowed: the status says it.
    """
    argv = [sys.executable, str(ROOT / "run_experiment.py"), str(scenario), "--seed", str(seed), "--out", str(out), "--json"]
    argv += [] if figures else ["--no-figures"]
    began = time.monotonic()
    with log.open("ab") as stderr:
        # A session of its own: a terminal's Ctrl-C reaches it once, through us. It does not outlive us either.
        child = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            start_new_session=True,
            preexec_fn=_die_with_us,  # noqa: PLW1509 - one system call, and the caller has one thread that forks
        )
        said, late = _wait(child, limit_s)
    status, summary = _status(child.returncode), _summary(said)
    error = _error(status, summary, log)
    if late:
        status, error = ExitStatus.BROKEN, f"ended from outside after {limit_s:g} s\n{error}"
    return Finished(status, summary, time.monotonic() - began, error)


def _error(status: ExitStatus, summary: dict[str, Any] | None, log: Path) -> str:
    """What a person needs to know of a run that says nothing about the fabric."""
    if status in (ExitStatus.PASSED, ExitStatus.EXPECTATION_FAILED):
        return ""
    if status is ExitStatus.INVALID and summary is not None:
        return "; ".join(summary["fidelity"]["reasons"])
    return log.read_text(encoding="utf-8", errors="replace")[-ERROR_CHARACTERS:].strip()


def _die_with_us() -> None:
    syscalls.die_with_parent(signal.SIGKILL)  # the kernel then removes all of the run's namespaces


def _wait(child: subprocess.Popen[bytes], limit_s: float) -> tuple[bytes, bool]:
    """What the child printed, and whether it had to be ended. A second interrupt ends it at once."""
    end, late = time.monotonic() + limit_s, False
    while True:
        try:
            said, _ = child.communicate(timeout=max(0.0, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            child.send_signal(signal.SIGKILL if late else signal.SIGINT)
            end, late = time.monotonic() + GRACE_S, True
        except KeyboardInterrupt:
            child.send_signal(signal.SIGINT)
        else:
            return said, late


def _status(returncode: int) -> ExitStatus:
    try:
        return ExitStatus(returncode)
    except ValueError:
        return ExitStatus.BROKEN


def _summary(said: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(said)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
