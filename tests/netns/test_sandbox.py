"""The sandbox gives its body namespaces of its own, its signals, its exit status, and leaves nothing, whatever ends it."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from testbed.errors import ExitStatus, KernelError
from testbed.fabric.sandbox import run_in_sandbox
from tests.support.machine import Certain

pytestmark = [pytest.mark.netns, pytest.mark.skipif(os.geteuid() != 0, reason="needs root")]

# An outer process that brings up a small fabric inside a sandbox, tells which namespaces it has, and waits.
OUTER = """
import os, sys, time
from pathlib import Path
from testbed.fabric.sandbox import run_in_sandbox
from tests.netns import kit

def main():
    try:
        with kit.fabric(delay_ns=(1_000_000,)) as net:
            net.spawn("h0", ["sleep", "1000"])
            spaces = {os.readlink(f"/proc/self/ns/{kind}") for kind in ("net", "mnt", "pid", "ipc", "uts")}
            print(*spaces, flush=True)
            time.sleep(1000)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        raise
    return 0

sys.exit(run_in_sandbox(main))
"""


KINDS = ("net", "mnt", "pid", "ipc", "uts")


def own_namespaces() -> dict[str, str]:
    return {kind: str(Path("/proc/self/ns", kind).readlink()) for kind in KINDS}


def outside() -> tuple[str, str, list[str]]:
    """Interfaces, mounts and named namespaces of this process's own namespaces."""
    interfaces = Path("/proc/net/dev").read_text().splitlines()
    names = " ".join(sorted(line.split(":")[0].strip() for line in interfaces if ":" in line))
    netns = Path("/run/netns")
    return names, Path("/proc/self/mountinfo").read_text(), sorted(path.name for path in netns.glob("*"))


def inhabitants(spaces: set[str]) -> set[tuple[str, str]]:
    """(pid, start time) of every process in one of these namespaces. Numbers of dead namespaces are used again, so compare."""
    found = set()
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                here = {str((process / "ns" / kind).readlink()) for kind in KINDS}
                started = (process / "stat").read_text().rsplit(")", 1)[1].split()[19]
            except OSError:
                continue
            if here & spaces:
                found.add((process.name, started))
    return found


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_stays_behind(number: signal.Signals) -> None:
    before = outside()
    outer = subprocess.Popen([sys.executable, "-c", OUTER], stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert outer.stdout is not None
    spaces = set(outer.stdout.readline().split())
    inside = inhabitants(spaces)
    assert len(spaces) == 5
    assert len(inside) >= 4  # the helper, PID 1, the body, the spawned process
    outer.send_signal(number)
    rest, _ = outer.communicate(timeout=60)
    deadline = time.monotonic() + 30
    while inside & inhabitants(spaces) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not inside & inhabitants(spaces)
    assert outside() == before
    if number is signal.SIGKILL:
        assert outer.returncode == -signal.SIGKILL
    else:
        assert (outer.returncode, rest.strip()) == (ExitStatus.INTERRUPTED, "interrupted")


def test_a_terminals_ctrl_c_arrives_once() -> None:
    """The terminal sends it to the whole foreground group; forwarding it too would interrupt the clean-up."""
    program = """
import sys, time
from testbed.fabric.sandbox import run_in_sandbox

def main():
    count, said, end = 0, False, time.monotonic() + 60
    while time.monotonic() < end:
        try:
            if not said:
                said = True
                print("ready", flush=True)
            time.sleep(max(0, end - time.monotonic()))
        except KeyboardInterrupt:
            count += 1
            end = min(end, time.monotonic() + 0.5)  # for a second one
    print("interrupts:", count, flush=True)
    return 0

sys.exit(run_in_sandbox(main))
"""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(sys.executable, [sys.executable, "-c", program])
    said = b""
    while b"ready" not in said:
        said += os.read(terminal, 1024)
    os.write(terminal, b"\x03")
    while not re.search(rb"interrupts: \d", said):
        said += os.read(terminal, 1024)
    os.waitpid(pid, 0)
    os.close(terminal)
    assert b"interrupts: 1" in said


def test_exit_status_comes_back() -> None:
    def killed() -> int:
        os.kill(os.getpid(), signal.SIGKILL)
        return 0

    def fails() -> int:
        raise KernelError("p0t0-0", "route add", "no such device")

    assert run_in_sandbox(lambda: 7) == 7
    assert run_in_sandbox(lambda: sys.exit(3)) == 3
    assert run_in_sandbox(fails) == ExitStatus.BROKEN
    assert run_in_sandbox(killed) == 128 + signal.SIGKILL


def test_own_namespaces_and_nothing_changed_outside() -> None:
    keys = ("net/ipv6/conf/all/forwarding", "net/ipv6/conf/default/accept_ra", "net/core/rmem_max", "kernel/pid_max")
    before = {key: Path("/proc/sys", key).read_text() for key in keys}
    mine = own_namespaces()

    def main() -> int:
        theirs = own_namespaces()
        Path("/proc/sys/net/ipv6/conf/all/forwarding").write_text("1")
        numbers = [int(path.name) for path in Path("/proc").glob("[0-9]*")]
        return 0 if all(theirs[kind] != mine[kind] for kind in mine) and max(numbers) < 50 else 1

    assert run_in_sandbox(main) == 0
    assert {key: Path("/proc/sys", key).read_text() for key in keys} == before
    assert own_namespaces() == mine


def test_orphans_are_reaped(sandbox: Callable[[Callable[[], None]], None]) -> None:
    def body() -> None:
        subprocess.run(["sh", "-c", "sleep 0.05 & sleep 0.06 & exit 0"], check=True)
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            states = [path.read_text().rsplit(")", 1)[1].split()[0] for path in Path("/proc").glob("[0-9]*/stat")]
            if len(states) == 2:  # PID 1 and this process
                return
            time.sleep(0.02)
        raise AssertionError(states)

    sandbox(body)


def test_in_a_steady_test_only_an_assertion_may_be_the_machines_doing(
    sandbox: Callable[[Callable[[], None]], None], steady: Callable[[Callable[[], None]], None]
) -> None:
    def wrong() -> None:
        assert 5 < 3

    def broken() -> None:
        raise KernelError("h0", "route", "no such device")

    with pytest.raises(pytest.fail.Exception, match="5 < 3"):
        sandbox(wrong)
    for fixture in (sandbox, steady):
        with pytest.raises(Certain, match="no such device"):
            fixture(broken)
