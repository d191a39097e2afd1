"""When each host was recording. Silence of a live host is zero; silence of a dead one is a gap (pitfall H-22).

A live process writes samples every interval even when nothing moves. Where no row came for more than `GAP_INTERVALS`, its
data are missing, unless the row after the hole confesses that its event loop stood still that long: then nothing happened.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from analysis.arrays import Bools, Ints, floats, ints, is_text
from analysis.results import Run

LEAD_INTERVALS = 1.5  # what the first row of a run stands for: its interval, and its lateness
GAP_INTERVALS = 2.5  # one row may be late by a whole interval before its absence means anything


@dataclass(frozen=True, slots=True)
class Coverage:
    """Per host, an (n, 2) array of disjoint covered spans [start, end) in ns, in time order."""

    spans: Mapping[str, Ints]

    def clipped(self, host: str, start_ns: int, end_ns: int) -> Ints:
        """The covered spans of `host` inside [start, end)."""
        spans = np.clip(self.spans.get(host, np.empty((0, 2), np.int64)), start_ns, end_ns)
        return spans[spans[:, 1] > spans[:, 0]]

    def contains(self, host: str, times_ns: Ints) -> Bools:
        """Which of `times_ns` fall into a covered span."""
        spans = self.spans.get(host, np.empty((0, 2), np.int64))
        at = np.searchsorted(spans[:, 0], times_ns, side="right") - 1
        inside = np.zeros(times_ns.shape, np.bool_)
        ok = at >= 0
        inside[ok] = times_ns[ok] < spans[at[ok], 1]
        return inside

    def bins(self, host: str, edges_ns: Ints) -> Bools:
        """Which bins between consecutive `edges_ns` are covered from end to end; others are not drawn."""
        spans = self.spans.get(host, np.empty((0, 2), np.int64))
        if not len(spans):
            return np.zeros(len(edges_ns) - 1, np.bool_)
        at = np.searchsorted(spans[:, 0], edges_ns[:-1], side="right") - 1
        return np.asarray((at >= 0) & (edges_ns[1:] <= spans[np.maximum(at, 0), 1]), dtype=np.bool_)


def coverage(run: Run, hosts: tuple[str, ...]) -> Coverage:
    """From samples and cpu rows; from the packets themselves when neither table exists."""
    interval = run.scenario.measure.interval_ns
    return Coverage({host: _spans(*_signs_of_life(run, host), interval) for host in hosts})


def _signs_of_life(run: Run, host: str) -> tuple[Ints, Ints]:
    """(times, how long the loop had stood still before each) of a host's rows, in time order."""
    samples = ints(run.samples, "t_ns")[is_text(run.samples, "host", host)]
    mine = is_text(run.cpu, "who", host)
    beats = ints(run.cpu, "t_ns")[mine]
    lags = np.nan_to_num(floats(run.cpu, "lag_ms_max")[mine]) * 1e6
    times = np.concatenate([np.unique(samples), beats])
    stood = np.concatenate([np.zeros(len(times) - len(beats), np.int64), lags.astype(np.int64)])
    if not len(times):
        sent = ints(run.packets, "sent_ns")[is_text(run.packets, "host", host)]
        placed = ints(run.packets, "placed_ns")[is_text(run.packets, "peer", host)]
        times = np.unique(np.concatenate([sent, placed[placed > 0]]))
        stood = np.zeros(len(times), np.int64)
    order = np.argsort(times, kind="stable")
    return times[order], stood[order]


def _spans(times: Ints, stood: Ints, interval_ns: int) -> Ints:
    if not len(times):
        return np.empty((0, 2), np.int64)
    # rows of one moment (samples and cpu) count together: the later one's stall covers both
    step = np.diff(times)
    excuse = np.maximum(stood[1:], np.append(stood[2:], 0))
    hole = (step > GAP_INTERVALS * interval_ns) & (excuse < step - GAP_INTERVALS * interval_ns)
    # a run begins with whole intervals; after a hole nobody knows since when the writer of the first row was alive
    starts = np.concatenate([times[:1] - int(LEAD_INTERVALS * interval_ns), times[1:][hole]])
    ends = np.concatenate([times[:-1][hole], times[-1:]])
    return np.stack([starts, ends], axis=1)
