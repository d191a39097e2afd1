"""What each fault cost (DESIGN 4.4): packets swallowed, how long the swallowing went on, and the stall that users saw.

A packet was swallowed by a fault when it never arrived and was sent on a path over the faulty link, in an affected direction,
while the fault held or up to one one-way delay before (it may still have been on its way to the link). With several faults on
one path at one time a packet counts for each. A link that only became slower swallows nothing: its cost is the stall.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import permutations

import numpy as np

from analysis.arrays import NS, Bools, Floats, Ints, ints
from analysis.confirmed import Fault
from analysis.view import View
from testbed.model.scenario import Routing

SETTLE_RTTS = 20  # DESIGN 4.4: stalls are watched until 20 base RTTs after the fault's end
UNDISTURBED_RTTS = 5  # less undisturbed time than this says nothing about a flow's usual rate


@dataclass(frozen=True, slots=True)
class FaultCost:
    """One entry of summary.json's `faults`. None: cannot be told from the records."""

    what: str
    at_s: float
    until_s: float | None
    recovery_ms: float | None
    recovery_rtts: float | None
    stall_ms: float | None
    stall_rtts: float | None
    packets_lost: int | None


@dataclass(frozen=True, slots=True)
class Deficit:
    """Bytes that the affected flows are behind their usual rate since the fault. `rate` is their expected mean in byte/s."""

    t_ns: Ints
    bytes_behind: Floats
    rate: float


def costs(view: View) -> tuple[FaultCost, ...]:
    return tuple(_cost(view, fault) for fault in view.faults)


def measure(view: View) -> dict[str, float]:
    found: dict[str, float] = {}
    every = [asdict(cost) for cost in costs(view)]
    for name in ("recovery_ms", "recovery_rtts", "stall_ms", "stall_rtts"):
        values = [entry[name] for entry in every if entry[name] is not None]
        if values and len(values) == len(every):  # one unknown makes the maximum unknown
            found[f"{name}_max"] = float(max(values))
    return found


def _cost(view: View, fault: Fault) -> FaultCost:
    recovery: float | None = None
    count: int | None = None
    if view.run.scenario.transport.kind.is_kernels:
        count, recovery = _from_ports(view, fault)
    elif "packets" not in view.run.missing:
        lost = view.packets.sent_ns[swallowed(view, fault)]
        count, recovery = len(lost), _recovery_ns(view, fault, lost)
    stall = _stall_ns(view, fault)
    rtt = view.rtt_base_ns
    return FaultCost(
        what=fault.what,
        at_s=(fault.start_ns - view.t0_ns) / NS,
        until_s=None if fault.end_ns is None else (fault.end_ns - view.t0_ns) / NS,
        recovery_ms=None if recovery is None else recovery / 1e6,
        recovery_rtts=None if recovery is None else recovery / rtt,
        stall_ms=None if stall is None else stall / 1e6,
        stall_rtts=None if stall is None else stall / rtt,
        packets_lost=count,
    )


def swallowed(view: View, fault: Fault) -> Bools:
    """Packets that `fault` swallowed."""
    packets = view.packets
    if not fault.swallows:
        return np.zeros(packets.sent_ns.shape, np.bool_)
    oneway = view.rtt_base_ns // 2
    held = (packets.sent_ns >= fault.start_ns - oneway) & (packets.sent_ns < _end(view, fault))
    return packets.never_arrived & held & packets.crossing(fault)


def _end(view: View, fault: Fault) -> int:
    return fault.end_ns if fault.end_ns is not None else max(view.end_ns, fault.start_ns)


def _recovery_ns(view: View, fault: Fault, lost_ns: Ints) -> float:
    """Fault to the send time of the last swallowed packet; the fault's length when it swallowed packets to its end.

    It did so when the quiet before its end is no longer than the quiet between losses. Packets that were already on their
    way when it began cost nothing that a transport could avoid, so recovery is never negative.
    """
    if not len(lost_ns):
        return 0.0
    end = _end(view, fault)
    ordered = np.sort(lost_ns)
    if len(ordered) > 1 and end - ordered[-1] <= np.max(np.diff(ordered)):
        return float(end - fault.start_ns)
    return float(max(0, ordered[-1] - fault.start_ns))


