"""One-way delay and jitter of packets sent in the window. Sender and receiver share one clock, so delays are exact.

Jitter is RFC 3550 6.4.1, J += (|D| - J) / 16, kept per path (a flow's EV) in order of arrival over first transmissions, so that
neither spraying nor retransmission counts as jitter. A pair of packets on either side of a gap in the records says nothing
and is left out (pitfall H-22).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analysis.arrays import Floats, Ints, percentile
from analysis.view import View

GAIN = 1 / 16  # RFC 3550 6.4.1


@dataclass(frozen=True, slots=True)
class Jitter:
    """The running J after each packet that updated it, in ns, by time of arrival."""

    placed_ns: Ints
    path: Ints
    j_ns: Floats


def jitter(view: View) -> Jitter:
    """J of every path since t = 0, so that it has settled when the window begins. Sorted by path, then by arrival."""
    packets = view.packets
    kept = (packets.sent_ns < view.end_ns) & (packets.placed_ns > 0) & ~packets.retransmission
    kept &= view.receivers_covered(packets.flow, packets.placed_ns)
    order = np.lexsort((packets.placed_ns[kept], packets.path[kept]))
    path, placed, sent, flow = (
        column[kept][order] for column in (packets.path, packets.placed_ns, packets.sent_ns, packets.flow)
    )
    transit = placed - sent
    same = np.flatnonzero((path[1:] == path[:-1]) & ~_across_gap(view, flow, placed))
    deviation = np.abs(np.diff(transit)[same]).astype(np.float64)
    at = same + 1
    return Jitter(placed[at], path[at], _filter(path[at], deviation))


def _across_gap(view: View, flow: Ints, placed: Ints) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """For each consecutive pair: whether a hole in the receiver's records lies between them."""
    span = np.zeros(len(placed), np.int64)
    for one in range(len(view.flows)):
        spans = view.coverage.spans.get(view.receiver(one))
        if spans is not None and len(spans) > 1:
            mine = flow == one
            span[mine] = np.searchsorted(spans[:, 0], placed[mine], side="right")
    return np.asarray(span[1:] != span[:-1], dtype=np.bool_)


def _filter(path: Ints, deviation: Floats) -> Floats:
    """The recursion along each path. It steps through positions of all paths at once, not through packets."""
    result = np.empty_like(deviation)
    if not len(path):
        return result
    starts = np.flatnonzero(np.concatenate([[True], path[1:] != path[:-1]]))
    lengths = np.diff(np.append(starts, len(path)))
    longest_first = np.argsort(-lengths, kind="stable")
    starts, lengths = starts[longest_first], lengths[longest_first]
    value = np.zeros(len(starts))
    alive = len(starts)
    for position in range(int(lengths[0])):
        while lengths[alive - 1] <= position:
            alive -= 1
        at = starts[:alive] + position
        value[:alive] += (deviation[at] - value[:alive]) * GAIN
        result[at] = value[:alive]
    return result


def measure(view: View) -> dict[str, float]:
    packets = view.packets
    arrived = view.in_window & (packets.placed_ns > 0)
    if not np.any(arrived):
        return {}
    oneway = (packets.placed_ns[arrived] - packets.sent_ns[arrived]) / 1e3
    found = {"oneway_us_p50": percentile(oneway, 0.5), "oneway_us_p99": percentile(oneway, 0.99)}
    running = jitter(view)
    counted = (running.placed_ns >= view.start_ns) & (running.placed_ns < view.end_ns)
    if np.any(counted):
        found["jitter_us"] = float(np.mean(running.j_ns[counted])) / 1e3
    return found
