"""Did ports keep their configured rate? From the ports' own counters, judged only as finely as counting allows.

Too fast: what came out of a port in a second, against its rate. Too slow: the real backlog (accepted minus delivered) ahead of
the virtual queue, which drains at exactly the configured rate. A port that the machine served late lets the real backlog
grow past it; behind it the real backlog may stay by the shaper's burst, which passes frames at once that the virtual queue
still counts. A faulty link's ports are left out while it is faulty, and counted afresh afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analysis.arrays import NS, Bools, Floats, Ints, ints, percentile
from analysis.view import View

CHUNK_NS = 10**9  # excess is judged over this long: a burst shorter than a second is the token bucket's right
SETTLE_NS = 10**9  # after a fault's end the port's queue starts anew
BACKLOG_SHARE = 0.99  # of a port's samples


@dataclass(frozen=True, slots=True)
class Worst:
    value: float
    port: str


@dataclass(frozen=True, slots=True)
class PortRates:
    """`over`: excess as a share of the rate. `backlog`: frames ahead of the virtual queue. None: nothing to judge."""

    over: Worst | None
    backlog: Worst | None


@dataclass(frozen=True, slots=True)
class _Rows:
    """The ports table sorted by port and time, with the link's faults marked."""

    port: Ints
    t_ns: Ints
    accepted: Ints
    delivered: Ints
    queue: Ints
    rate: Ints
    faulty: Bools
    names: tuple[str, ...]


def port_rates(view: View) -> PortRates:
    """The worst port in either sense, in the window."""
    if not len(view.run.ports):
        return PortRates(None, None)
    rows = _rows(view)
    counted = (rows.t_ns > view.start_ns) & (rows.t_ns <= view.end_ns) & ~rows.faulty
    return PortRates(_over(view, rows, counted), _backlog(view, rows, counted))


def _rows(view: View) -> _Rows:
    table = view.run.ports
    port = np.asarray(table["port"].cat.codes.to_numpy(), dtype=np.int64)
    order = np.lexsort((ints(table, "t_ns"), port))
    return _Rows(
        port=port[order],
        t_ns=ints(table, "t_ns")[order],
        accepted=ints(table, "bytes")[order],
        delivered=ints(table, "delivered_bytes")[order],
        queue=ints(table, "queue_bytes")[order],
        rate=ints(table, "rate_bps")[order],
        faulty=_faulty(view, order),
        names=tuple(str(name) for name in table["port"].cat.categories),
    )


def _faulty(view: View, order: Ints) -> Bools:
    """Rows of a faulty link's ports from the fault to a while after its end."""
    table = view.run.ports
    times = ints(table, "t_ns")[order]
    ends = [np.asarray(table[name].astype("str").to_numpy(dtype=object))[order] for name in ("node", "neighbour")]
    hit = np.zeros(len(times), np.bool_)
    for fault in view.faults:
        until = (fault.end_ns if fault.end_ns is not None else int(np.max(times))) + SETTLE_NS
        held = (times > fault.start_ns) & (times <= until)
        for link in fault.links:
            pair = (link.lower.node, link.upper.node)
            hit |= held & np.isin(ends[0], pair) & np.isin(ends[1], pair)
    return hit


def _over(view: View, rows: _Rows, counted: Bools) -> Worst | None:
    """A frame in transmission at the reading before makes a second look fuller by that much; it is taken off."""
    follows = np.concatenate([[False], rows.port[1:] == rows.port[:-1]])
    width = np.where(follows, np.diff(rows.t_ns, prepend=rows.t_ns[:1]), 0)
    counted = counted & follows
    chunk = (rows.t_ns - view.start_ns) // CHUNK_NS
    edge = np.concatenate([[True], (rows.port[1:] != rows.port[:-1]) | (chunk[1:] != chunk[:-1])])
    group = np.cumsum(edge) - 1

    def total(values: Floats) -> Floats:
        return np.bincount(group, weights=np.where(counted, values, 0.0)).astype(np.float64)

    seconds = total(width / NS)
    could = total(width / NS * rows.rate / 8)
    judged = (seconds >= 0.9 * CHUNK_NS / NS) & (could > 0)
    if not np.any(judged):
        return None
    excess = np.where(
        judged, (total(rows.delivered.astype(np.float64)) - view.frame_bytes) / np.where(judged, could, 1.0) - 1, -1.0
    )
    at = int(np.argmax(excess))
    return Worst(max(0.0, float(excess[at])), rows.names[int(rows.port[np.flatnonzero(edge)[at]])])


def _backlog(view: View, rows: _Rows, counted: Bools) -> Worst | None:
    """Counting begins with an unknown backlog, so the least one seen since then (or since a fault) stands for empty."""
    edge = np.concatenate([[True], (rows.port[1:] != rows.port[:-1]) | (rows.faulty[1:] != rows.faulty[:-1])])
    group = np.cumsum(edge) - 1
    growth = np.cumsum(rows.accepted - rows.delivered)
    least = np.full(int(group[-1]) + 1, np.iinfo(np.int64).max)
    np.minimum.at(least, group, growth)
    ahead = (growth - least[group] - rows.queue) / view.frame_bytes
    worst = Worst(0.0, "")
    for port in np.unique(rows.port[counted]):
        value = percentile(ahead[counted & (rows.port == port)], BACKLOG_SHARE)
        if value > worst.value:
            worst = Worst(value, rows.names[int(port)])
    return worst if np.any(counted) else None
