"""What switch vendors' trimming tests check, on one overloaded port (p0t0-0 towards p0t1-0), and pitfall H-18."""

from __future__ import annotations

import socket
import statistics
import struct
import subprocess
import time
from collections.abc import Callable
from itertools import pairwise

import pytest

from testbed.fabric import queues
from testbed.fabric.network import Fabric
from testbed.model.codepoints import Dscp, Ecn
from testbed.model.scenario import FaultAction
from tests.netns import kit
from tests.netns.overload import Overload, overload

pytestmark = pytest.mark.netns
Sandbox = Callable[[Callable[[], None]], None]
HOST_RATE, RATE = 200_000_000, 100_000_000  # a Python sender on a slow machine still overloads the port
SIZES = (4200, 1500, 600)
HOP = ("p0t0-0", "p0t1-0")
TRIM_SIZE = 128
CUT = TRIM_SIZE - 14 - kit.OUTER  # what is left for the payload
SPEC = kit.switch(trimming=True, ecn=True)


def only_this_hop_decides(net: Fabric) -> None:
    """The next port has the same rate: a burst of the shaper before it could be cut there once more."""
    settings = kit.settings(net)
    after = net.topology.link("p0t0-1", "p0t1-0").upper.ifindex
    for member in ("trim", "ecn_min", "ecn_max", "limit"):
        settings.set(after, member, 0)


def assert_accounts_agree(net: Fabric, found: Overload) -> None:
    """Port, far end and receiver tell the same story, to the packet."""
    count = kit.counters(net)
    port = count[HOP]
    sent = sum(found.sent.values())
    assert count["h0", "p0t0-0"].packets == sent  # the sender's own port loses nothing
    assert count["h0", "p0t0-0"].dropped_queue == 0
    assert port.packets + port.dropped_queue == sent  # a trimmed packet is accepted once, as its cut self
    assert port.packets == port.delivered_packets == sum(found.arrived.values())
    assert port.control_packets == found.of(Dscp.TRIMMED)
    assert port.marked == sum(number for (_, _, ecn), number in found.arrived.items() if ecn is Ecn.CE)
    assert port.helper_failures == port.dropped_fault == 0
    assert set(found.numbers.values()) <= {1}


def test_overload_delivers_trims_or_drops_each_packet_once(steady: Sandbox) -> None:
    """50,000 packets of three sizes at twice the port's rate."""

    def body() -> None:
        with kit.fabric((1, 2, 1, 2), HOST_RATE, RATE, spec=SPEC) as net:
            only_this_hop_decides(net)
            samples: list[tuple[int, int, int]] = []

            def glance() -> None:
                now = kit.counters(net)[HOP]
                samples.append((now.t_ns, now.delivered_bytes, now.queue_bytes))

            found = overload(net, SIZES, 50_000, Dscp.TRIMMABLE, Ecn.ECT0, glance)
            assert_accounts_agree(net, found)
            port = kit.counters(net)[HOP]
            assert port.dropped_queue == 0
            assert sum(found.arrived.values()) == 50_000
            assert set(found.numbers) == set(range(50_000))
            assert {size for size, dscp, _ in found.arrived if dscp is Dscp.TRIMMED} == {CUT}
            assert found.of(Dscp.TRIMMED) == port.trimmed > 10_000
            # The shaper charges what is left of a trimmed packet, and whole packets get the rest of the link.
            assert port.control_bytes == port.trimmed * (TRIM_SIZE + kit.OVERHEAD)
            whole = sum((size + kit.FRAME_EXTRA) * n for (size, dscp, _), n in found.arrived.items() if dscp is Dscp.TRIMMABLE)
            assert port.bytes == whole + port.control_bytes
            busy = [(a, b) for a, b in pairwise(samples) if a[2] and b[2]]
            # The median: an interval in which the machine stopped for a while says nothing about the port.
            used = statistics.median((b[1] - a[1]) * 8e9 / (b[0] - a[0]) / RATE for a, b in busy)
            print(f"utilisation {used:.4f}, trimmed {port.trimmed}, marked {port.marked}, sender {found.seconds:.1f} s")
            assert 0.99 <= used <= 1.01

    steady(body)


