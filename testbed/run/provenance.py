"""What a manifest says about where a run happened: versions, machine, command, source."""

from __future__ import annotations

import hashlib
import os
import platform
import shlex
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from testbed.fabric.bgp import version as frr_version
from testbed.venv import ROOT

PACKAGES = ("mininet", "pyroute2", "iperf3", "PyYAML", "numpy", "scipy", "pandas", "pyarrow", "matplotlib", "Jinja2")


def versions() -> dict[str, str]:
    """Everything whose version can change a result. A missing package is left out."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    if frr := frr_version():
        found["frr"] = frr
    found["iproute2"] = _output(["ip", "-V"]).partition("iproute2-")[2].partition(",")[0]
    return found


def kernel() -> str:
    return f"{os.uname().release} {os.uname().version}"


def cpu() -> dict[str, str | int]:
    """Model name and number of cores this process may use."""
    model = platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    return {"model": model, "cores": len(os.sched_getaffinity(0))}


def git() -> dict[str, str | bool]:
    """Commit and whether the tree differs from it; empty outside a checkout."""
    commit = _output(_git("rev-parse", "HEAD"))
    if not commit:
        return {}
    return {"commit": commit, "dirty": bool(_output(_git("status", "--porcelain", "--untracked-files=no")))}


def command() -> str:
    return shlex.join(sys.argv)


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _git(*arguments: str) -> list[str]:
    # As root in a user's checkout git would refuse to read it.
    # Without a lock it only looks: it would else write what it finds out of the files into the checkout's index.
    return ["git", "--no-optional-locks", "-c", f"safe.directory={ROOT}", "-C", str(ROOT), *arguments]


def _output(argv: list[str]) -> str:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
