"""A host process stays small and starts fast: what it imports, and its cost as a ratio to a bare interpreter."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.host_plans import pair_plan

ROOT = Path(__file__).resolve().parents[2]
# DESIGN section 8 asks for 150 ms and 25 MB, where a bare interpreter takes 11 ms and 8 MB. Compared is CPU time, not time
# on the wall. Measured: 6 to 7 times, 11 when other processes compete for the caches.
TIMES_AS_SLOW = 150 / 11
TIMES_AS_LARGE = 25 / 8


def test_only_the_standard_library_and_our_own_two_rooms_are_loaded() -> None:
    code = "import testbed.host.main, testbed.transport.mrc, sys, json; print(json.dumps(sorted(sys.modules)))"
    loaded = json.loads(
        subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    )
    bare = json.loads(
        subprocess.run(
            [sys.executable, "-c", "import sys, json; print(json.dumps(sorted(sys.modules)))"], check=True, capture_output=True
        ).stdout
    )
    roots = {name.partition(".")[0] for name in set(loaded) - set(bare)}
    assert roots - set(sys.stdlib_module_names) == {"testbed"}
    rooms = {".".join(name.split(".")[:2]) for name in loaded if name.startswith("testbed.")}
    assert rooms == {"testbed.host", "testbed.transport"}
    heavy = {
        "asyncio",
        "argparse",
        "logging",
        "ipaddress",
        "pathlib",
        "subprocess",
        "threading",
        "traceback",
        "multiprocessing",
    }
    assert not heavy & (set(loaded) - set(bare))


def cost(pid: int) -> tuple[int, int]:
    """(CPU time in ns, resident pages) of a process until now."""
    spent = int(Path(f"/proc/{pid}/schedstat").read_text().split()[0])
    return spent, int(Path(f"/proc/{pid}/statm").read_text().split()[1])


def bare_interpreter() -> tuple[int, int]:
    """What Python alone costs at its first statement."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        code = f"import os; os.write({theirs.fileno()}, b'x'); os.read({theirs.fileno()}, 1)"
        with subprocess.Popen([sys.executable, "-c", code], pass_fds=[theirs.fileno()]) as process:
            ours.recv(1)
            spent = cost(process.pid)
            ours.send(b"x")
    return spent


def host(directory: Path) -> tuple[int, int]:
    """What a host costs until it is ready."""
    plan = directory / "plan.json"
    settings = pair_plan(directory, 0, message=1 << 20, payload=4096, planes=4)
    for port in settings["ports"]:
        port["interface"] = "lo"  # its ports do not matter here, but must be there
    plan.write_text(json.dumps(settings))
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = str(directory / "cache")
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            command = [sys.executable, "-m", "testbed.host", "--plan", str(plan), "--control", str(theirs.fileno())]
            process = subprocess.Popen(command, pass_fds=[theirs.fileno()], cwd=ROOT, env=environment)
        with process:
            assert json.loads(ours.recv(65536))["type"] == "ready"
            spent = cost(process.pid)
            ours.send(b'{"type":"quit"}\n')
            assert json.loads(ours.recv(65536))["type"] == "bye"
    assert process.returncode == 0
    return spent


@pytest.mark.netns
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: a raw socket")
def test_a_host_is_ready_soon_and_small(tmp_path: Path) -> None:
    host(tmp_path)  # compiles what is not compiled yet
    ratios = []
    for _ in range(5):  # in turns, the best of some: what shares a core with us makes a second of it worth less
        bare = min(bare_interpreter() for _ in range(3))
        ours = min(host(tmp_path) for _ in range(3))
        assert ours[1] < TIMES_AS_LARGE * bare[1]
        ratios.append(ours[0] / bare[0])
        if ratios[-1] < TIMES_AS_SLOW:
            break
    assert min(ratios) < TIMES_AS_SLOW


@pytest.mark.parametrize(
    "arguments", [[], ["--help"], ["--plan", "x"], ["--plan", "x", "--control", "y"], ["--control", "1", "--x", "2"]]
)
def test_a_wrong_command_line_is_answered_with_the_usage(arguments: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "testbed.host", *arguments], cwd=ROOT, check=False, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert done.stderr.startswith("usage: python -m testbed.host --plan FILE --control FD")
