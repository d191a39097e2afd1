"""Comparisons drawn: a bar per group and metric with its interval, and the differences to the first group."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.compare import Comparison, Row
from analysis.figures import style
from analysis.metrics.definitions import DEFINITIONS

COLUMNS = 4
UNITS = {one.name: one.unit for one in DEFINITIONS}
MARK = "HOLDS INVALID RUNS"


def draw(comparison: Comparison, folder: Path) -> list[style.Drawn]:
    """Write `bars` and `differences` (PNG, SVG, CSV) into `folder`."""
    target = style.Target(folder, MARK if comparison.doubtful else "")
    pairing = "paired by seed" if comparison.paired else "unpaired"
    return [
        _panels(
            comparison,
            target,
            "bars",
            "Means",
            "Mean of each group's runs (bars), with the 95 % bootstrap interval of the mean.",
        ),
        _panels(
            comparison,
            target,
            "differences",
            f"Differences to {comparison.groups[0]}",
            f"Mean difference to the first group, {pairing}, with its 95 % bootstrap interval: one that holds zero shows no "
            "difference. A group of one run has no interval.",
        ),
    ]


def _panels(comparison: Comparison, target: style.Target, name: str, title: str, caption: str) -> style.Drawn:
    metrics = list(dict.fromkeys(row.metric for row in comparison.rows))
    lines = -(-len(metrics) // COLUMNS)
    with style.styled(name):
        figure = Figure(figsize=(style.WIDTH, 0.55 + 1.55 * lines))
        style.margins(figure, 0.6, 0.1, 0.25, 0.42 + 0.14 * len(comparison.groups), hspace=0.45, wspace=0.5)
        grid = figure.subplots(lines, COLUMNS, squeeze=False)
        for at, axes in enumerate(grid.flat):
            if at < len(metrics):
                _panel(axes, [row for row in comparison.rows if row.metric == metrics[at]], differences=name == "differences")
            else:
                axes.set_visible(False)
        handles = [
            grid[0, 0].scatter([], [], color=style.colour(at), marker="s", label=group)
            for at, group in enumerate(comparison.groups)
        ]
        figure.legend(handles=handles, loc="lower left", bbox_to_anchor=(0.06, 0.0), fontsize=7.5)
        kept = [
            "metric",
            "group",
            "runs",
            *(("difference_" if name == "differences" else "") + end for end in ("mean", "low", "high")),
        ]
        style.save(figure, target, name, comparison.table[kept])
    return style.Drawn(name, title, caption, f"{title} of {len(metrics)} metrics for {len(comparison.groups)} groups of runs.")


def _panel(axes: Axes, rows: list[Row], *, differences: bool) -> None:
    for at, row in enumerate(rows):
        interval = row.difference if differences else row.value
        if interval is None:
            continue
        if differences:
            axes.plot([at], [interval.mean], "o", color=style.colour(at), markersize=4)
        else:
            axes.bar([at], [interval.mean], color=style.colour(at), width=0.7)
        if interval.low is not None and interval.high is not None:
            ends = np.abs(np.array([[interval.mean - interval.low], [interval.high - interval.mean]]))
            axes.errorbar([at], [interval.mean], yerr=ends, color=style.INK, capsize=3, linewidth=1, fmt="none")
    if differences:
        axes.axhline(0, color=style.MUTED, linewidth=0.8)
    axes.set_xlim(-0.6, len(rows) - 0.4)
    axes.set_xticks([])
    unit = UNITS.get(rows[0].metric, "")
    axes.set_title(f"{rows[0].metric}{f' ({unit})' if unit else ''}", fontsize=7.5)
    axes.tick_params(axis="y", labelsize=7)
