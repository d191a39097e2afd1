"""The ideal of a collective: its latency steps, the buckets of idle ports, one message per QP; by hand and frame by frame."""

from __future__ import annotations

import pytest

from testbed.fabric.queues import shaper_at
from testbed.model import jobs, load, timing
from testbed.model.flows import message_bytes
from testbed.model.framing import charged_bytes
from testbed.model.scenario import Scenario
from testbed.model.topology import build

TEXT = """
name: ideal
topology: {planes: 4, t0_groups: 2, t1_per_plane: 6, hosts_per_t0: 4}
links: {rate: 5mbit, delay: 20ms, mtu: 4500}
workload:
  - {kind: ring_allreduce, hosts: all, message: 1MiB}
  - {kind: all_to_all, hosts: all, message: 1MiB}
"""
PAYLOAD = 4096


def scenario(*overrides: str) -> Scenario:
    return load.load_text(TEXT, "ideal", overrides)


def last_frame_leaves_ns(frames: int, hops: int, rate_bps: int, burst: int) -> float:
    """Of frames handed over at once: when the last one has passed `hops` full token buckets, each frame as its tokens come."""
    charged = charged_bytes(PAYLOAD)
    arrivals = [0.0] * frames
    for _ in range(hops):
        tokens, at, left = float(burst), 0.0, []
        for arrival in arrivals:
            ready = max(at, arrival)
            tokens = min(burst, tokens + (ready - at) * rate_bps / 8e9)
            wait = max(0.0, charged - tokens) * 8e9 / rate_bps
            at = ready + wait
            tokens += wait * rate_bps / 8e9 - charged
            left.append(at)
        arrivals = left
    return arrivals[-1]


@pytest.mark.parametrize("hops", [1, 4])
def test_a_ring_step_takes_what_the_token_buckets_of_idle_ports_let_it(hops: int) -> None:
    given = scenario()
    burst = shaper_at(given.links.rate_bps, given.links).burst
    assert burst == 4538 * 3 // 2
    per_port = (1 << 20) // 8 // PAYLOAD // 4
    assert per_port == 8
    ring = last_frame_leaves_ns(per_port, hops, given.links.rate_bps, burst)
    topology = build(given.topology)
    assert jobs.alone_ns(given, topology, 0) == pytest.approx(14 * (20e6 + ring), rel=1e-6)
    assert jobs.alone_ns(given, topology, 1) == pytest.approx(
        20e6 + last_frame_leaves_ns(7 * 64, hops, 5_000_000, burst), rel=1e-6
    )


def test_a_bucket_is_refilled_only_while_its_port_stands_idle() -> None:
    assert timing.head_start_ns(scenario().links) == pytest.approx(6807 * 8 / 5e6 * 1e9)
    assert timing.head_start_ns(scenario("links.delay=2ms").links) == 2e6
    assert timing.head_start_ns(scenario("links.fabric_rate=4mbit", "links.delay=50ms").links) == pytest.approx(6807 * 2e3)


def test_a_message_that_fits_the_buckets_takes_the_delay_alone() -> None:
    given = scenario("workload=[{kind: ring_allreduce, hosts: all, message: 8KiB}]")
    assert jobs.alone_ns(given, build(given.topology), 0) == 14 * 20e6


def test_qps_cut_a_collectives_messages_and_change_nothing_in_its_ideal() -> None:
    one, eight = scenario(), scenario("transport.qps=8")
    ring, everyone = one.workload
    assert [message_bytes(ring, qps) for qps in (1, 3, 8)] == [131072, 43692, 16384]
    assert [message_bytes(everyone, qps) for qps in (1, 3, 8)] == [1 << 20, 349526, 131072]
    assert [jobs.messages_per_step(ring, qps) for qps in (1, 8)] == [14, 112]
    assert [jobs.messages_per_step(everyone, qps) for qps in (1, 8)] == [1, 8]
    topology = build(one.topology)
    for index in (0, 1):
        assert jobs.alone_ns(one, topology, index) == jobs.alone_ns(eight, topology, index)
