"""The ECN ramp: the program itself, run by the kernel on one packet at a time (BPF_PROG_TEST_RUN), and once live."""

from __future__ import annotations

import ctypes
import os
import socket
import struct
import time
from collections.abc import Callable

import pytest

from testbed.fabric import queues
from testbed.fabric.network import Fabric
from testbed.fabric.sandbox import BPFFS
from testbed.model.codepoints import Dscp, Ecn, traffic_class
from tests.netns import kit
from tests.netns.overload import overload

pytestmark = pytest.mark.netns
Sandbox = Callable[[Callable[[], None]], None]
RUNS = 16_000
LIVE, LIVE_RATE = 1600, 20_000_000
RATE = 5_000_000
PAYLOAD = 200  # the kernel takes at most a page for a test run; the ramp looks at what waits, not at the packet
HOP = ("p0t0-0", "p0t1-0")
LAST = ("p0t0-1", "h2")
IFINDEX_OFFSET, SKB_SIZE = 40, 192  # of struct __sk_buff


class _Options(ctypes.Structure):
    """struct bpf_test_run_opts of libbpf 1.1."""

    _fields_ = (
        ("sz", ctypes.c_size_t),
        ("data_in", ctypes.c_void_p),
        ("data_out", ctypes.c_void_p),
        ("data_size_in", ctypes.c_uint32),
        ("data_size_out", ctypes.c_uint32),
        ("ctx_in", ctypes.c_void_p),
        ("ctx_out", ctypes.c_void_p),
        ("ctx_size_in", ctypes.c_uint32),
        ("ctx_size_out", ctypes.c_uint32),
        ("retval", ctypes.c_uint32),
        ("repeat", ctypes.c_int),
        ("duration", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("cpu", ctypes.c_uint32),
        ("batch_size", ctypes.c_uint32),
    )


def marked_ratio(net: Fabric, hop: tuple[str, str], occupancy: int, ecn: Ecn = Ecn.ECT0) -> float:
    """Share of RUNS packets that leave the egress program with CE, each meeting `occupancy` bytes in the queue."""
    library = ctypes.CDLL("libbpf.so.1", use_errno=True)
    ifindex = kit.ifindex_of(net, hop)
    octets = struct.pack(">I", 6 << 28 | traffic_class(Dscp.TRIMMABLE, ecn) << 20)
    packet = bytes(12) + b"\x86\xdd" + octets + struct.pack(">HBB", PAYLOAD, 41, 64) + bytes(32 + PAYLOAD)
    context = bytearray(SKB_SIZE)
    struct.pack_into("=I", context, IFINDEX_OFFSET, ifindex)
    data, skb = ctypes.create_string_buffer(packet, len(packet)), (ctypes.c_char * SKB_SIZE).from_buffer(context)
    out = ctypes.create_string_buffer(len(packet) + 256)
    program = library.bpf_obj_get(os.fsencode(BPFFS / "egress"))
    assert program >= 0, os.strerror(ctypes.get_errno())
    assert net._program is not None
    counters = net._program.counters
    marked = 0
    before = counters.get(ifindex, "marked")
    try:
        with net.namespaces.inside(hop[0]):
            for _ in range(RUNS):
                options = _Options(sz=ctypes.sizeof(_Options), data_in=ctypes.addressof(data), data_size_in=len(packet))
                options.data_out, options.data_size_out = ctypes.addressof(out), len(out)
                options.ctx_in, options.ctx_size_in, options.repeat = ctypes.addressof(skb), SKB_SIZE, 1
                counters.set(ifindex, "busy_until", time.monotonic_ns() + occupancy * 8 * 10**9 // RATE)
                assert library.bpf_prog_test_run_opts(program, ctypes.byref(options)) == 0, os.strerror(ctypes.get_errno())
                assert options.retval == 0  # TC_ACT_OK
                marked += out.raw[15] >> 4 & 3 == Ecn.CE
    finally:
        os.close(program)
    assert counters.get(ifindex, "marked") - before == (marked if ecn is not Ecn.CE else 0)
    return marked / RUNS


def test_the_mark_ratio_follows_the_ramp(steady: Sandbox) -> None:
    """Within 2 percentage points (5 standard deviations of 16,000 runs) at five occupancies, and 0 and 1 beyond its ends."""

    def body() -> None:
        with kit.fabric((1, 2, 1, 2), RATE, spec=kit.switch(ecn=True)) as net:
            frame = queues.full_frame(net.links)
            low, high = 2 * frame, 6 * frame
            found = {}
            for share in (0.1, 0.3, 0.5, 0.7, 0.9):
                found[share] = marked_ratio(net, HOP, low + round(share * (high - low)))
            print("marked", {share: round(value, 4) for share, value in found.items()})
            assert all(abs(value - share) <= 0.02 for share, value in found.items())
            assert marked_ratio(net, HOP, low - 100) == 0
            assert marked_ratio(net, HOP, high + 100) > 0.99  # some drain below it before the program runs
            assert marked_ratio(net, HOP, high + 20 * frame) == 1
            assert marked_ratio(net, HOP, high + 20 * frame, Ecn.NOT_ECT) == 0  # who does not know ECN is not marked

    steady(body)


@pytest.mark.parametrize("hop", [LAST, ("h0", "p0t0-0")])
def test_neither_the_last_hop_nor_a_host_marks(sandbox: Sandbox, hop: tuple[str, str]) -> None:
    def body() -> None:
        with kit.fabric((1, 2, 1, 2), RATE, spec=kit.switch(ecn=True)) as net:
            assert marked_ratio(net, hop, 8 * queues.full_frame(net.links)) == 0

    sandbox(body)


def test_live_marks_follow_the_ramp_and_are_the_receivers(steady: Sandbox) -> None:
    """8,000 packets held at five levels of a live queue: within 2 percentage points (4 standard deviations) of the ramp.

    The occupancy that each met is what the program had written when the one before it was done, less what has drained
    since: this sender is the port's only one, and a packet is through the port before `send` returns. A packet that took
    longer says nothing and is left out. CE received = marks counted, to the packet.
    """

    def body() -> None:
        with kit.fabric((1, 2, 1, 2), 400_000_000, LIVE_RATE, spec=kit.switch(ecn=True)) as net:
            kit.settings(net).set(kit.ifindex_of(net, ("p0t1-0", "p0t0-1")), "ecn_max", 0)  # only HOP marks
            frame = queues.full_frame(net.links)
            before = kit.counters(net)[HOP].marked
            expected = judged = marked = ce = 0.0
            with kit.raw(net, "h0") as source, kit.raw(net, "h2") as target:
                for share in (0.1, 0.3, 0.5, 0.7, 0.9):
                    chances = _hold(net, source, round((2 + 4 * share) * frame))
                    got = kit.receive_all(target, LIVE)
                    assert len(got) == LIVE
                    ce += sum(ecn is Ecn.CE for _, _, ecn in got)
                    numbers = {struct.unpack_from("=I", data)[0] for data, _, ecn in got if ecn is Ecn.CE}
                    hits = len(numbers & chances.keys())
                    print(f"{share}: {hits / len(chances):.4f} marked, {sum(chances.values()) / len(chances):.4f} expected")
                    expected, judged, marked = expected + sum(chances.values()), judged + len(chances), marked + hits
            assert ce == kit.counters(net)[HOP].marked - before
            print(f"live: {marked / judged:.4f} marked, {expected / judged:.4f} expected, {judged:.0f} packets")
            assert judged > 5 * LIVE * 0.8
            assert abs(marked - expected) / judged <= 0.02

    def _hold(net: Fabric, source: socket.socket, level: int) -> dict[int, float]:
        """Send LIVE packets, each once less than `level` bytes wait. {number: the ramp at the occupancy it met}."""
        frame = queues.full_frame(net.links)
        way = kit.path(net, 0, 2)
        chances: dict[int, float] = {}
        for number in range(LIVE):
            while (full_until := kit.program_counter(net, HOP, "busy_until")) - time.monotonic_ns() > level * 8e9 / LIVE_RATE:
                time.sleep(0.0001)
            start = time.monotonic_ns()
            kit.send(source, way, struct.pack("=I", number) + bytes(996), Dscp.TRIMMABLE, Ecn.ECT0)
            end = time.monotonic_ns()
            if end - start < 200_000:
                waiting = max(0.0, full_until - (start + end) / 2) * LIVE_RATE / 8e9
                chances[number] = min(1.0, max(0.0, (waiting / frame - 2) / 4))
        return chances

    steady(body)


def test_marks_counted_are_marks_received(sandbox: Sandbox) -> None:
    """At twice the rate, without trimming: drops, marks and CE received, to the packet."""

    def body() -> None:
        with kit.fabric((1, 2, 1, 2), 400_000_000, 200_000_000, spec=kit.switch(ecn=True)) as net:
            found = overload(net, (4200, 600), 6000, Dscp.TRIMMABLE, Ecn.ECT1)
            ce = sum(number for (_, _, ecn), number in found.arrived.items() if ecn is Ecn.CE)
            count = kit.counters(net).values()
            assert ce == sum(port.marked for port in count) > 1000
            assert sum(found.arrived.values()) + sum(port.dropped_queue for port in count) == 6000

    sandbox(body)
