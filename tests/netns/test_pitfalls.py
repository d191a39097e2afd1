"""Pitfalls (H-...) of such testbeds that concern rates, sizes, tables and descriptors, where no other file here has them."""

from __future__ import annotations

import errno
import json
import mmap
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from testbed.fabric import queues, srv6
from testbed.fabric.bpf.loader import Array
from testbed.fabric.netlink import Netlink
from testbed.fabric.network import Fabric
from testbed.fabric.verify import verify
from testbed.model import usid
from testbed.model.codepoints import Dscp
from tests.netns import kit
from tests.netns.footprint import EXACT, Footprint, footprint

pytestmark = pytest.mark.netns
Sandbox = Callable[[Callable[[], None]], None]
MBIT = 1_000_000
IPV6_MTU_DISCOVER = 23


def inner_routes(net: Fabric) -> None:
    """One path for h0 and h1, routed on the hosts' inner addresses: uSIDs would break the pseudo-header of TCP and UDP."""
    for node, neighbour, host in (
        ("h0", "p0t0-0", 1), ("p0t0-0", "p0t1-0", 1), ("p0t1-0", "p0t0-1", 1), ("p0t0-1", "h1", 1),
        ("h1", "p0t0-1", 0), ("p0t0-1", "p0t1-0", 0), ("p0t1-0", "p0t0-0", 0), ("p0t0-0", "h0", 0),
    ):  # fmt: skip
        info = next(port for port in net.ports if (port.node, port.neighbour) == (node, neighbour))
        way = f"ip -6 route add {usid.inner_address(host)}/128 via fe80::{info.peer:x} dev {info.name}"
        with net.namespaces.inside(node):
            subprocess.run(way.split(), check=True)


@pytest.mark.parametrize("rate_mbps", [1, 100, 1000, 1001, 2500, 10_000])
def test_h04_any_rate_is_read_back_at_both_ends(sandbox: Sandbox, rate_mbps: int) -> None:
    """By iproute2, not by our own reader; and the virtual queue's rate beside it."""

    def body() -> None:
        with kit.fabric((1, 2, 1, 1), rate_mbps * MBIT) as net:
            memory: Array = kit.settings(net)
            for link in net.topology.links:
                for port in (link.lower, link.upper):
                    with net.namespaces.inside(port.node):
                        command = ["tc", "-j", "qdisc", "show", "dev", port.name, "root"]
                        shown = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
                    assert shown[0]["kind"] == "tbf"
                    assert shown[0]["options"]["rate"] == rate_mbps * MBIT // 8
                    assert memory.get(port.ifindex, "rate") == rate_mbps * MBIT // 8

    sandbox(body)


def test_h05_the_burst_grows_with_the_rate(sandbox: Sandbox) -> None:
    """One frame and a half when slow; one frame and 1 ms of the rate when fast. No quantum: there is no HTB."""
    frame = queues.full_frame(kit.links(1, (0,)))
    bursts = [queues.shaper_at(rate * MBIT, kit.links(1, (0,))).burst for rate in (1, 10, 100, 1000, 10_000)]
    assert bursts == sorted(bursts)
    assert bursts[0] == frame + frame // 2
    assert bursts[-1] == frame + 1_250_000

    def body() -> None:
        with kit.fabric((1, 2, 1, 1), 1000 * MBIT, 100 * MBIT) as net, Netlink(net.namespaces, "p0t0-0") as link:
            found = {shaper.rate_bps: shaper.burst for shaper in queues.read(link).values()}
            assert found[1000 * MBIT] > found[100 * MBIT]

    sandbox(body)


def test_h05_the_kernel_complains_of_no_rate(sandbox: Sandbox) -> None:
    """All links at 1, 100 and 1000 Mbit/s: not a word about a qdisc, a quantum or a burst in the kernel's log."""

    def body() -> None:
        log = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
        try:
            os.lseek(log, 0, os.SEEK_END)
            for rate in (1, 100, 1000):
                with kit.fabric((1, 2, 1, 1), rate * MBIT):
                    pass
            said = []
            with suppress(BlockingIOError):
                while True:
                    said.append(os.read(log, 8192).decode(errors="replace").lower())
        finally:
            os.close(log)
        assert not [line for line in said if any(word in line for word in ("quantum", "burst", "tbf", "sch_", "qdisc"))]

    sandbox(body)


