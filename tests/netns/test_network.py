"""Bring-up, tear-down, processes, the Mininet objects, and what must be refused before anything exists."""

from __future__ import annotations

import os
import resource
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from testbed.errors import KernelError
from testbed.fabric import batch, linkstate
from testbed.fabric.linkstate import LinkState
from testbed.fabric.netlink import Netlink
from testbed.fabric.network import Fabric
from testbed.fabric.sandbox import BPFFS, NETNS
from testbed.model.scenario import TopologySpec
from testbed.model.topology import build
from tests.netns import kit

pytestmark = pytest.mark.netns
Sandbox = Callable[[Callable[[], None]], None]


def leftovers() -> list[str]:
    """Namespaces and pinned programs (the kernel itself may keep two iterators named *.debug on a bpffs)."""
    pins = [path.name for path in BPFFS.iterdir() if path.suffix != ".debug"]
    return pins + [path.name for path in NETNS.iterdir()]


QUICKSTART = (4, 2, 6, 4)  # planes, T0 groups, T1s per plane, hosts per T0


def test_the_quickstart_fabric_comes_up_and_goes_down_whole(sandbox: Sandbox) -> None:
    """How long that takes beside stock Mininet on the same machine is `make bench-bringup`."""

    def body() -> None:
        with kit.fabric(QUICKSTART, 5_000_000, delay_ns=(20_000_000,) * 4) as net:
            assert len(net.ports) == 160
            assert len(net.plans) == 40
        assert leftovers() == []

    sandbox(body)


