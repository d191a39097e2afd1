"""A suite drawn: for each metric that matters a bar per member, its median run, with the span of its runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from analysis.figures import style
from analysis.metrics.definitions import DEFINITIONS

COLUMNS = 3
UNITS = {one.name: one.unit for one in DEFINITIONS}


def draw(table: pd.DataFrame, names: Sequence[str], metrics: Sequence[str], folder: Path, figure_name: str = "members") -> None:
    """Write `figure_name` (PNG, SVG, CSV): the members `names` in this order.

    `table`: a row per run that counts, with `member` and the metrics as columns.
    """
    columns = min(COLUMNS, len(metrics))
    lines = -(-len(metrics) // columns)
    rows = []
    with style.styled(figure_name):
        left = 0.3 + 0.062 * max(map(len, names))
        figure = Figure(figsize=(style.WIDTH * columns / COLUMNS + left, 0.5 + lines * (0.55 + 0.19 * len(names))))
        style.margins(figure, left, 0.15, 0.35, 0.3, hspace=0.35, wspace=0.15)
        grid = figure.subplots(lines, columns, squeeze=False, sharey=True)
        for axes in grid.flat[len(metrics) :]:
            axes.set_visible(False)
        for axes, metric in zip(grid.flat, metrics, strict=False):
            by_member = table.groupby("member", sort=False)[metric]
            spans = pd.DataFrame({"median": by_member.median(), "low": by_member.min(), "high": by_member.max()}).reindex(
                list(names)
            )
            rows.append(spans.rename_axis("member").reset_index().assign(metric=metric))
            at = range(len(names))
            axes.barh(at, spans["median"].fillna(0.0), color=style.BLUE, height=0.65)
            axes.hlines(at, spans["low"], spans["high"], color=style.INK, linewidth=1)
            for place, value in zip(at, spans["median"], strict=True):
                text = "\u2013" if pd.isna(value) else f"{value:.3g}"
                axes.annotate(
                    text,
                    (0.0 if pd.isna(value) else value, place),
                    xytext=(3, 0),
                    textcoords="offset points",
                    va="center",
                    fontsize=6.5,
                )
            axes.margins(x=0.25)  # room for the numbers
            unit = UNITS.get(metric, "ms" if metric.endswith("_ms") else "")
            axes.set_title(f"{metric}{f' ({unit})' if unit else ''}", fontsize=7.5)
            axes.set_yticks(list(at), names, fontsize=7)
            axes.tick_params(axis="x", labelsize=7)
            axes.grid(visible=True, axis="x")
            axes.grid(visible=False, axis="y")
        grid[0, 0].invert_yaxis()
        style.save(figure, style.Target(folder), figure_name, pd.concat(rows, ignore_index=True))
