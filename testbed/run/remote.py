"""What a worker of `--engine dask` does: say what it is, and make one run and hand its folder back.

Runs in the worker's process, from the worker's own copy of this project. Each run, and the look at the machine, is a child
process: both fork, which a process with threads should not do by itself.
"""

from __future__ import annotations

import hashlib
import json
import platform
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.run import children, provenance
from testbed.venv import ROOT

SOURCES = ("testbed", "analysis")
SUFFIXES = (".py", ".c", ".h", ".j2")
LOOK_S = 60.0


@dataclass(frozen=True, slots=True)
class Order:
    """One run to be made: resolved scenario, the policy file it names, seed. Everything a worker needs beside its own copy."""

    text: str
    policy_file: str
    policy_text: str
    seed: int
    limit_s: float
    figures: bool


@dataclass(frozen=True, slots=True)
class Delivery:
    """How it ended. `files`: the results folder, path below `<scenario>/<run>` -> content; `run` names that, empty: none."""

    status: int
    seconds: float
    error: str
    host: str
    run: str
    files: Mapping[str, bytes]


def perform(order: Order) -> Delivery:
    """Make the run in a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="mrc-testbed-", dir=_room()) as name:
        folder = Path(name)
        (folder / "member.yaml").write_text(order.text, encoding="utf-8")
        if order.policy_file:
            (folder / order.policy_file).parent.mkdir(parents=True, exist_ok=True)
            (folder / order.policy_file).write_text(order.policy_text, encoding="utf-8")
        log, out = folder / "log", folder / "out"
        done = children.run(folder / "member.yaml", order.seed, out, log, order.limit_s, figures=order.figures)
        run, files = "", dict[str, bytes]()
        if done.summary is not None:
            made = Path(done.summary["path"])
            run = made.relative_to(out.resolve()).as_posix()
            files = {file.relative_to(made).as_posix(): file.read_bytes() for file in made.rglob("*") if file.is_file()}
        return Delivery(int(done.status), done.seconds, done.error, platform.node(), run, files)


def describe(texts: Sequence[str]) -> dict[str, Any]:
    """This machine, as `look` sees it; `{"error": ...}` when it cannot be seen."""
    argv = [sys.executable, "-m", "testbed.run.remote"]
    asked = json.dumps(list(texts))
    done = subprocess.run(argv, input=asked, capture_output=True, text=True, cwd=ROOT, timeout=LOOK_S, check=False)
    if done.returncode:
        return {"error": done.stderr.strip()[-500:] or f"exit status {done.returncode}"}
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def look(texts: Sequence[str]) -> dict[str, Any]:
    """Source and versions, and what the machine lacks for these resolved scenarios."""
    from testbed.fabric import doctor
    from testbed.model import load

    missing = [str(one) for text in texts for one in doctor.missing(load.load_text(text, "scenario"))]
    return {
        "source": source(),
        "versions": provenance.versions(),
        "kernel": provenance.kernel(),
        "cpu": provenance.cpu(),
        "missing": list(dict.fromkeys(missing)),
    }


def source() -> str:
    """A digest of everything that decides what a run does."""
    digest = hashlib.sha256()
    for folder in SOURCES:
        for file in sorted((ROOT / folder).rglob("*")):
            if file.suffix in SUFFIXES and file.is_file():
                digest.update(f"{file.relative_to(ROOT)}\0".encode() + file.read_bytes())
    return digest.hexdigest()[:16]


def _room() -> str | None:
    """The worker's own directory, which dask clears when a worker has died."""
    try:
        from distributed import get_worker

        return str(get_worker().local_directory)
    except (ImportError, ValueError):
        return None


if __name__ == "__main__":
    print(json.dumps(look(json.load(sys.stdin))))