def test_exact_bytes_of_a_trimmed_packet(sandbox: Sandbox) -> None:
    """Frame length, outer payload length, codepoint, next header, uSID address and the first payload bytes, on the wire."""

    def body() -> None:
        with kit.fabric((1, 2, 1, 2), 50_000_000, 5_000_000, spec=SPEC) as net, kit.raw(net, "h0") as source:
            way = kit.path(net, 0, 2)
            tap = kit.Tap(net, "p0t1-0")
            payload = bytes([0x60]) + bytes(range(256)) * 16
            for _ in range(20):
                kit.send(source, way, payload, Dscp.TRIMMABLE_RETX, Ecn.ECT0)
            time.sleep(0.2)
            frames = tap.frames()
            tap.close()
            assert frames
            cut = [frame for frame in frames if frame[14:16] != struct.pack(">H", 0x6000 | (Dscp.TRIMMABLE_RETX << 6 | 2 << 4))]
            cut = [frame for frame in cut if (frame[14] & 15) << 2 | frame[15] >> 6 == Dscp.TRIMMED]
            assert len(cut) >= 5
            for frame in cut:
                assert len(frame) == TRIM_SIZE
                assert struct.unpack_from(">H", frame, 18)[0] == CUT  # outer payload length
                assert frame[15] >> 4 & 3 == Ecn.ECT0  # a trimmed packet is not marked as well
                assert frame[20] == 41
                assert frame[54:] == payload[:CUT]
                assert frame[38:44] == bytes.fromhex("5f0000002000")  # already shifted to p0t1-0: SRv6 goes on

    sandbox(body)


def test_a_packet_that_is_already_short_gets_the_codepoint_and_keeps_its_length(sandbox: Sandbox) -> None:
    """Just below, at and just above trim_size."""

    def body() -> None:
        with kit.fabric((1, 2, 1, 2), 50_000_000, 5_000_000, spec=SPEC) as net:
            with kit.raw(net, "h0") as source, kit.raw(net, "h2") as target:
                kit.settings(net).set(net.topology.link(*HOP).lower.ifindex, "trim", 1)  # everything is over it
                for size in (CUT - 30, CUT - 1, CUT, CUT + 1):
                    kit.send(source, kit.path(net, 0, 2), bytes(size), Dscp.TRIMMABLE)
                    got = [(len(data), dscp) for data, dscp, _ in kit.receive_all(target)]
                    assert got == [(min(size, CUT), Dscp.TRIMMED)]
            count = kit.counters(net)[HOP]
            assert (count.trimmed, count.control_packets, count.helper_failures) == (4, 4, 0)

    sandbox(body)


@pytest.mark.parametrize(("trimming", "dscp"), [(False, Dscp.TRIMMABLE), (True, Dscp.NO_TRIM)])
def test_without_trimming_what_is_over_the_limit_is_dropped_and_counted(sandbox: Sandbox, trimming: bool, dscp: Dscp) -> None:
    def body() -> None:
        spec = kit.switch(trimming=trimming)
        with kit.fabric((1, 2, 1, 2), HOST_RATE, RATE, spec=spec) as net:
            only_this_hop_decides(net)
            found = overload(net, SIZES, 6000, dscp)
            assert_accounts_agree(net, found)
            port = kit.counters(net)[HOP]
            assert port.trimmed == 0
            assert port.dropped_queue > 1000
            assert {seen for _, seen, _ in found.arrived} == {dscp}

    sandbox(body)