@pytest.mark.skipif(shutil.which("iperf3") is None, reason="needs iperf3")
def test_h05_one_tcp_flow_fills_a_slow_uplink_behind_a_fast_host_link(sandbox: Sandbox) -> None:
    """1 Gbit/s into 100 Mbit/s: at least 90 % of the bottleneck, the best of some tries. Plain IPv6 over host routes."""

    def body() -> None:
        with kit.fabric((1, 2, 1, 1), 1000 * MBIT, 100 * MBIT) as net:
            inner_routes(net)
            server = net.spawn("h1", ["iperf3", "-s", "-B", str(usid.inner_address(1))], stdout=subprocess.DEVNULL)
            best = 0.0
            for _ in range(6):
                client = [
                    "iperf3",
                    "-J",
                    "-t",
                    "2",
                    "-O",
                    "1",
                    "-B",
                    str(usid.inner_address(0)),
                    "-c",
                    str(usid.inner_address(1)),
                ]
                with net.namespaces.inside("h0"):
                    done = subprocess.run(client, capture_output=True, text=True, timeout=20, check=False)
                received = {} if done.returncode else json.loads(done.stdout)["end"].get("sum_received", {})
                if not received:
                    time.sleep(1)  # the server does not listen yet, or was not heard from at the end
                    continue
                best = max(best, received["bits_per_second"] / (100 * MBIT))
                if best >= 0.9:
                    break
            print(f"one TCP flow: {best:.3f} of the bottleneck")
            assert best >= 0.9
            assert server.poll() is None

    sandbox(body)


def test_h08_sizes_up_to_the_mtu_pass_over_srv6_on_every_plane_and_larger_ones_are_refused(sandbox: Sandbox) -> None:
    def body() -> None:
        with kit.fabric((2, 2, 1, 1)) as net, kit.raw(net, "h0") as source, kit.raw(net, "h1") as target:
            largest = kit.MTU - kit.OUTER
            source.setsockopt(socket.IPPROTO_IPV6, IPV6_MTU_DISCOVER, 2)  # IPV6_PMTUDISC_DO: never a fragment
            for plane in range(2):
                for size in (*range(100, largest, 400), largest - 1, largest):
                    kit.send(source, kit.path(net, 0, 1, plane), bytes(size))
                    assert len(kit.receive(target)[0]) == size
                with pytest.raises(OSError, match="Message too long") as refused:
                    kit.send(source, kit.path(net, 0, 1, plane), bytes(largest + 1))
                assert refused.value.errno == errno.EMSGSIZE

    sandbox(body)


def test_h08_bulk_tcp_with_the_full_mtu_neither_stalls_nor_fragments(sandbox: Sandbox) -> None:
    """4 MB in segments of MTU - 60 bytes, over host routes; IPv6 fragments made and needed on the way: none."""
    amount = 4 << 20

    def fragments(net: Fabric, node: str) -> list[int]:
        with net.namespaces.inside(node):
            lines = Path("/proc/thread-self/net/snmp6").read_text().splitlines()
        return [int(line.split()[1]) for line in lines if line.startswith(("Ip6Frag", "Ip6Reasm", "Ip6InTooBig"))]

    def body() -> None:
        with kit.fabric((1, 2, 1, 1), 100 * MBIT) as net:
            inner_routes(net)
            with net.namespaces.inside("h1"):
                server = socket.create_server((str(usid.inner_address(1)), 5001), family=socket.AF_INET6)
            with net.namespaces.inside("h0"):
                client = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
            with server, client:
                client.settimeout(kit.LATEST_S)
                client.bind((str(usid.inner_address(0)), 0))
                client.connect((str(usid.inner_address(1)), 5001))
                taken, _ = server.accept()
                with taken:
                    taken.settimeout(kit.LATEST_S)
                    assert client.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG) >= kit.MTU - 60 - 12  # less timestamps
                    sender = threading.Thread(target=client.sendall, args=(bytes(amount),))
                    sender.start()
                    left = amount
                    while left:
                        left -= len(taken.recv(1 << 16))
                    sender.join()
            assert not any(sum(fragments(net, node)) for node in net.plans)

    sandbox(body)


def test_h09_more_than_1024_permanent_neighbours(sandbox: Sandbox) -> None:
    """4 planes of 16 T0 and 16 T1: 2 x (1,024 + 64) entries, all permanent, counted before and found after."""

    def body() -> None:
        with kit.fabric((4, 16, 16, 1)) as net:
            planned = sum(len(plan.neighbours) for plan in net.plans.values())
            assert planned == 2 * len(net.topology.links) == 2 * (4 * 16 * 16 + 4 * 16)
            found = 0
            for node in net.plans:
                with Netlink(net.namespaces, node) as link:
                    found += len(srv6.read_neighbours(link))
            assert found == planned > 1024
            report = verify(net, net.topology)
            assert report.problems == []

    sandbox(body)


