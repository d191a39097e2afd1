"""A host's ports lose their carriers and get them back: what the kernel tells, and what two real hosts make of it.

Functions without `test_` run inside the sandbox; their assertions come back as the exit status and standard error.
"""

from __future__ import annotations

import os
import select
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.host_pair import PairedHost, connect, finish, plan, start
from benchmarks.pair_network import build, inside, operstates, wait_working
from testbed.host.carrier import Carriers, of_ports
from testbed.transport.mrc.planes import PlaneCause, PlaneState
from tests.support.host_plans import read_records, until_placed

pytestmark = [
    pytest.mark.netns,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: network namespaces and raw sockets"),
]
PLANES = 4
IN_PORT_NS = 20_000_000  # far more than two frames take: what waits in a port when it dies has a departure time already
MESSAGE = 1 << 20
PATIENCE_S = 20.0  # only reached by a failure


def run_inside(function: Callable[[str], None], directory: Path) -> None:
    done = inside(f"{__name__}:{function.__name__}", str(directory))
    assert done.returncode == 0, done.stderr


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def two_ports() -> Carriers:
    """near0 and near1, planes 0 and 1; their far ends are here as well. Only near0 has a carrier."""
    for plane in (0, 1):
        ip("link", "add", f"near{plane}", "type", "veth", "peer", "name", f"far{plane}")
        ip("link", "set", f"near{plane}", "up")
    ip("link", "set", "far0", "up")
    wait_working("", "near0", "far0")  # told of at once in what follows, not in between
    return of_ports({"near0": 0, "near1": 1})


def wait(carriers: Carriers) -> list[tuple[int, bool]]:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        select.select([carriers.fileno()], [], [], deadline - time.monotonic())
        if found := carriers.changes():
            return found
    return []


def every_change_is_told(_directory: str) -> None:
    carriers = two_ports()
    assert wait(carriers) == [(1, False)], "down before anyone looked"
    ip("link", "set", "far1", "up")
    assert wait(carriers) == [(1, True)]
    ip("link", "set", "far0", "down")
    assert wait(carriers) == [(0, False)]
    ip("link", "set", "far0", "up")
    assert wait(carriers) == [(0, True)]
    ip("link", "set", "near0", "down")
    assert wait(carriers) == [(0, False)], "its own side counts too"
    ip("link", "set", "near0", "mtu", "1400")
    ip("link", "set", "far0", "alias", "other")
    ip("link", "set", "near1", "down")  # behind what must say nothing
    assert wait(carriers) == [(1, False)]


def missed_messages_are_asked_for_again(_directory: str) -> None:
    carriers = two_ports()
    assert wait(carriers) == [(1, False)]
    watched = socket.socket(fileno=os.dup(carriers.fileno()))
    watched.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)  # the least there is
    for number in range(40):
        ip("link", "set", "far0", "alias", f"{number}")
    ip("link", "set", "far0", "down")
    ip("link", "set", "far1", "up")
    for number in range(40):
        ip("link", "set", "far0", "alias", f"{number}")
    found = wait(carriers)
    if len(found) < 2:
        found += wait(carriers)
    assert sorted(found) == [(0, False), (1, True)]


def test_the_kernel_tells_every_change(tmp_path: Path) -> None:
    run_inside(every_change_is_told, tmp_path)


def test_messages_that_the_kernel_dropped_are_asked_for_again(tmp_path: Path) -> None:
    run_inside(missed_messages_are_asked_for_again, tmp_path)


def is_in_use_again(folder: Path) -> bool:
    """Port 1 was down and is up, and has sent data since; what a host has not written yet it writes twice a second."""
    ports = read_records(folder / "port_states.rec")
    sent = read_records(folder / "packets.rec")
    return len(ports) >= 2 and bool((sent["sent_ns"][sent["ev"] >> 16 == 1] > ports["t_ns"][1]).any())


def a_port_goes_and_comes(directory: str) -> None:
    build(1, PLANES)
    hosts = [PairedHost(Path(directory), index, plan(Path(directory), index, message=MESSAGE)) for index in (0, 1)]
    connect(hosts)
    start(hosts)
    for host in hosts:
        until_placed(host, 1)
    ip("-n", "b0", "link", "set", "a1", "down")  # h0's port 1 sees its carrier go, and so does h1's, administratively
    until(lambda: operstates("a0", "b1") != ["UP"])
    for host in hosts:
        until_placed(host, MESSAGE)
    ip("-n", "b0", "link", "set", "a1", "up")
    wait_working("b0", "a1")  # what a port that is set down loses comes back later than its carrier; until then nothing passes
    for words in (
        "address add 5f00:1:4001::/128 dev a1 nodad",
        "neighbour replace fe80::1 lladdr 02:00:00:00:00:02 nud permanent dev a1",
        "route add 5f00:1::/32 via fe80::1 dev a1 src 5f00:1:4001::",
    ):
        ip("-6", "-n", "b0", *words.split())
    for host in hosts:
        until(lambda host=host: is_in_use_again(host.records))  # type: ignore[misc]
    for counters in finish(hosts):
        assert counters["messages_corrupt"] == 0
        assert counters["messages_completed"] > 3
        assert counters["port_updates"] >= 2 * (PLANES - 1)


def test_two_hosts_lose_a_port_and_lose_no_message(tmp_path: Path) -> None:
    run_inside(a_port_goes_and_comes, tmp_path)
    for index in (0, 1):
        folder = tmp_path / f"h{index}"
        ports = read_records(folder / "port_states.rec")
        assert ports[["plane", "up"]].tolist() == [(1, 0), (1, 1)]
        planes = read_records(folder / "plane_states.rec")
        assert set(planes["plane"]) == {1}
        assert planes["before"][0] == PlaneState.OPEN
        assert planes["after"][0] in (PlaneState.HERE_DOWN, PlaneState.THERE_DOWN)
        assert {PlaneCause.PORT_DOWN, PlaneCause.PORT_UP} <= set(planes["reason"])
        assert planes["after"][-1] == PlaneState.OPEN
        down, up = (int(row["t_ns"]) for row in ports)
        packets = read_records(folder / "packets.rec")
        sent = packets[packets["ev"] >> 16 == 1]["sent_ns"]
        assert not ((sent > down + IN_PORT_NS) & (sent < up)).any()
        assert (sent > up).any()