def test_trimming_survives_flaps_and_a_switch_that_lost_everything_static(sandbox: Sandbox) -> None:
    """The port's link down and up from its far side, then every port of the T1 (all that a reboot takes) and the reload."""

    def body() -> None:
        with kit.fabric((1, 2, 1, 2), HOST_RATE, RATE, spec=SPEC) as net:
            only_this_hop_decides(net)
            first = overload(net, SIZES, 3000, Dscp.TRIMMABLE)
            assert_accounts_agree(net, first)
            t1 = [link for link in net.topology.links if link.upper.node == "p0t1-0"]
            for links in ([net.topology.link(*HOP)], t1):
                for link in links:
                    net.apply_fault(link, FaultAction.DOWN)
                for link in links:
                    net.undo_fault(link, FaultAction.DOWN)
                before = kit.counters(net)[HOP]
                again = overload(net, SIZES, 3000, Dscp.TRIMMABLE)
                after = kit.counters(net)[HOP]
                assert sum(again.arrived.values()) == 3000
                assert again.of(Dscp.TRIMMED) == after.trimmed - before.trimmed > 500
                assert after.delivered_packets - before.delivered_packets == 3000

    sandbox(body)


def test_control_waits_for_one_frame_at_most(steady: Sandbox) -> None:
    """p99 of the wait in the overloaded port's high band: one full frame's time plus 1 ms, the best of three tries.

    At 5 Mbit/s, where a frame (7.3 ms) is longer than this machine's hiccups; the time of an unloaded crossing is taken off.
    """

    def body() -> None:
        frame_ms = queues.full_frame(kit.links(1, (0,))) * 8e3 / 5_000_000
        limit_ms = frame_ms + 1.0
        with kit.fabric((1, 2, 1, 2), 50_000_000, 5_000_000, spec=SPEC) as net:
            results: list[float] = []
            for _ in range(3):
                results.append(_control_waits(net))
                if results[-1] <= limit_ms:
                    break
            print(f"control p99 {results} ms, limit {limit_ms:.2f} ms")
            assert min(results) <= limit_ms

    def _control_waits(net: Fabric) -> float:
        waits = []
        with kit.raw(net, "h1") as probe, kit.raw(net, "h0") as source, kit.raw(net, "h2") as sink:
            way, data = kit.path(net, 1, 2), kit.path(net, 0, 2)
            for number in range(150):
                for _ in range(3):
                    kit.send(source, data, bytes(4200), Dscp.TRIMMABLE)
                kit.send(probe, way, struct.pack("=Q", time.monotonic_ns()), Dscp.CONTROL)
                while True:
                    got, dscp, _ = kit.receive(sink)
                    if dscp is Dscp.CONTROL:
                        break
                waits.append((time.monotonic_ns() - struct.unpack("=Q", got)[0]) / 1e6)
                time.sleep(0.004 + number % 7 / 1000)
        return float(sorted(waits)[int(0.99 * len(waits))])

    steady(body)


@pytest.mark.parametrize("offloads", ["off", "on"])
def test_segmentation_batches_are_charged_frame_by_frame(sandbox: Sandbox, offloads: str) -> None:
    """H-18: UDP batches (UDP_SEGMENT) from a host, offloads as we set them and as veth has them by default.

    The batch passes the host's port program as one packet; shaper and virtual queue must both count its frames.
    """

    def body() -> None:
        with kit.fabric((1, 1, 1, 2), 50_000_000, spec=SPEC) as net:
            if offloads == "on":
                for node in ("h0", "h1", "p0t0-0"):
                    for port, _ in net.plans[node].ports:
                        with net.namespaces.inside(node):
                            command = ["ethtool", "-K", port.name, "tx", "on", "gso", "on", "tso", "on", "gro", "on"]
                            subprocess.run(command, check=False, capture_output=True)
            with net.namespaces.inside("h0"):
                source = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
            with source:
                source.setsockopt(17, 103, 1400)  # SOL_UDP, UDP_SEGMENT
                source.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS, Dscp.TRIMMABLE << 2)
                way = kit.path(net, 0, 1)
                for _ in range(20):
                    source.sendto(bytes(14_000), (str(way.address), 9))
                time.sleep(0.4)
                count = kit.counters(net)
                sender = count["h0", "p0t0-0"]
                assert sender.packets == sender.delivered_packets == 200
                assert sender.bytes == sender.delivered_bytes == 200 * (1400 + 8 + kit.FRAME_EXTRA)
                last = count["p0t0-0", "h1"]
                assert last.packets == last.delivered_packets
                assert last.helper_failures == 0

    sandbox(body)
