"""A close-up of one fault in base round trips: every packet of the affected flows by path and fate, and the deficit it left."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.arrays import Bools, Floats
from analysis.confirmed import Fault
from analysis.figures import style
from analysis.metrics.faults import SETTLE_RTTS, FaultCost, affected, costs, deficit, watched_until
from analysis.packets import MARKED, TRIMMED
from analysis.view import View

FAULTS_MAX = 6  # a run with twenty faults is judged by its table, not by twenty figures
BEFORE_RTTS = 3.0
AFTER_RTTS = 9.0  # at least; more when recovery took longer
AFTER_RTTS_MAX = 40.0
PATHS_MAX = 48


def name_of(at: int) -> str:
    return f"recovery-{at}"


def draw_all(view: View, target: style.Target) -> list[style.Drawn]:
    every = costs(view)
    drawn = [
        _draw(view, target, at, fault, cost)
        for at, (fault, cost) in enumerate(zip(view.faults, every, strict=True))
        if at < FAULTS_MAX
    ]
    return [figure for figure in drawn if figure is not None]


def _draw(view: View, target: style.Target, at: int, fault: Fault, cost: FaultCost) -> style.Drawn | None:
    packets, rtt = view.packets, view.rtt_base_ns
    flows = affected(view, fault)
    if "packets" in view.run.missing or not flows or view.run.scenario.transport.kind.is_kernels:
        return None  # nobody recorded the kernel's packets one by one
    after = min(AFTER_RTTS_MAX, max(AFTER_RTTS, (cost.recovery_rtts or 0) + 4, (cost.stall_rtts or 0) + 4))
    after = max(after, _peak_rtts(view, fault) + 2)  # the peak is what the stall is read from: it is always in the picture
    start, stop = fault.start_ns - int(BEFORE_RTTS * rtt), fault.start_ns + int(after * rtt)
    kept = (packets.sent_ns >= start) & (packets.sent_ns < stop) & np.isin(packets.flow, flows)
    planes = {path.plane for path in packets.paths if path.ways & fault.ways}
    shown = np.array([path.plane in planes for path in packets.paths] + [False], dtype=np.bool_)[packets.path]
    name = name_of(at)
    with style.styled(name):
        figure = Figure(figsize=(style.WIDTH, 4.0))
        style.margins(figure, 0.75, 0.15, 0.5, 0.42, hspace=0.12)
        top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
        table = _dots(top, view, fault, kept & shown)
        behind = _behind(bottom, view, fault, stop, cost)
        held = (min(stop, fault.end_ns if fault.end_ns is not None else stop) - fault.start_ns) / rtt
        for axes in (top, bottom):
            axes.axvspan(0, held, color=style.FAULT_FILL, alpha=0.08, zorder=0.4, linewidth=0)
            axes.axvline(0, color=style.FAULT_FILL, linewidth=1, zorder=0.5)
        top.text(
            0.0, 1.01, fault.what[:90], transform=top.get_xaxis_transform(), fontsize=7, color=style.FAULT_FILL, va="bottom"
        )
        if cost.recovery_rtts:
            top.axvline(cost.recovery_rtts, color=style.VERMILION, linewidth=1, linestyle=(0, (3, 2)))
            top.text(
                cost.recovery_rtts, 0.985, f" last loss: {cost.recovery_rtts:.2f} RTT", transform=top.get_xaxis_transform(),
                fontsize=7.5, va="top", color=style.VERMILION, zorder=5,
                bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 1},
            )  # fmt: skip
        bottom.set_xlabel(f"time since the fault (base RTTs of {rtt / 1e6:g} ms)")
        bottom.set_xlim(-BEFORE_RTTS, after)
        style.save(figure, target, name, pd.concat([table, behind], ignore_index=True))
    return style.Drawn(
        name,
        f"Recovery from fault {fault.index}: {fault.what[:120]}",
        "Each dot is a data packet of an affected flow, at the time it was sent, on the path that it "
        "took (only planes that the fault "
        "touched; the faulty path is in bold). Crosses never arrived; squares are retransmissions. After "
        "the last cross the senders "
        "have left the dead path. Below, how far the affected flows fell behind their usual rate, in "
        f"round trips of that rate; its peak is the stall. It is looked for until {SETTLE_RTTS} round trips after the fault's "
        "end, so whatever held the flows up in that time, the machine too, reads as this fault's: a peak far from both of "
        "its moments is a reason to look at the machine's lag there.",
        f"Scatter of packets per path around fault {fault.index}, and the deficit of placed bytes.",
    )


def _peak_rtts(view: View, fault: Fault) -> float:
    """When the deficit is largest, after the fault; 0 where it cannot be told."""
    measured = deficit(view, fault, watched_until(view, fault))
    if measured is None or measured.rate <= 0:
        return 0.0
    return float(measured.t_ns[int(np.argmax(measured.bytes_behind))] - fault.start_ns) / view.rtt_base_ns


def _dots(axes: Axes, view: View, fault: Fault, kept: Bools) -> pd.DataFrame:
    """Draw the packets; returns what was drawn."""
    packets = view.packets
    used = [packets.paths[at] for at in np.unique(packets.path[kept])]
    rows = sorted({(path.plane, path.ev, path.name) for path in used})
    row_of = {row: at for at, row in enumerate(rows)}
    row_at = np.array([row_of.get((path.plane, path.ev, path.name), -1) for path in packets.paths] + [-1], dtype=np.int64)
    row = row_at[packets.path[kept]]
    x = (packets.sent_ns[kept] - fault.start_ns) / view.rtt_base_ns
    fate, lost, again = packets.fate[kept], packets.never_arrived[kept], packets.retransmission[kept]
    flow = packets.flow[kept]
    spread = (flow - flow.min()) / max(1, int(np.ptp(flow))) - 0.5 if len(flow) else flow.astype(np.float64)
    y = row + 0.6 * spread  # flows side by side within a path's row
    hurt = (fate == MARKED) | (fate == TRIMMED)
    plain = ~lost & ~again & ~hurt
    _scatter(axes, x[plain], y[plain], "o", 5, "#8fb8d3", "arrived")
    _scatter(axes, x[hurt & ~lost & ~again], y[hurt & ~lost & ~again], "o", 6, style.ORANGE, "marked or trimmed")
    _scatter(axes, x[again & ~lost], y[again & ~lost], "s", 11, style.GREEN, "retransmission")
    _scatter(axes, x[lost], y[lost], "x", 14, style.VERMILION, "never arrived")
    faulty = {path.name for path in packets.paths if path.ways & fault.ways}
    if len(rows) <= PATHS_MAX:
        axes.set_yticks(range(len(rows)), [name for _, _, name in rows], fontsize=7)
        for label, (_, _, name) in zip(axes.get_yticklabels(), rows, strict=True):
            if name in faulty:
                label.set_fontweight("bold")
                label.set_color(style.VERMILION)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_ylabel("path")
    if axes.get_legend_handles_labels()[0]:
        style.legend_above(axes, loc="lower left", bbox_to_anchor=(0.0, 1.07), fontsize=7.5, handletextpad=0.2)
    names = np.array([name for _, _, name in rows], dtype=object)
    columns = {"what": np.full(len(x), "packet"), "rtts": x, "path": names[row], "flow": flow, "lost": lost}
    return style.data_frame(columns | {"retransmission": again, "marked_or_trimmed": hurt})


def _scatter(axes: Axes, x: Floats, y: Floats, marker: str, size: float, colour: str, label: str) -> None:
    if len(x):
        axes.scatter(
            x,
            y,
            s=size,
            marker=marker,
            color=colour,
            linewidths=0.9 if marker == "x" else 0,
            label=label,
            rasterized=True,
            zorder=3,
        )


def _behind(axes: Axes, view: View, fault: Fault, stop: int, cost: FaultCost) -> pd.DataFrame:
    """Deficit since just before the fault, as time at the expected rate, in RTTs. A gap in the records leaves it out.

    Returns what was drawn.
    """
    measured = deficit(view, fault, watched_until(view, fault))
    axes.axhline(0, color=style.MUTED, linewidth=0.7)
    axes.set_ylabel("behind (RTTs)")
    if measured is None or measured.rate <= 0:
        text = "no undisturbed time before the fault, or a gap in the records: no usual rate to compare with"
        axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", color=style.MUTED)
        return pd.DataFrame({"what": [], "rtts": [], "behind_rtts": []})
    shown = measured.t_ns <= stop
    x = (measured.t_ns - fault.start_ns) / view.rtt_base_ns
    y = measured.bytes_behind / measured.rate * 1e9 / view.rtt_base_ns
    peak = int(np.argmax(y))
    axes.plot(x[shown], y[shown], color=style.BLUE, linewidth=1.1)
    axes.fill_between(x[shown], 0, y[shown], color=style.BLUE, alpha=0.12, linewidth=0)
    visible = y[shown] if np.any(shown) else y
    axes.set_ylim(min(-0.5, float(np.min(visible)) * 1.15), max(1.0, float(np.max(visible)) * 1.3))
    if cost.stall_rtts is not None:
        text = f"stall: {cost.stall_rtts:.2f} RTT, reached {x[peak]:.1f} RTTs after the fault"
        axes.text(0.99, 0.95, text, transform=axes.transAxes, fontsize=7.5, color=style.BLUE, ha="right", va="top")
    return style.data_frame({"what": np.full(int(shown.sum()), "deficit"), "rtts": x[shown], "behind_rtts": y[shown]})
