"""What a run could leave behind: the machine's interfaces, named namespaces and mounts, and this tree's own processes."""

from __future__ import annotations

import os
import subprocess
import time
from dataclasses import dataclass, replace
from pathlib import Path

SETTLE_S = 30.0
SYSCTLS = (
    "net/ipv6/conf/all/forwarding",
    "net/ipv6/conf/all/seg6_enabled",
    "net/ipv6/conf/default/accept_ra",
    "net/ipv6/neigh/default/gc_thresh3",
    "net/ipv6/fib_multipath_hash_policy",
    "net/core/rmem_max",
    "net/core/wmem_max",
    "kernel/pid_max",
    "kernel/sched_rt_runtime_us",
)


@dataclass(frozen=True)
class Inventory:
    """Compared as a whole, before and after. Only what concerns this tree: other work on the machine may come and go."""

    interfaces: frozenset[str]
    named_namespaces: frozenset[str]
    mounts: frozenset[str]
    processes: frozenset[int]


def take(root: Path) -> Inventory:
    links = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True).stdout
    named = subprocess.run(["ip", "netns"], capture_output=True, text=True, check=True).stdout
    return Inventory(
        frozenset(line.split(":")[1].strip() for line in links.splitlines()),
        frozenset(named.split()),
        frozenset(line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()),
        frozenset(int(process.name) for process in _processes() if _is_ours(process, root)),
    )


def sysctls() -> dict[str, str]:
    """The machine's own network settings that a fabric could be tempted to change."""
    return {str(path): path.read_text() for name in SYSCTLS for path in [Path("/proc/sys", name)] if path.exists()}


def settled(before: Inventory, root: Path) -> Inventory:
    """The inventory once it equals `before`, or after a few seconds: the kernel ends namespaces in its own time.

    A process that was there before and has ended since is no difference.
    """
    deadline = time.monotonic() + SETTLE_S
    while True:
        now = take(root)
        now = replace(now, processes=now.processes | before.processes)
        if now == before or time.monotonic() > deadline:
            return now
        time.sleep(0.1)


def namespaces(pids: list[int]) -> frozenset[str]:
    """The network and mount namespaces these processes are in, without this process's own."""
    own = {_link(Path(f"/proc/self/ns/{kind}")) for kind in ("net", "mnt")}
    return frozenset(_link(Path(f"/proc/{pid}/ns/{kind}")) for pid in pids for kind in ("net", "mnt")) - own - {""}


def rights(pid: int) -> tuple[str, int, bool]:
    """Of a process: its user ids; its capabilities, effective or at its disposal; whether it can never gain more."""
    said = dict(line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":\t" in line)
    return said["Uid"], int(said["CapEff"], 16) | int(said["CapPrm"], 16), said["NoNewPrivs"] == "1"


def listeners(pids: list[int]) -> list[str]:
    """Sockets by which these processes could be reached at the machine's own addresses: the lines of /proc/net they are in."""
    here = _link(Path("/proc/self/ns/net"))
    mine = [pid for pid in pids if _link(Path(f"/proc/{pid}/ns/net")) == here]
    held = {_link(file) for pid in mine for file in Path(f"/proc/{pid}/fd").glob("*")}
    tables = [Path("/proc/net", name) for name in ("tcp", "tcp6", "udp", "udp6", "raw", "raw6", "packet")]
    return [
        f"{table}: {line}"
        for table in tables
        if table.exists()
        for line in table.read_text().splitlines()[1:]
        if f"socket:[{line.split()[8 if table.name == 'packet' else 9]}]" in held
    ]


def inhabited(wanted: frozenset[str]) -> frozenset[str]:
    """Which of these namespaces some process still is in, or `ip netns` still names."""
    return namespaces([int(process.name) for process in _processes()]) & wanted


def _processes() -> list[Path]:
    return [entry for entry in Path("/proc").iterdir() if entry.name.isdecimal() and int(entry.name) != os.getpid()]


def _link(path: Path) -> str:
    try:
        return str(path.readlink())
    except OSError:  # it has ended since, or is a kernel thread
        return ""


def _is_ours(process: Path, root: Path) -> bool:
    try:
        words = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
        here = (process / "cwd").readlink() == root
    except OSError:
        return False
    return str(root / "run_experiment.py") in words or (here and "testbed.host" in words)
