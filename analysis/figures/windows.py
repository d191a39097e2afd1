"""What senders allowed themselves and what they saw: window and bytes in flight, and the smoothed round trip of each plane."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from analysis.arrays import Floats, Ints, bins_ending, floats, ints, is_text
from analysis.figures import style
from analysis.view import View

NAME = "windows"


def draw(view: View, target: style.Target) -> style.Drawn | None:
    table = view.run.samples
    mine = is_text(table, "role", "sender")
    edges = style.bin_edges(view, view.run.scenario.measure.interval_ns)
    if not np.any(mine) or len(edges) < 2:
        return None
    at = bins_ending(edges, ints(table, "t_ns")[mine])
    frame = view.run.scenario.transport.payload
    planes, flow = ints(table, "plane")[mine], ints(table, "flow")[mine]
    # TCP's subflows have a window each; a flow of ours has one, which every plane's row repeats
    of_flow = "sum" if view.run.scenario.transport.kind.is_kernels else "max"
    per_flow = {
        name: _per_flow(len(edges) - 1, at, flow, ints(table, name)[mine], of_flow) / frame for name in ("window", "inflight")
    }
    rtt = floats(table, "rtt_us")[mine] / 1e3
    rtt = np.where(rtt > 0, rtt, np.nan)
    middle = (edges[:-1] + edges[1:] - 2 * view.t0_ns) / 2e9
    columns: dict[str, Floats] = {"t_s": middle}
    with style.styled(NAME):
        figure = Figure(figsize=(style.WIDTH, 3.5))
        style.margins(figure, 0.5, 0.15, 0.3, 0.45, hspace=0.22)
        top, bottom = figure.subplots(2, 1, sharex=True)
        for name, label, colour in (("window", "window", style.INK), ("inflight", "in flight", style.BLUE)):
            low, mid, high = (per_flow[name][:, column] for column in range(3))
            top.fill_between(middle, low, high, color=colour, alpha=0.15, linewidth=0)
            top.plot(middle, mid, color=colour, label=f"{label}, median flow")
            columns |= {f"{name}_frames min": low, f"{name}_frames median": mid, f"{name}_frames max": high}
        for plane in range(view.run.scenario.topology.planes):
            series = _median(len(edges) - 1, at[planes == plane], rtt[planes == plane])
            columns[f"rtt_ms plane {plane}"] = series
            bottom.plot(middle, series, color=style.colour(plane), linewidth=1.1, label=f"plane {plane}")
        base = view.rtt_base_ns / 1e6
        bottom.axhline(base, color=style.INK, linestyle=(0, (4, 2)), linewidth=0.9, label="base")
        top.set_ylabel("frames per flow")
        bottom.set_ylabel("smoothed RTT (ms)")
        for axes in (top, bottom):
            axes.set_ylim(0, axes.get_ylim()[1] * 1.08)
            style.shade_faults(axes, view)
            style.time_axis(axes, view, label=axes is bottom, named=axes is top)
            style.legend_above(axes, loc="lower left", bbox_to_anchor=(0.0, 1.0), fontsize=7, ncols=10)
        style.save(figure, target, NAME, style.data_frame(columns))
    return style.Drawn(
        NAME,
        "Window and round trip",
        "Above, in full payloads: what a flow may have in flight, and what it has, at the end of each interval; line: median "
        "flow, band: all flows. Below, each plane's smoothed RTT as senders hold it, median over flows. An RTT above the base "
        "is queueing, in the fabric or for the machine's processor.",
        "Window and bytes in flight per flow over time, and round trip per plane over time.",
    )


def _per_flow(bins: int, at: Ints, flow: Ints, values: Ints, of_flow: str) -> Floats:
    """[bin, (min, median, max)] over flows, whose rows of one interval, one per plane, are put together by `of_flow`."""
    kept = (at >= 0) & (at < bins)
    each = (
        pd.DataFrame({"bin": at[kept], "flow": flow[kept], "value": values[kept]})
        .groupby(["bin", "flow"])["value"]
        .agg(of_flow)
    )
    over = each.groupby("bin").agg(["min", "median", "max"]).reindex(range(bins))
    return over.to_numpy(dtype="float64")


def _median(bins: int, at: Ints, values: Floats) -> Floats:
    kept = (at >= 0) & (at < bins)
    medians = pd.Series(values[kept]).groupby(at[kept]).median().reindex(range(bins))
    return np.asarray(medians.to_numpy(dtype="float64"), dtype=np.float64)
