"""Host processes over real raw sockets, two namespaces back to back: traffic, ends of all kinds, the wire itself.

Functions without `test_` run inside the sandbox; their assertions come back as the exit status and standard error.
"""

from __future__ import annotations

import os
import resource
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.host_pair import PairedHost, connect, finish, plan, start
from benchmarks.pair_network import build, enter, inside
from testbed.fabric.sandbox import run_in_sandbox
from tests.support.host_plans import LATEST_S, read_records, until_placed
from tests.support.machine import Witness

pytestmark = [
    pytest.mark.netns,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: network namespaces and raw sockets"),
]

PLANES = 4
ETH_P_ALL = 3  # what goes out is shown only to a socket that asks for everything
ETH_P_IPV6 = 0x86DD


def run_inside(function: Callable[[str], None], directory: Path) -> None:
    done = inside(f"{__name__}:{function.__name__}", str(directory))
    assert done.returncode == 0, done.stderr


def pair(directory: Path, **settings: Any) -> list[PairedHost]:
    build(1, PLANES)
    hosts = [PairedHost(directory, index, plan(directory, index, **settings)) for index in (0, 1)]
    connect(hosts)
    return hosts


def messages_are_delivered(directory: str) -> None:
    hosts = pair(Path(directory), message=300_001)
    hosts[0].tell(type="calibrate", flow=0, count=8)
    assert {entry["plane"] for entry in hosts[0].hear("calibrated")["rtts"]} == set(range(PLANES))
    start(hosts)
    for host in hosts:
        until_placed(host, 5 * 300_001)
    for counters in finish(hosts):
        assert counters["messages_completed"] > 3
        assert counters["messages_corrupt"] == 0
        assert counters["receive_buffer_drops"] == 0
        assert counters["dropped_icrc"] == 0


def test_messages_are_delivered_and_recorded(tmp_path: Path) -> None:
    run_inside(messages_are_delivered, tmp_path)
    for index in (0, 1):
        records = {path.stem: read_records(path) for path in (tmp_path / f"h{index}").glob("*.rec")}
        messages = records["messages"]
        assert set(messages["verdict"]) == {1}
        sent = messages[messages["role"] == 0]
        assert sent["message"].tolist() == list(range(len(sent)))
        packets = records["packets"]
        assert set(packets["ev"] >> 16) == set(range(PLANES))
        acknowledged = packets[packets["fate"] == 1]
        payload = acknowledged["bytes"].sum() - (8 * 4096 if index == 0 else 0)  # less the calibration's
        assert payload == sent["bytes"].sum()
        other = read_records(tmp_path / f"h{1 - index}" / "received.rec")
        assert other[(other["flags"] & 2) == 0]["bytes"].sum() == acknowledged["bytes"].sum()
        assert (records["samples"]["t_ns"] > 0).all()
        assert len(records["loop"]) >= 5


def handed_a_high_descriptor(directory: str) -> None:
    """As a runner does that holds a descriptor for each of a thousand nodes: beyond what select can watch (FD_SETSIZE)."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    held = [os.dup(0) for _ in range(1100)]
    hosts = pair(Path(directory))
    assert hosts[0].channel.fileno() > max(held) > 1024
    start(hosts)
    for host in hosts:
        until_placed(host, 1)
    for counters in finish(hosts):
        assert counters["messages_completed"] > 0
    assert run_in_sandbox(lambda: 3) == 3  # its hand-shake too


def test_a_runner_with_more_than_1024_descriptors(tmp_path: Path) -> None:
    run_inside(handed_a_high_descriptor, tmp_path)


def all_packets_of_a_lossy_wire(directory: str) -> None:
    """The receiver's port on plane 2 goes away for a while and comes back, without its route."""
    hosts = pair(Path(directory), message=300_001)
    start(hosts)
    until_placed(hosts[1], 300_001)
    subprocess.run([*enter("b", 0), "ip", "link", "set", "a2", "down"], check=True)
    until_placed(hosts[1], 300_001)
    subprocess.run([*enter("b", 0), "ip", "link", "set", "a2", "up"], check=True)
    until_placed(hosts[1], 300_001)
    sender, receiver = finish(hosts)
    assert sender["messages_corrupt"] == receiver["messages_corrupt"] == 0
    assert receiver["port_updates"] > 0  # told while its port was down; what was in flight on it at that moment may be nothing
    assert receiver["wire_dropped_unreachable_plane2"] > 0  # b's own port went down: its route is gone


def test_a_port_that_goes_down_is_counted_and_not_fatal(tmp_path: Path) -> None:
    run_inside(all_packets_of_a_lossy_wire, tmp_path)


def killed(directory: str) -> None:
    hosts = pair(Path(directory))
    start(hosts)
    with Witness() as witness:
        time.sleep(2.2)
        hosts[0].process.kill()
        at = time.monotonic_ns()
    hosts[0].process.wait()
    (Path(directory) / "killed_at").write_text(f"{at} {int(witness.worst_s * 1e9)}")
    time.sleep(0.3)
    assert hosts[1].process.poll() is None