def test_bring_up_waits_until_every_port_passes_packets(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel tells of a port some time after its carrier came, a second after when it has much to tell."""
    asked: Counter[int] = Counter()
    read = linkstate.read

    def late(link: Netlink, ifindex: int) -> LinkState:
        asked[ifindex] += 1
        state = read(link, ifindex)
        return replace(state, running=state.running and asked[ifindex] > 3)

    def body() -> None:
        monkeypatch.setattr(linkstate, "read", late)
        with kit.fabric((2, 1, 1, 2)) as net:
            assert {info.ifindex: asked[info.ifindex] for info in net.ports} == {info.ifindex: 4 for info in net.ports}

    sandbox(body)


def test_two_digit_planes_and_switches(sandbox: Sandbox) -> None:
    """H-02: names with two digits everywhere still fit."""

    def body() -> None:
        with kit.fabric((11, 2, 11, 1)) as net, kit.raw(net, "h0") as source, kit.raw(net, "h1") as target:
            way = kit.path(net, 0, 1, 10 * 11 + 10)
            assert way.hops == ("p10t0-0", "p10t1-10", "p10t0-1")
            kit.send(source, way, bytes(64))
            assert len(kit.receive(target)[0]) == 64

    sandbox(body)


def test_names_that_do_not_fit_are_refused_before_anything_exists() -> None:
    topology = build(TopologySpec(1001, 1, 1, 101))
    with pytest.raises(KernelError, match=r"longer than 15 characters: p1000t0-0-eth100, p1000t0-0-eth101$"):
        Fabric(topology, kit.links(10**6, (0,)), kit.switch(), Path("/run"))


def test_more_links_than_descriptors(sandbox: Sandbox) -> None:
    """iproute2 leaks one descriptor per namespace it is told in a batch."""

    def body() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
        with kit.fabric((1, 2, 2, 32)) as net:
            assert len(net.topology.links) == 68

    sandbox(body)


def test_fifty_cycles_leak_nothing(sandbox: Sandbox) -> None:
    """H-11, with few descriptors to spend."""

    def body() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))

        def state() -> tuple[int, int]:
            return len(list(Path("/proc/self/fd").iterdir())), len(list(Path("/proc").glob("[0-9]*")))

        def cycle() -> None:
            with kit.fabric((1, 1, 1, 2), delay_ns=(1_000_000,)) as net:
                assert net.net["h0"].cmd("echo hello").strip() == "hello"

        cycle()
        before = state()
        for _ in range(50):
            cycle()
        assert kit.wait_until(lambda: state() == before), state()  # a shell that was ended is reaped in its own time

    sandbox(body)


def test_a_failed_bring_up_cleans_up_and_names_node_and_line(sandbox: Sandbox) -> None:
    def body() -> None:
        topology = build(TopologySpec(1, 1, 1, 2))
        broken = Fabric(topology, kit.links(0, (0,)), kit.switch(), Path("/run"))  # a rate of 0 is no rate
        with pytest.raises(KernelError, match=r"h0: tc qdisc add dev h0-eth0 .* rate 0bit .* mandatory"):
            broken.up()
        assert leftovers() == []

    sandbox(body)


def test_batch_names_the_failing_line(sandbox: Sandbox) -> None:
    def body() -> None:
        with kit.fabric((1, 1, 1, 2)) as net:
            lines = ["link set h0-eth0 mtu 4000", "link set nosuch up", "link set h0-eth0 mtu 1400"]
            with pytest.raises(KernelError, match=r'h0: ip link set nosuch up: .*"nosuch"'):
                batch.run("ip", lines, net.namespaces, "h0")

    sandbox(body)


def test_spawned_processes_live_in_their_node(sandbox: Sandbox) -> None:
    def body() -> None:
        with kit.fabric((1, 1, 1, 2)) as net:
            ours, theirs = socket.socketpair()
            program = (
                "import os, socket, sys; s = socket.socket(fileno=int(sys.argv[1])); s.recv(1);"
                "s.sendall(f'{os.sched_getscheduler(0)} {os.getsid(0) == os.getpid()} {socket.if_nameindex()}'.encode());"
                "s.recv(1)"
            )
            argv = [sys.executable, "-c", program, str(theirs.fileno())]
            child = net.spawn("h1", argv, pass_fds=[theirs.fileno()], stdout=subprocess.DEVNULL, realtime_priority=5)
            theirs.close()
            ours.sendall(b"!")  # its priority is set once it runs
            said = ours.recv(4096).decode()
            assert said == f"{os.SCHED_FIFO} True [(1, 'lo'), ({net.ports[2].ifindex}, 'h1-eth0')]"
            assert child.poll() is None
        assert child.returncode == -9
        ours.close()

    sandbox(body)


def test_mininet_objects_work_and_start_a_shell_only_when_used(sandbox: Sandbox) -> None:
    def body() -> None:
        with kit.fabric((2, 1, 1, 2)) as net:
            mininet = net.net
            assert sorted(node.name for node in mininet.hosts) == ["h0", "h1"]
            assert len(mininet.links) == 6
            assert all(node.shell is None for node in mininet.values())
            h0, t0 = mininet["h0"], mininet["p1t0-0"]
            assert str(h0.intf("h0-eth1")) == "h0-eth1"
            assert h0.IP() == "fd00::1:0"
            assert [str(end) for end in h0.connectionsTo(t0)[0]] == ["h0-eth1", "p1t0-0-eth0"]
            assert "5f00:1:1000::/48" in t0.cmd("ip -6 route")
            assert t0.shell is not None
            assert h0.shell is None
            out, err, status = mininet["h1"].pexec("cat /sys/class/net/lo/mtu; exit 3", shell=True)
            assert (out.strip(), err, status) == ("65536", "", 3)
            assert mininet["h1"].intf("h1-eth0").isUp()
            assert mininet["h1"].shell is None

    sandbox(body)


def test_two_fabrics_do_not_meet(sandbox: Sandbox) -> None:
    """Two sandboxes at once, same names, same indices."""

    def inner() -> None:
        with kit.fabric((1, 1, 1, 2)) as net, kit.raw(net, "h0") as source, kit.raw(net, "h1") as target:
            kit.send(source, kit.path(net, 0, 1), bytes(64))
            assert len(kit.receive_all(target, 1)) == 1

    def body() -> None:
        with kit.fabric((1, 1, 1, 2)) as net:
            sandbox(inner)
            assert sum(count.packets for count in net.read_ports()) == 0

    sandbox(body)
