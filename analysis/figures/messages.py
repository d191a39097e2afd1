"""How long messages took: cumulative distributions by job."""

from __future__ import annotations

from collections import Counter, defaultdict

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.arrays import Floats, ints, is_text
from analysis.figures import style
from analysis.view import View

NAME = "messages"
CURVE_POINTS = 1000  # a job with more messages is drawn, and listed, at so many quantiles


def draw(view: View, target: style.Target) -> style.Drawn | None:
    took = completion_ms(view)
    if not took:
        return None
    best = ideal_ms(view)
    parts = []
    with style.styled(NAME):
        figure = Figure(figsize=(style.WIDTH, 2.5))
        style.margins(figure, 0.5, 0.15, 0.3, 0.45)
        axes = figure.subplots()
        for at, (job, values) in enumerate(took.items()):
            curve, share = _curve(values)
            axes.step(curve, share, where="post", color=style.colour(at), label=f"{job} ({len(values)})")
            parts.append(pd.DataFrame({"job": job, "ms": curve, "share": share}))
            if job in best:
                axes.axvline(best[job], color=style.colour(at), linestyle=(0, (4, 2)), linewidth=0.9)
        _axis(axes, max(float(values[-1]) for values in took.values()))
        style.legend_above(axes, loc="lower left", bbox_to_anchor=(0.0, 1.0), fontsize=7)
        style.save(figure, target, NAME, pd.concat(parts, ignore_index=True))
    return style.Drawn(
        NAME,
        "Message completion times",
        "Share of the messages posted in the window that were complete within a time, from post to completion, by job "
        "(number of messages). Dashed: the mean it would be if every flow had its ideal rate: a closed loop with that many "
        "messages outstanding gives exactly this (Little's law), so times spread to both sides of it.",
        "Cumulative distribution of message completion times by job.",
    )


def completion_ms(view: View) -> dict[str, Floats]:
    """Sorted completion times by job, of good messages posted in the window."""
    table = view.run.messages
    posted, done = ints(table, "post_ns"), ints(table, "complete_ns")
    kept = is_text(table, "verdict", "ok") & (done > 0) & (posted >= view.start_ns) & (posted < view.end_ns)
    found = {}
    for job in sorted(str(name) for name in table["job"].cat.categories):
        mine = kept & is_text(table, "job", job)
        if np.any(mine):
            found[job] = np.sort((done[mine] - posted[mine]) / 1e6)
    return found


def ideal_ms(view: View) -> dict[str, float]:
    """By job, the mean completion time at the ideal rate: bytes outstanding in all its flows over their rates together."""
    spans = np.array([[view.start_ns, view.end_ns]], dtype=np.int64)
    outstanding, rates = Counter[str](), defaultdict[str, float](float)
    for at, flow in enumerate(view.flows):
        outstanding[flow.job] += flow.depth * flow.message
        rates[flow.job] += view.ideal.bytes_in(at, spans) / max(1, view.end_ns - view.start_ns) * 1e6  # bytes per ms
    return {job: outstanding[job] / rate for job, rate in rates.items() if rate > 0}


def _curve(values: Floats) -> tuple[Floats, Floats]:
    """(times, share complete by then): every message, or CURVE_POINTS of them."""
    share = np.arange(1, len(values) + 1) / len(values)
    if len(values) <= CURVE_POINTS:
        return values, share
    kept = np.unique(np.linspace(0, len(values) - 1, CURVE_POINTS).astype(np.int64))
    return values[kept], share[kept]


def _axis(axes: Axes, longest: float) -> None:
    axes.set_ylim(0, 1.02)
    axes.set_xlim(0, longest * 1.05)
    axes.set_xlabel("post to completion (ms)")
    axes.set_ylabel("share of messages")