def _from_ports(view: View, fault: Fault) -> tuple[int | None, float | None]:
    """(packets swallowed, ns from the fault to the last of them) as the faulty links' own ports counted them, per interval.

    Where the kernel's stack sends there are no records of single packets; all count, acknowledgements too. Beside BGP,
    which goes on trying a dead link, nothing can be told.
    """
    table = view.run.ports
    if not fault.swallows:
        return 0, 0.0
    if "ports" in view.run.missing or view.run.scenario.routing.kind is Routing.BGP:
        return None, None
    ends = {(a, b) for link in fault.links for a, b in permutations((link.lower.node, link.upper.node))}
    pairs = list(zip(table["node"].astype(str), table["neighbour"].astype(str), strict=True))
    here = np.array([pair in ends for pair in pairs], dtype=np.bool_)
    times, swallowed_here = ints(table, "t_ns"), ints(table, "dropped_fault")
    end = _end(view, fault)
    hit = here & (swallowed_here > 0) & (times > fault.start_ns) & (times <= end + 2 * view.run.scenario.measure.interval_ns)
    if not np.any(hit):
        return 0, 0.0
    last = min(int(np.max(times[hit])), end)
    return int(np.sum(swallowed_here[hit])), float(last - fault.start_ns)


def _stall_ns(view: View, fault: Fault) -> float | None:
    behind = deficit(view, fault, watched_until(view, fault))
    if behind is None:
        return None
    if behind.rate <= 0:
        return 0.0
    return float(max(0.0, np.max(behind.bytes_behind))) / behind.rate * NS


def watched_until(view: View, fault: Fault) -> int:
    """How long a fault's stall is watched for: 20 base RTTs after its end, within the window."""
    return min(_end(view, fault) + SETTLE_RTTS * view.rtt_base_ns, view.end_ns)


def affected(view: View, fault: Fault) -> tuple[int, ...]:
    """Indices of flows that used a path over the faulty links, in an affected direction, in this run."""
    return tuple(sorted({path.flow for path in view.packets.paths if path.ways & fault.ways}))


def deficit(view: View, fault: Fault, stop_ns: int) -> Deficit | None:
    """Expected minus placed bytes of the affected flows from the fault's start (where it is zero) to `stop_ns`.

    Expected is each flow's ideal times its own goodput ratio in the undisturbed part of the window before the fault. None
    when that part is too short, or a receiver was not recording throughout.
    """
    flows, start_ns = affected(view, fault), fault.start_ns
    before = _undisturbed(view, fault)
    enough = UNDISTURBED_RTTS * view.rtt_base_ns
    if "packets" in view.run.missing or stop_ns <= start_ns or int(np.sum(before[:, 1] - before[:, 0])) < enough:
        return None
    if not flows:
        return Deficit(np.array([start_ns, stop_ns], np.int64), np.zeros(2), 0.0)
    came = view.arrivals
    mine = np.isin(came.flow, flows)
    after = mine & (came.placed_ns >= start_ns) & (came.placed_ns < stop_ns)
    order = np.argsort(came.placed_ns[after], kind="stable")
    times, sizes = came.placed_ns[after][order], came.size[after][order]
    watched = np.append(times, stop_ns)
    expected = np.zeros(len(watched))
    rate = 0.0
    for flow in flows:
        own = mine & (came.flow == flow)
        usual = _ratio(view, flow, came.placed_ns[own], came.size[own], before)
        recorded = view.spans(flow, start_ns, stop_ns)
        if usual is None or int(np.sum(recorded[:, 1] - recorded[:, 0])) < stop_ns - start_ns:
            return None
        begun = float(view.ideal.bytes_by(flow, np.array([start_ns]))[0])
        expected += usual * (view.ideal.bytes_by(flow, watched) - begun)
        rate += usual * view.ideal.bytes_in(flow, np.array([[start_ns, stop_ns]])) / ((stop_ns - start_ns) / NS)
    # between two arrivals the deficit only grows, so its peaks are just before each arrival
    placed_before = np.concatenate([[0.0], np.cumsum(sizes, dtype=np.float64)])
    return Deficit(watched, expected - placed_before, rate)


def _undisturbed(view: View, fault: Fault) -> Ints:
    """Spans of the window before `fault` in which no earlier fault held or was being settled."""
    spans: list[tuple[int, int]] = []
    cursor = view.start_ns
    for other in view.faults:
        if other.start_ns >= fault.start_ns:
            break
        if other.start_ns > cursor:
            spans.append((cursor, other.start_ns))
        cursor = max(cursor, _end(view, other) + SETTLE_RTTS * view.rtt_base_ns)
    if fault.start_ns > cursor:
        spans.append((cursor, min(fault.start_ns, view.end_ns)))
    return np.array(spans, dtype=np.int64).reshape(-1, 2)


def _ratio(view: View, flow: int, placed_ns: Ints, sizes: Ints, spans: Ints) -> float | None:
    """A flow's goodput over its ideal within `spans`; None when there is nothing to compare."""
    ideal = view.ideal.bytes_in(flow, spans)
    if ideal <= 0:
        return None
    placed = sum(int(np.sum(sizes[(placed_ns >= start) & (placed_ns < end)])) for start, end in spans)
    return placed / ideal
