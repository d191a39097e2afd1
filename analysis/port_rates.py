"""Did ports keep their configured rate? Delivered bytes over time, judged only as finely as counting allows.

A counter read every interval may be off by the frame in transmission at either end, so a frame is taken off an excess, and
added to a shortfall, for each stretch that is judged. Intervals in which a fault touched the link are left out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analysis.arrays import NS, Bools, Ints, ints
from analysis.view import View

CHUNK_NS = 10**9  # excess is judged over this long: a burst shorter than a second is the token bucket's right
MIN_STRETCH_FRAMES = 20  # a queue that lasted less says too little: one frame would be over 5 %


@dataclass(frozen=True, slots=True)
class Worst:
    """`error` is a share of the configured rate, never negative."""

    error: float
    port: str


@dataclass(frozen=True, slots=True)
class PortRates:
    """None: no port gave anything to judge."""

    over: Worst | None
    under: Worst | None


def port_rates(view: View) -> PortRates:
    """The worst excess over any second, and the worst shortfall over any stretch in which a queue stood."""
    table = view.run.ports
    times = ints(table, "t_ns")
    kept = (times > view.start_ns) & (times <= view.end_ns)
    if not np.any(kept):
        return PortRates(None, None)
    port = np.asarray(table["port"].cat.codes.to_numpy(), dtype=np.int64)[kept]
    order = np.lexsort((times[kept], port))
    port, times = port[order], times[kept][order]
    delivered, rate, queue = (ints(table, name)[kept][order] for name in ("delivered_bytes", "rate_bps", "queue_bytes"))
    names = [str(name) for name in table["port"].cat.categories]
    follows = np.concatenate([[False], port[1:] == port[:-1]])  # has an earlier row of the same port: a length is known
    width = np.where(follows, np.diff(times, prepend=times[:1]), 0)
    whole = follows & (width < 2 * view.run.scenario.measure.interval_ns) & ~_faulty(view, kept, order, times)
    stood = np.zeros(len(port), np.bool_)
    stood[1:] = (queue[1:] > view.frame_bytes) & (queue[:-1] > view.frame_bytes)
    chunk = (times - view.start_ns) // CHUNK_NS
    return PortRates(
        over=_worst(_Rows(port, delivered, rate, width), whole, chunk, -view.frame_bytes, 0.9 * CHUNK_NS, names),
        under=_worst(_Rows(port, delivered, rate, width), whole & stood, None, view.frame_bytes, 0.0, names),
    )


@dataclass(frozen=True, slots=True)
class _Rows:
    port: Ints
    delivered: Ints
    rate: Ints
    width: Ints


def _worst(rows: _Rows, kept: Bools, chunk: Ints | None, allowance: int, min_ns: float, names: list[str]) -> Worst | None:
    """Sum each run of neighbouring kept rows of one port (and chunk) and compare with its rate.

    `allowance` bytes are added per run; a negative one looks for excess, a positive one for shortfall.
    """
    edge = np.concatenate([[True], (rows.port[1:] != rows.port[:-1]) | (kept[1:] != kept[:-1])])
    if chunk is not None:
        edge |= np.concatenate([[True], chunk[1:] != chunk[:-1]])
    group = np.cumsum(edge) - 1
    size = int(group[-1]) + 1
    width = np.bincount(group, weights=np.where(kept, rows.width, 0), minlength=size)
    could = np.bincount(group, weights=np.where(kept, rows.width / NS * rows.rate / 8, 0), minlength=size)
    did = np.bincount(group, weights=np.where(kept, rows.delivered, 0), minlength=size)
    judged = (width >= max(min_ns, 1)) & (could >= MIN_STRETCH_FRAMES * abs(allowance))
    if not np.any(judged):
        return None
    with np.errstate(divide="ignore", invalid="ignore"):
        excess = np.where(judged, (did + allowance) / could - 1, 0.0)
    error = np.maximum(excess if allowance < 0 else -excess, 0.0)
    at = int(np.argmax(error))
    return Worst(float(error[at]), names[int(rows.port[np.flatnonzero(edge)[at]])])


def _faulty(view: View, kept: Bools, order: Ints, times: Ints) -> Bools:
    """Rows of a faulty link's ports from a little before the fault to a second after (its queue restarts)."""
    table = view.run.ports
    hit = np.zeros(len(times), np.bool_)
    node, neighbour = (table[name].to_numpy(dtype=object)[kept][order] for name in ("node", "neighbour"))
    for fault in view.faults:
        end = (fault.end_ns if fault.end_ns is not None else view.end_ns) + CHUNK_NS
        held = (times > fault.start_ns) & (times <= end)
        for link in fault.links:
            one, other = link.lower.node, link.upper.node
            hit |= held & (((node == one) & (neighbour == other)) | ((node == other) & (neighbour == one)))
    return hit
