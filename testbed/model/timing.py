"""Round trips, frames in flight and the window they call for: the units results are given in."""

from __future__ import annotations

from fractions import Fraction

from testbed.model import framing, transport
from testbed.model.scenario import LinkSpec, Scenario

NS_PER_S = 10**9
MIN_WINDOW_FRAMES = 8  # below it one late SACK idles the sender and marks mean nothing (DESIGN 1, 7)
WINDOW_BDPS = Fraction(3, 2)
SLACK_NS = 1_000_000  # of a shaper's bucket: what its timer may be late by without losing rate (docs/switch.md, burst)
DRAIN_NS = 10 * NS_PER_S  # DESIGN 4.2: 10 s plus 20 base round trips
DRAIN_RTTS = 20


def full_frame_bytes(links: LinkSpec) -> int:
    """Charged bytes of the largest frame a link takes."""
    return links.mtu + framing.ETHERNET_BYTES + links.overhead_bytes


def burst_bytes(rate_bps: int, links: LinkSpec) -> int:
    """What a port's bucket holds, in charged bytes: one full frame, and the longer of half a frame and 1 ms at its rate."""
    frame = full_frame_bytes(links)
    return frame + max(frame // 2, rate_bps * SLACK_NS // (8 * NS_PER_S))


def head_start_ns(links: LinkSpec) -> float:
    """By how much a message that finds its ports idle is ahead of the line rate: the time that a full bucket is worth.

    A token bucket passes what it holds at once, so of s bytes the last leaves (s - burst) / rate after the first, however many
    buckets there are in a row; of ports at two rates the slower one's counts. It has been refilled only as far as the port
    stood idle before: in a collective for one propagation delay.
    """
    slowest = min(links.rate_bps, links.fabric_rate_bps)
    return min(burst_bytes(slowest, links) * 8 * NS_PER_S / slowest, float(max(links.delay_ns)))


def round_trip_ns(links: LinkSpec) -> int:
    """The computed base round trip: twice the slowest plane's delay.

    The shapers add nothing: every port is a token bucket whose burst holds at least one full frame, so an isolated frame
    passes at once (DESIGN 4.4), and its SACK too.
    """
    return 2 * max(links.delay_ns)


def rtt_base_ns(scenario: Scenario) -> int:
    """`rtt_base_ms` in ns, as computed before it is confirmed by one WRITE per plane."""
    return round_trip_ns(scenario.links)


def default_drain_ns(links: LinkSpec) -> int:
    """How long messages under way may finish after the window (DESIGN 4.2)."""
    return DRAIN_NS + DRAIN_RTTS * round_trip_ns(links)


def bdp_frames_per_plane(scenario: Scenario) -> tuple[Fraction, ...]:
    """Full frames in flight on each plane at line rate: host port rate x that plane's round trip / charged frame."""
    links = scenario.links
    frame_bits = 8 * framing.charged_bytes(scenario.transport.payload, links.overhead_bytes)
    return tuple(Fraction(links.rate_bps * 2 * delay, NS_PER_S * frame_bits) for delay in links.delay_ns)


def bdp_frames(scenario: Scenario) -> float:
    """Full frames in flight of a host that fills all its planes."""
    return float(sum(bdp_frames_per_plane(scenario)))


def bdp_bytes(scenario: Scenario) -> int:
    """`bdp_frames` in payload bytes."""
    return round(sum(bdp_frames_per_plane(scenario)) * scenario.transport.payload)


def default_window_frames(scenario: Scenario) -> int:
    """The window per destination when the scenario leaves it open: 1.5 BDP of all planes, at least 8 frames.

    UEC starts cwnd at max_wnd = 1.5 x BDP (mrc-facts 3.6): one BDP fills the planes, the other half covers what waits in
    the NIC's own ports, SACK batching and a plane whose packets wait in a queue. Per-plane round trips are summed, because
    the rotation puts the same number of packets on each plane and the slow plane's must be out while the fast one's return.
    More does harm: at line rate a queue that has formed at a last hop never drains, so all that exceeds the BDP gathers in
    standing queues, often in one plane's. Measured on the quickstart: 47 frames (2 BDP) left one-way delays of 90 ms on
    one plane of 20 ms delay and a third packet on a dead path; 28 to 35 frames kept every path below two uses.
    """
    return max(MIN_WINDOW_FRAMES, round(WINDOW_BDPS * sum(bdp_frames_per_plane(scenario))))


def window_frames(scenario: Scenario) -> int:
    """The window in force: the scenario's own, or the default."""
    return scenario.transport.window_frames or default_window_frames(scenario)


def timeout_n(scenario: Scenario) -> int:
    """The exponent of the retransmission timer in force: the scenario's own, or the least that makes four base round trips."""
    n = scenario.transport.timeout_n
    if n is not None:
        return n
    most = range(transport.TIMEOUT_MAX_N)
    return next((n for n in most if transport.timeout_ns(n) >= 4 * rtt_base_ns(scenario)), transport.TIMEOUT_MAX_N)


def default_window_bytes(scenario: Scenario) -> int:
    """`default_window_frames` in payload bytes, as the endpoint counts them."""
    return default_window_frames(scenario) * scenario.transport.payload


def window_bytes(scenario: Scenario) -> int:
    """The window in force in payload bytes."""
    return window_frames(scenario) * scenario.transport.payload
