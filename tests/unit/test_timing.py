"""Frames, round trips and windows: the sums of mrc-facts and DESIGN, by hand."""

from __future__ import annotations

import pytest

from testbed.model import framing, load, timing
from testbed.model.scenario import Scenario

TEXT = """
name: timing
topology: {planes: 4, t0_groups: 2, t1_per_plane: 2, hosts_per_t0: 2}
links: {rate: 5mbit, delay: 20ms}
workload:
  - {kind: permutation, message: 64KiB}
"""


def scenario(*overrides: str) -> Scenario:
    return load.load_text(TEXT, "timing", overrides)


def test_a_full_frame() -> None:
    assert framing.HEADER_BYTES == 142
    assert framing.TRIM_MIN_BYTES == 122
    assert framing.charged_bytes(4096) == 4262
    assert framing.charged_bytes(1024, 0) == 1166


@pytest.mark.parametrize(("payload", "gbps"), [(4096, 769), (2048, 740), (1024, 688)])
def test_the_payload_ceiling_is_that_of_800g_ethernet(payload: int, gbps: int) -> None:
    """mrc-facts 3.3 works out 769, 740 and 688 Gbit/s of 800."""
    assert framing.payload_ceiling(payload) * 800 == pytest.approx(gbps, abs=0.7)


def test_the_largest_payload_fits_exactly() -> None:
    assert framing.packet_bytes(framing.payload_max(1500)) == 1500
    assert load.load_text(TEXT, "x", ["links.mtu=4228"]).transport.payload == 4096


def test_base_round_trip_is_twice_the_slowest_plane() -> None:
    assert timing.rtt_base_ns(scenario()) == 40_000_000
    assert timing.rtt_base_ns(scenario("links.delay=[20ms, 200ms, 1ms, 20ms]")) == 400_000_000


def test_bdp_in_frames() -> None:
    per_plane = timing.bdp_frames_per_plane(scenario())
    assert [float(frames) for frames in per_plane] == pytest.approx([5e6 * 0.04 / 8 / 4262] * 4)
    assert timing.bdp_frames(scenario()) == pytest.approx(4 * 5.866, rel=1e-3)


def test_the_scaling_of_the_design() -> None:
    """100 Gbit/s and 8 us hold the frames of 5 Mbit/s and 160 ms (DESIGN 1): 23 and a half with the overhead charged."""
    small = timing.bdp_frames_per_plane(scenario("links.delay=80ms"))[0]
    real = 100e9 * 8e-6 / 8 / 4262
    assert float(small) == pytest.approx(real)
    assert real == pytest.approx(23.5, abs=0.1)


def test_the_default_window() -> None:
    assert timing.default_window_frames(scenario()) == round(1.5 * 4 * 5.866) == 35
    assert timing.default_window_bytes(scenario()) == 35 * 4096
    assert timing.default_window_frames(scenario("links.delay=1ms")) == 8
    assert timing.window_bytes(scenario("transport.window=12")) == 12 * 4096
    assert timing.window_bytes(scenario()) == timing.default_window_bytes(scenario())
