"""uSID forwarding by the kernel, seen on the wire, and nothing on the wire that nobody sent."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Callable
from ipaddress import IPv6Address, IPv6Network

import pytest

from testbed.errors import KernelError
from testbed.fabric import srv6, static
from testbed.fabric.netlink import Netlink
from testbed.fabric.plan import SID_DEVICE_INDEX, Flavor, Route, RouteKind
from testbed.model import usid
from tests.netns import kit

pytestmark = pytest.mark.netns
Sandbox = Callable[[Callable[[], None]], None]


def test_each_switch_shifts_the_destination_by_one_usid(sandbox: Sandbox) -> None:
    def body() -> None:
        with kit.fabric() as net, kit.raw(net, "h0") as source, kit.raw(net, "h3") as target:
            way = kit.path(net, 0, 3, 1)  # over p0t1-1
            taps = {node: kit.Tap(net, node) for node in ("p0t0-0", "p0t1-1", "p0t0-1", "h3")}
            payload = b"\x60" + bytes(39) + b"inner"
            kit.send(source, way, payload)
            assert kit.receive(target)[0] == payload
            expected = way.address
            for node, tap in taps.items():
                (frame,) = tap.frames()
                assert IPv6Address(frame[38:54]) == expected, node
                assert frame[20] == 41, f"{node}: next header must be IPv6, not a routing header"
                assert frame[54:] == payload
                expected = usid.shift(expected)
                tap.close()
            assert IPv6Address(frame[38:54]) == usid.host_sid(0, 3)

    sandbox(body)


def test_an_idle_fabric_is_silent(sandbox: Sandbox) -> None:
    def body() -> None:
        with kit.fabric((2, 2, 2, 2)) as net:
            time.sleep(1.2)  # MLD and router solicitations would come within a second
            assert sum(count.packets for count in net.read_ports()) == 0

    sandbox(body)


def test_addresses_are_usable_at_once(sandbox: Sandbox) -> None:
    """H-07: 20 times over, no bind failure, no tentative address, and the first packet arrives, the moment the fabric is up."""

    def body() -> None:
        for _ in range(20):
            with kit.fabric((2, 1, 1, 2)) as net, kit.raw(net, "h0") as source, kit.raw(net, "h1") as target:
                for plane in range(2):
                    kit.send(source, kit.path(net, 0, 1, plane), bytes(100))
                    with net.namespaces.inside("h1"), socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as bound:
                        bound.bind((str(usid.host_sid(plane, 1)), 4793))
                    assert kit.receive(target)[0] == bytes(100)

    sandbox(body)


def test_every_size_up_to_the_mtu_passes_whole(sandbox: Sandbox) -> None:
    """H-08: the most that one outer IPv6 header leaves of the MTU."""

    def body() -> None:
        with kit.fabric() as net, kit.raw(net, "h0") as source, kit.raw(net, "h2") as target:
            for size in (60, 1400, 1500, 4096, kit.MTU - kit.OUTER - 1, kit.MTU - kit.OUTER):
                kit.send(source, kit.path(net, 0, 2), bytes(size))
                assert len(kit.receive(target)[0]) == size
            assert kit.counters(net)["h0", "p0t0-0"].packets == 6

    sandbox(body)


def test_flavor_is_set_and_shown(sandbox: Sandbox) -> None:
    """H-10: by iproute2, which shares no code with what wrote the route."""

    def body() -> None:
        with kit.fabric() as net, net.namespaces.inside("p0t1-1"):
            shown = subprocess.run(["ip", "-d", "-6", "route"], capture_output=True, text=True, check=True).stdout
            wanted = "5f00:0:2001::/48  encap seg6local action End flavors next-csid lblen 32 nflen 16 dev sid0"
            assert wanted in shown

    sandbox(body)


def test_a_plain_end_never_passes_for_a_un(sandbox: Sandbox) -> None:
    def body() -> None:
        with kit.fabric() as net:
            own = Route(IPv6Network("5f00:0:2000::/48"), RouteKind.UN, SID_DEVICE_INDEX)
            with pytest.raises(ValueError, match="plain End"):
                srv6.route_message(own)
            plain = "ip -6 route replace 5f00:0:2000::/48 encap seg6local action End dev sid0 proto static"
            with net.namespaces.inside("p0t1-0"):
                subprocess.run(plain.split(), check=True)
            with Netlink(net.namespaces, "p0t1-0") as link:
                found = static.problems(link, net.plans["p0t1-0"])
            assert any("is missing" in problem and "next-csid lblen 32" in problem for problem in found)

    sandbox(body)


def test_what_the_kernel_refuses_is_an_error_with_its_words(sandbox: Sandbox) -> None:
    def body() -> None:
        impossible = Route(IPv6Network("5f00:0:9999::/48"), RouteKind.UN, SID_DEVICE_INDEX, flavor=Flavor(32, 13))
        with kit.fabric() as net, Netlink(net.namespaces, "p0t1-0") as link:
            with pytest.raises(KernelError, match=r"p0t1-0: route add 5f00:0:9999::/48.*nflen 13.*: .*Invalid"):
                link.execute([srv6.route_message(impossible)])
            assert static.problems(link, net.plans["p0t1-0"]) == []

    sandbox(body)


def test_unknown_usids_vanish_without_an_icmp_error(sandbox: Sandbox) -> None:
    def body() -> None:
        with kit.fabric() as net, kit.raw(net, "h0") as source:
            stranger = usid.compose(0, usid.T0_BASE, usid.T1_BASE + 77, usid.HOST_BASE)
            source.sendto(bytes(100), (str(stranger), 0))
            deadline = time.monotonic() + kit.LATEST_S
            while kit.counters(net)["h0", "p0t0-0"].delivered_packets == 0 and time.monotonic() < deadline:
                time.sleep(0.01)
            time.sleep(0.1)
            count = kit.counters(net)
            assert count["h0", "p0t0-0"].delivered_packets == 1
            assert count["p0t0-0", "h0"].packets == 0

    sandbox(body)
