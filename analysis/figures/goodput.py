"""Goodput over time: the total against the fluid ideal, and each flow against its own share."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.arrays import Floats
from analysis.figures import style
from analysis.metrics.goodput import binned
from analysis.view import View

NAME = "goodput"
FLOWS_NAMED = 8  # more lines than colours cannot be told apart: then only the range is drawn


def draw(view: View, target: style.Target) -> style.Drawn | None:
    edges = style.bin_edges(view, view.run.scenario.measure.interval_ns)
    if "packets" in view.run.missing or len(edges) < 2 or not view.flows:
        return None
    placed, ideal = binned(view, edges)
    seconds = (edges[1:] - edges[:-1]) / 1e9
    middle = (edges[:-1] - view.t0_ns) / 1e9 + seconds / 2
    total = placed.sum(axis=1) * 8 / seconds / 1e6
    bound = ideal.sum(axis=1) * 8 / seconds / 1e6
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(ideal > 0, placed / ideal, np.nan)
    with style.styled(NAME):
        figure = Figure(figsize=(style.WIDTH, 4.3))
        named = len(view.flows) <= FLOWS_NAMED
        style.margins(figure, 0.55, 0.9 if named else 0.15, 0.5, 0.42, hspace=0.12)
        top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
        top.plot(middle, total, color=style.BLUE, label="goodput, all flows")
        top.plot(middle, bound, color=style.INK, linestyle=(0, (4, 2)), linewidth=1.1, label="fluid ideal")
        top.set_ylabel("goodput (Mbit/s)")
        top.set_ylim(0, _ceiling(total, bound))
        style.legend_above(top, loc="lower left", bbox_to_anchor=(0.0, 1.09))
        style.shade_faults(top, view, label=True)
        style.time_axis(top, view, label=False)
        _flows(bottom, view, middle, ratio, named=named)
        style.shade_faults(bottom, view)
        style.time_axis(bottom, view, named=False)
        columns = {"t_s": middle, "goodput_mbps": total, "ideal_mbps": bound}
        columns |= {
            f"ratio {view.sender(at)}>{view.receiver(at)} ({flow.id})": ratio[:, at] for at, flow in enumerate(view.flows)
        }
        style.save(figure, target, NAME, style.data_frame(columns))
    width_ms = view.run.scenario.measure.interval_ns / 1e6
    return style.Drawn(
        NAME,
        "Goodput over time",
        f"Unique payload placed per {width_ms:g} ms. The dashed line is what a fluid with perfect "
        "knowledge of the faults would "
        "carry; the closer the solid line stays, the better. Below, each flow against its own share of "
        "that ideal: one means it "
        "got all of it. Shaded: faults. A break in a line means that nothing was recorded, not that nothing was sent.",
        "Line chart of total goodput against the fluid ideal over time, and of each flow's ratio to its share.",
    )


def _flows(axes: Axes, view: View, middle: Floats, ratio: Floats, *, named: bool) -> None:
    if named:
        for at in range(len(view.flows)):
            axes.plot(middle, ratio[:, at], linewidth=0.8, alpha=0.9, label=view.label(at))
        axes.legend(
            loc="upper left", bbox_to_anchor=(1.0, 1.05), fontsize=7, handlelength=1.2, labelspacing=0.25, borderaxespad=0.2
        )
    else:
        known = ~np.all(np.isnan(ratio), axis=1)
        low, mid, high = (np.full(len(middle), np.nan) for _ in range(3))
        low[known], mid[known], high[known] = np.nanquantile(ratio[known], (0.0, 0.5, 1.0), axis=1)
        axes.fill_between(middle, low, high, color=style.BLUE, alpha=0.2, linewidth=0, label="slowest to fastest flow")
        axes.plot(middle, mid, color=style.BLUE, label="median flow")
        axes.legend(loc="lower right", ncols=2)
    axes.axhline(1, color=style.INK, linestyle=(0, (4, 2)), linewidth=0.9)
    axes.set_ylabel("flow / its ideal")
    lowest = float(np.nanmin(ratio[middle * 1e9 >= view.start_ns - view.t0_ns], initial=1.0))  # the start-up is no news
    axes.set_ylim(
        0.8 if lowest > 0.8 else 0, max(1.1 if lowest > 0.8 else 1.3, min(2.0, float(np.nanmax(ratio, initial=1.0)) * 1.05))
    )


def _ceiling(*series: Floats) -> float:
    highest = max((float(np.nanmax(values)) for values in series if np.any(~np.isnan(values))), default=1.0)
    return max(highest * 1.08, 1e-6)