@pytest.mark.skipif(shutil.which("ethtool") is None, reason="needs ethtool")
@pytest.mark.parametrize(("offloads", "batch"), [("off", 1), ("off", 10), ("on", 1), ("on", 10)])
def test_h18_real_udp_through_a_trimming_port_breaks_no_checksum(sandbox: Sandbox, offloads: str, batch: int) -> None:
    """Checksums and UDP_SEGMENT batches from the kernel, offloads too: cut packets are too short for UDP, never wrong."""

    def udp(net: Fabric) -> dict[str, int]:
        with net.namespaces.inside("h1"):
            lines = Path("/proc/thread-self/net/snmp6").read_text().splitlines()
        return {name: int(value) for name, value in (line.split() for line in lines) if name.startswith("Udp6")}

    def body() -> None:
        with kit.fabric((1, 2, 1, 1), 400 * MBIT, 50 * MBIT, spec=kit.switch(trimming=True)) as net:
            inner_routes(net)
            if offloads == "on":
                for port in net.ports:
                    with net.namespaces.inside(port.node):
                        subprocess.run(["ethtool", "-K", port.name, "tx", "on", "gso", "on"], check=True, capture_output=True)
            with net.namespaces.inside("h0"):
                source = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
            with net.namespaces.inside("h1"):
                target = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
            with source, target:
                target.setsockopt(socket.SOL_SOCKET, kit.SO_RCVBUFFORCE, 1 << 24)
                target.bind((str(usid.inner_address(1)), 4793))
                source.bind((str(usid.inner_address(0)), 4793))
                source.setsockopt(17, 103, 1400)  # SOL_UDP, UDP_SEGMENT
                source.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS, Dscp.TRIMMABLE << 2)
                for _ in range(600 // batch):
                    source.sendto(os.urandom(1400 * batch), (str(usid.inner_address(1)), 4793))
                trimming, arrived = ("p0t0-0", "p0t1-0"), list[bytes]()

                def all_is_there() -> bool:
                    with suppress(TimeoutError):
                        while True:
                            arrived.append(target.recv(2048))
                    trimmed = kit.counters(net)[trimming].trimmed
                    return trimmed > 10 if offloads == "on" else len(arrived) == 600 - trimmed  # a batch is cut as one

                target.settimeout(0.3)
                assert kit.wait_until(all_is_there)
                count = kit.settled_counters(net) if offloads == "off" else kit.counters(net)
                seen = udp(net)
            assert sum(port.helper_failures + port.dropped_queue for port in count.values()) == 0
            assert sum(port.trimmed for port in count.values()) > 10
            assert offloads == "on" or all(port.packets == port.delivered_packets for port in count.values())
            assert seen["Udp6InCsumErrors"] == 0
            if offloads == "off":
                assert len(arrived) == seen["Udp6InDatagrams"] == 600 - count[trimming].trimmed

    sandbox(body)


@pytest.mark.parametrize("cycles", [20, pytest.param(200, marks=pytest.mark.skipif("not os.environ.get('ALL_CYCLES')"))])
def test_h11_build_and_tear_down_leak_nothing(cycles: int) -> None:
    """One process of 256 descriptors: all it holds is as after the first cycles. `make test-cycles` does 200."""
    command = [sys.executable, "-m", "tests.netns.footprint", str(cycles)]
    done = subprocess.run(command, env={**os.environ, **EXACT}, stdout=subprocess.PIPE, text=True, check=True)
    before, after = (Footprint(**values) for values in json.loads(done.stdout))
    print(f"{cycles} cycles: {before} -> {after}")
    assert not before.grown(after)


def test_h11_the_footprint_sees_what_a_cycle_could_leave() -> None:
    """Of a page of memory, a descriptor and a mapping per cycle, 20 cycles show every one."""
    before = footprint()
    kept = [(bytearray(4096), os.dup(0), mmap.mmap(-1, mmap.PAGESIZE, mmap.MAP_SHARED)) for _ in range(20)]
    after = footprint()
    for _, descriptor, pages in kept:
        os.close(descriptor)
        pages.close()
    assert set(before.grown(after)) >= {"descriptors", "heap", "mapped"}
