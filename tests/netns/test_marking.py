"""The ECN ramp: the program itself, run by the kernel on one packet at a time (BPF_PROG_TEST_RUN), and once live."""

from __future__ import annotations

import ctypes
import os
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
RUNS = 10_000
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
    ifindex = next(info.ifindex for info in net.ports if (info.node, info.neighbour) == hop)
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
    """Within 2 percentage points (4 standard deviations of 10,000 runs) at five occupancies, and 0 and 1 beyond its ends."""

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
    """A port at its rate: what the ramp would give at the occupancies that were seen, and CE received = marks counted."""

    def body() -> None:
        with kit.fabric((1, 2, 1, 2), 50_000_000, 5_000_000, spec=kit.switch(ecn=True)) as net:
            after = net.topology.link("p0t0-1", "p0t1-0").upper.ifindex
            kit.settings(net).set(after, "ecn_max", 0)  # only HOP marks
            assert any(abs(_live(net)) <= 0.08 for _ in range(3))  # 3 standard deviations of 280 throws; the machine may stop

    def _live(net: Fabric) -> float:
        """Excess of the marked share over what the ramp gives at the occupancies that were read just before."""
        frame = queues.full_frame(net.links)
        expected = sent = 0.0
        before = kit.counters(net)[HOP].marked
        with kit.raw(net, "h0") as source, kit.raw(net, "h2") as target:
            for _ in range(40):
                for _ in range(7):
                    waiting = kit.counters(net)[HOP].queue_bytes
                    expected += min(1.0, max(0.0, (waiting / frame - 2) / 4))
                    sent += 1
                    kit.send(source, kit.path(net, 0, 2), bytes(4200), Dscp.TRIMMABLE, Ecn.ECT0)
                    time.sleep(0.0015)
                time.sleep(0.035)
            got = kit.receive_all(target)
        ce = sum(1 for _, _, ecn in got if ecn is Ecn.CE)
        assert ce == kit.counters(net)[HOP].marked - before
        assert len(got) == sent
        print(f"live: {ce} of {sent:.0f} marked, {expected:.1f} expected")
        return (ce - expected) / sent

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