def test_records_reach_to_within_a_second_of_a_sigkill(tmp_path: Path) -> None:
    run_inside(killed, tmp_path)
    at, held_up = map(int, (tmp_path / "killed_at").read_text().split())  # a machine that stands still records nothing
    for table, column in (("packets", "fate_ns"), ("received", "placed_ns"), ("samples", "t_ns"), ("loop", "t_ns")):
        assert at - int(read_records(tmp_path / "h0" / f"{table}.rec")[column].max()) < 1_000_000_000 + held_up, table


def terminated(directory: str) -> None:
    hosts = pair(Path(directory))
    start(hosts)
    until_placed(hosts[1], 1)
    hosts[0].process.send_signal(signal.SIGINT)  # ignored
    until_placed(hosts[1], 1 << 20)
    assert hosts[0].process.poll() is None
    hosts[0].process.send_signal(signal.SIGTERM)
    assert hosts[0].process.wait(LATEST_S) == 143
    time.sleep(0.3)  # what it sent last is still placed
    hosts[1].process.send_signal(signal.SIGTERM)
    assert hosts[1].process.wait(LATEST_S) == 143


def test_sigterm_flushes_everything_and_sigint_is_ignored(tmp_path: Path) -> None:
    run_inside(terminated, tmp_path)
    packets = read_records(tmp_path / "h0" / "packets.rec")
    received = read_records(tmp_path / "h1" / "received.rec")
    assert len(received) > 0
    assert set(received["psn"]) <= set(packets["psn"])  # nothing that had left is missing
    messages = read_records(tmp_path / "h0" / "messages.rec")
    assert 0 in messages["verdict"]  # what was under way is there, as incomplete


def abandoned(directory: str) -> None:
    hosts = pair(Path(directory))
    start(hosts)
    time.sleep(0.3)
    hosts[0].channel.close()
    assert hosts[0].process.wait(LATEST_S) == 1


def test_a_host_ends_when_its_runner_does(tmp_path: Path) -> None:
    run_inside(abandoned, tmp_path)


def disk_fills(directory: str) -> None:
    small = Path(directory) / "h0"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=192k", "tmpfs", str(small)], check=True)
    hosts = pair(Path(directory))
    start(hosts)
    error = hosts[0].hear("error", LATEST_S)
    assert "no space left for the records of this run" in error["message"]
    assert hosts[0].process.wait(LATEST_S) == 1


def test_a_full_disk_is_told_and_ends_the_host(tmp_path: Path) -> None:
    run_inside(disk_fills, tmp_path)


def errors(directory: str) -> None:
    build(1, PLANES)
    path = Path(directory)
    settings = plan(path, 0)
    settings["transport"]["colour"] = "red"
    host = PairedHost(path, 0, settings)
    message = host.hear("error")["message"]
    assert "the mrc transport does not take this configuration" in message
    assert "colour" in message
    assert host.process.wait(LATEST_S) == 1

    host = PairedHost(path, 0, plan(path, 0))
    host.hear("ready")
    host.tell(type="dance")
    assert host.hear("error") == {"type": "error", "message": "unknown message 'dance'"}
    assert host.process.wait(LATEST_S) == 1
    assert "Traceback" in host.log.read_text()


def test_errors_are_told_in_one_line(tmp_path: Path) -> None:
    run_inside(errors, tmp_path)


def outer_headers(directory: str) -> None:
    """Read the outer header of every frame on plane 3 with a packet socket; a host sends calibration writes there."""
    path = Path(directory)
    build(1, PLANES)
    # A packet socket must be opened inside the namespace it watches.
    with Path("/run/netns/b0").open("rb") as namespace, Path("/proc/self/ns/net").open("rb") as home:
        _setns(namespace.fileno())
        watch = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(ETH_P_ALL))
        watch.bind(("a3", ETH_P_ALL))
        _setns(home.fileno())
    hosts = [PairedHost(path, index, plan(path, index)) for index in (0, 1)]
    connect(hosts)
    hosts[0].tell(type="calibrate", flow=0, count=8)
    hosts[0].hear("calibrated")
    watch.setblocking(False)
    seen = set()
    with watch:
        while True:
            try:
                frame, address = watch.recvfrom(10_000)
            except BlockingIOError:
                break
            if address[1] != ETH_P_IPV6 or frame[6] != 41:
                continue
            word, length = struct.unpack_from(">IH", frame)
            assert length == len(frame) - 40
            target = socket.inet_ntop(socket.AF_INET6, frame[24:40])
            outgoing = address[2] == socket.PACKET_OUTGOING
            assert (word & 0xFFFFF, target) == (3, "5f00:3:4000::" if outgoing else "5f00:3:4001::")
            seen.add((outgoing, length > 4096, word >> 20 & 0xFF))
    data = 4 << 2 | 2  # trimmable, ECN-capable
    control = 46 << 2
    again = {(False, True, 8 << 2 | 2), *((out, False, tclass) for out in (False, True) for tclass in (2, control))}
    assert {(False, True, data), (True, False, control)} <= seen
    assert seen <= {(False, True, data), *again}, "what a host that was held up repeats, and its probes"


def _setns(descriptor: int) -> None:
    import ctypes

    assert ctypes.CDLL(None, use_errno=True).setns(descriptor, 0) == 0


def test_flow_label_and_class_are_on_the_wire(tmp_path: Path) -> None:
    run_inside(outer_headers, tmp_path)
