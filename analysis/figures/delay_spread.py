"""Distributions per plane in the window: one-way delay of every packet, and RFC 3550 jitter of first transmissions."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.arrays import Floats
from analysis.figures import style
from analysis.metrics.delay import jitter
from analysis.view import View

NAME = "delay_spread"
# finer towards 1: the tail is what is looked for
SHARES = np.concatenate([np.linspace(0, 0.9, 181), 1 - np.geomspace(0.1, 1e-4, 121)[1:]])


def draw(view: View, target: style.Target) -> style.Drawn | None:
    packets = view.packets
    arrived = view.in_window & (packets.placed_ns > 0)
    if not np.any(arrived):
        return None
    running = jitter(view)
    counted = (running.placed_ns >= view.start_ns) & (running.placed_ns < view.end_ns)
    plane_of = np.array([path.plane for path in packets.paths], dtype=np.int64)
    columns: dict[str, Floats] = {"share": SHARES}
    with style.styled(NAME):
        figure = Figure(figsize=(style.WIDTH, 2.7))
        style.margins(figure, 0.5, 0.15, 0.3, 0.45, wspace=0.16)
        left, right = figure.subplots(1, 2)
        for plane in range(view.run.scenario.topology.planes):
            here = arrived & (packets.plane == plane)
            oneway = (packets.placed_ns[here] - packets.sent_ns[here]) / 1e6
            wander = running.j_ns[counted & (plane_of[running.path] == plane)] / 1e6
            for axes, what, values in ((left, "oneway_ms", oneway), (right, "jitter_ms", wander)):
                if len(values):
                    curve = np.quantile(values, SHARES)
                    columns[f"plane {plane} {what}"] = curve
                    axes.plot(curve, SHARES, linewidth=1.1, color=style.colour(plane), label=f"plane {plane}")
        for axes, label in ((left, "one-way delay (ms)"), (right, "jitter (ms)")):
            _axis(axes, label)
        for at, delay in enumerate(sorted(set(view.run.scenario.links.delay_ns))):
            name = "propagation" if at == 0 else None
            left.axvline(delay / 1e6, color=style.INK, linestyle=(0, (4, 2)), linewidth=0.9, label=name)
        left.set_ylabel("share of packets")
        style.legend_above(left, loc="lower left", bbox_to_anchor=(0.0, 1.0), fontsize=7)
        style.save(figure, target, NAME, style.data_frame(columns))
    return style.Drawn(
        NAME,
        "One-way delay and jitter: distributions",
        "Share of the window's packets at or below a value. Sender and receiver share one clock, so no offset is guessed. "
        "The steep part of the delay is propagation, the tail is queueing. The time of sending is the sender's own forecast of "
        "when its port lets the frame go; the token bucket may be up to its burst earlier, so values a little below "
        "propagation occur. Jitter is RFC 3550's, kept for each path of a flow, over first transmissions.",
        "Cumulative distributions of one-way delay and of jitter, one curve per plane.",
    )


def _axis(axes: Axes, label: str) -> None:
    axes.set_ylim(0, 1)
    axes.set_xlim(left=0)
    axes.set_xlabel(label)
