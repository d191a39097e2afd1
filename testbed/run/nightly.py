"""One night: run a suite, hold it against its baseline, add to the history, draw it, delete what is old, rotate the logs.

In `<out>`: `<suite>/<time>/` has the runs with junit.xml and regression.md; `history/<suite>.parquet` and `.html` the nights so
far; `logs/nightly-<suite>-<time>.log` what was said. The lock `.nightly.lock` keeps two nights apart: two emulations on one
machine would make both invalid.
"""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

from testbed.errors import ExitStatus, RunError
from testbed.run import retention
from testbed.run.status import combine
from testbed.venv import ROOT

LOGS_KEPT = 30
LOCK = ".nightly.lock"


@dataclass(frozen=True, slots=True)
class Night:
    """`suite`: a name or a file; `name`: what it calls itself. `keep_days`, `keep_bytes`: as `retention.prune`."""

    suite: str
    name: str
    out: Path
    baseline: Path
    keep_days: float | None
    keep_bytes: int | None

    @property
    def history(self) -> Path:
        return self.out / "history" / f"{self.name}.parquet"


def run(night: Night) -> ExitStatus:
    """The whole night; RunError when another one is going on."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    night.out.mkdir(parents=True, exist_ok=True)
    with _alone(night.out / LOCK):
        logs = night.out / "logs"
        logs.mkdir(exist_ok=True)
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        path = logs / f"nightly-{night.name}-{stamp}.log"
        with path.open("ab") as log:
            status = _steps(night, log)
            log.write(f"exit status {int(status)} ({status.name.lower().replace('_', ' ')})\n".encode())
        retention.prune_logs(logs, f"nightly-{night.name}-*.log", LOGS_KEPT)
        print(f"{night.name}: {status.name.lower().replace('_', ' ')}; {path}")
        return status


def _steps(night: Night, log: IO[bytes]) -> ExitStatus:
    arguments = [f"--suite={night.suite}", "--out", str(night.out), "--no-figures"]
    done = [_python([str(ROOT / "run_experiment.py"), *arguments], log)]
    latest = night.out / night.name / "latest"
    if done[0] in (ExitStatus.BAD_INPUT, ExitStatus.INTERRUPTED):
        return done[0]
    baseline = ["--baseline", str(night.baseline)] if night.baseline.is_file() else []
    regress = ["-m", "analysis", "regress", str(latest.resolve()), *baseline, "--history", str(night.history)]
    done.append(_python(regress, log))
    done.append(_python(["-m", "analysis", "trend", str(night.history)], log))
    gone = retention.prune([night.out / night.name], night.keep_days, night.keep_bytes)
    log.writelines(f"{line}\n".encode() for line in retention.describe(gone, dry=False))
    return combine(done)


def _python(arguments: Sequence[str], log: IO[bytes]) -> ExitStatus:
    """Run our Python from the project's directory; what it says goes to the log. An interrupt is handed on, and waited for."""
    log.flush()
    child = subprocess.Popen(
        [sys.executable, *arguments],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,  # a terminal's Ctrl-C reaches it once, through us
    )
    while True:
        try:
            return _status(child.wait())
        except KeyboardInterrupt:
            child.send_signal(signal.SIGINT)


def _status(returncode: int) -> ExitStatus:
    try:
        return ExitStatus(returncode)
    except ValueError:
        return ExitStatus.BROKEN


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Held until the process ends, however it ends."""
    with path.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise RunError(f"{path}: another nightly is going on ({file.read().strip() or 'starting'})") from None
        file.truncate(0)
        file.write(f"process {os.getpid()} since {datetime.now(UTC).isoformat(timespec='seconds')}\n")
        file.flush()
        yield
        file.truncate(0)


SERVICE = """\
# Written by `make install-nightly`; `make uninstall-nightly` takes it away.
[Unit]
Description=MRC testbed: {suite} regression suite

[Service]
Type=oneshot
WorkingDirectory={root}
ExecStart={command}
# The first SIGINT ends the run under way in order; its partial results say so.
KillSignal=SIGINT
KillMode=mixed
TimeoutStartSec=4h
TimeoutStopSec=3min
"""
TIMER = """\
# Written by `make install-nightly`; `make uninstall-nightly` takes it away.
[Unit]
Description=MRC testbed: {suite} regression suite, every night

[Timer]
OnCalendar={at}
Persistent=true

[Install]
WantedBy=timers.target
"""
UNITS = "mrc-testbed-nightly"


def write_units(folder: Path, suite: str, out: Path, at: str) -> list[Path]:
    """The systemd service and timer for a suite, in `folder`."""
    command = [str(ROOT / ".venv" / "bin" / "python"), "-m", "testbed", "nightly", f"--suite={suite}", f"--out={out}"]
    quoted = " ".join(_quoted(one) for one in command)
    folder.mkdir(parents=True, exist_ok=True)
    made = []
    for suffix, text in (("service", SERVICE), ("timer", TIMER)):
        file = folder / f"{UNITS}.{suffix}"
        file.write_text(text.format(suite=suite, root=str(ROOT).replace("%", "%%"), command=quoted, at=at))
        made.append(file)
    return made


def _quoted(word: str) -> str:
    """As systemd.service(5) reads a command line."""
    return '"' + word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$") + '"'
