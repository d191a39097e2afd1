"""One-way delay and jitter over time: percentiles of all packets, and the mean RFC 3550 jitter."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from analysis.arrays import Bools, Floats, Ints
from analysis.figures import style
from analysis.metrics.delay import jitter
from analysis.view import View

NAME = "delay"
QUANTILES = (0.05, 0.5, 0.99)


def draw(view: View, target: style.Target) -> style.Drawn | None:
    packets = view.packets
    arrived = (packets.placed_ns > 0) & (packets.sent_ns >= view.t0_ns) & (packets.sent_ns < view.end_ns)
    edges = style.bin_edges(view, 2 * view.run.scenario.measure.interval_ns)
    if not np.any(arrived) or len(edges) < 2:
        return None
    oneway = (packets.placed_ns - packets.sent_ns) / 1e6
    over_time = _quantiles(view, edges, arrived, oneway)
    wander = _jitter(view, edges)
    middle = (edges[:-1] + edges[1:] - 2 * view.t0_ns) / 2e9
    propagation = [delay / 1e6 for delay in sorted(set(view.run.scenario.links.delay_ns))]
    with style.styled(NAME):
        figure = Figure(figsize=(style.WIDTH, 3.3))
        style.margins(figure, 0.5, 0.15, 0.3, 0.45, hspace=0.12)
        timed, jittered = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
        timed.fill_between(
            middle, over_time[:, 0], over_time[:, 2], color=style.BLUE, alpha=0.18, linewidth=0, label="5th to 99th percentile"
        )
        timed.plot(middle, over_time[:, 1], color=style.BLUE, label="median")
        for at, delay in enumerate(propagation):
            name = "propagation" if at == 0 else None
            timed.axhline(delay, color=style.INK, linestyle=(0, (4, 2)), linewidth=0.9, label=name)
        timed.set_ylim(0, float(np.nanmax(over_time, initial=propagation[-1])) * 1.15)
        timed.set_ylabel("one-way delay (ms)")
        style.legend_above(timed, loc="lower left", bbox_to_anchor=(0.0, 1.0), fontsize=7)
        timed.tick_params(labelbottom=False)
        jittered.plot(middle, wander, color=style.GREEN)
        jittered.set_ylabel("jitter (ms)")
        jittered.set_ylim(bottom=0)
        for axes in (timed, jittered):
            style.shade_faults(axes, view)
            style.time_axis(axes, view, label=axes is jittered, named=axes is jittered)
        columns = (
            {"t_s": middle}
            | {f"oneway_ms_p{100 * q:g}": over_time[:, at] for at, q in enumerate(QUANTILES)}
            | {"jitter_ms": wander}
        )
        style.save(figure, target, NAME, style.data_frame(columns))
    return style.Drawn(
        NAME,
        "One-way delay and jitter over time",
        "Above, percentiles of the packets sent in each bin; below, the mean of the running jitter of all paths. Delay that "
        "rises during a fault shows traffic crowding onto the paths that are left.",
        "Percentiles of one-way delay over time and jitter over time.",
    )


def _quantiles(view: View, edges: Ints, arrived: Bools, oneway: Floats) -> Floats:
    """[bin, quantile] by time of sending; NaN where nothing was sent or recorded."""
    bins = len(edges) - 1
    at = np.searchsorted(edges, view.packets.sent_ns[arrived], side="right") - 1
    table = pd.Series(oneway[arrived]).groupby(at).quantile(np.array(QUANTILES)).unstack()
    return table.reindex(range(bins)).to_numpy(dtype="float64")


def _jitter(view: View, edges: Ints) -> Floats:
    """Mean running J per bin, in ms; NaN where no packet arrived."""
    running = jitter(view)
    bins = len(edges) - 1
    at = np.searchsorted(edges, running.placed_ns, side="right") - 1
    kept = (at >= 0) & (at < bins)
    count = np.bincount(at[kept], minlength=bins)
    total = np.bincount(at[kept], weights=running.j_ns[kept], minlength=bins)
    return np.where(count > 0, total / np.maximum(count, 1) / 1e6, np.nan)
