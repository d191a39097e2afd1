"""Counts of the window: what senders sent and learnt (packets table), what ports did (ports table), what EVs went through.

`packets_trimmed` and `packets_dropped_*` are the ports' own counters; `nacks` and `packets_marked` are what senders learnt.
"""

from __future__ import annotations

import numpy as np

from analysis.arrays import Bools, Ints, ints, is_text
from analysis.packets import MARKED, TRIMMED
from analysis.view import View


def measure(view: View) -> dict[str, float]:
    return {**_sent(view), **_ports(view), **_evs(view), **_planes(view)}


def _sent(view: View) -> dict[str, float]:
    if view.run.scenario.transport.kind.is_kernels:
        return _segments(view)
    if "packets" in view.run.missing:
        return {}
    packets, counted = view.packets, view.in_window
    sent = int(np.sum(counted))
    found = {
        "packets_sent": float(sent),
        "packets_marked": float(np.sum(counted & (packets.fate == MARKED))),
        "nacks": float(np.sum(counted & (packets.fate == TRIMMED))),
    }
    if sent:
        found["retransmit_ratio"] = float(np.sum(counted & packets.retransmission)) / sent
        found["spurious_retransmit_ratio"] = float(np.sum(counted & packets.duplicate)) / sent
    return found


def _segments(view: View) -> dict[str, float]:
    """TCP's segments with data, as the senders' kernels counted them per interval."""
    table = view.run.samples
    if "samples" in view.run.missing:
        return {}
    times = ints(table, "t_ns")
    counted = (times > view.start_ns) & (times <= view.end_ns) & is_text(table, "role", "sender")
    sent, again = (float(np.sum(ints(table, name)[counted])) for name in ("segments", "retransmissions"))
    return {"packets_sent": sent} | ({"retransmit_ratio": again / sent} if sent else {})


def _ports(view: View) -> dict[str, float]:
    if "ports" in view.run.missing:
        return {}
    times = ints(view.run.ports, "t_ns")
    counted = (times > view.start_ns) & (times <= view.end_ns)
    names = ("trimmed", "dropped_queue", "dropped_fault")
    return {f"packets_{name}": float(np.sum(ints(view.run.ports, name)[counted])) for name in names}


def _evs(view: View) -> dict[str, float]:
    """Entries into a state: into ASSUMED_BAD from use is a retirement, from it back to GOOD a restoration, into SKIP a skip."""
    events = view.run.events
    if "events" in view.run.missing:
        return {}
    times = ints(events, "t_ns")
    counted = is_text(events, "kind", "ev_state") & (times >= view.start_ns) & (times < view.end_ns)
    bad_before, bad_after = is_text(events, "before", "ASSUMED_BAD"), is_text(events, "after", "ASSUMED_BAD")
    return {
        "evs_retired": float(np.sum(counted & bad_after & ~bad_before)),
        "evs_restored": float(np.sum(counted & bad_before & is_text(events, "after", "GOOD"))),
        "evs_skipped": float(np.sum(counted & is_text(events, "after", "SKIP"))),
    }


def _planes(view: View) -> dict[str, float]:
    """`plane_imbalance`: max/mean - 1 of payload bytes sent per plane, while no fault takes a whole plane from any host."""
    packets, planes = view.packets, view.run.scenario.topology.planes
    counted = view.in_window & ~_plane_missing(view, packets.sent_ns)
    sent = np.bincount(packets.plane[counted], weights=packets.size[counted], minlength=planes)
    if planes < 2 or not np.any(sent > 0):
        return {}
    return {"plane_imbalance": float(np.max(sent) / np.mean(sent) - 1)}


def _plane_missing(view: View, times_ns: Ints) -> Bools:
    missing = np.zeros(times_ns.shape, np.bool_)
    for fault in view.faults:
        if fault.removes_plane:
            missing |= (times_ns >= fault.start_ns) & (times_ns < (fault.end_ns or np.iinfo(np.int64).max))
    return missing
