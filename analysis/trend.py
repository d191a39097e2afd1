"""The history as one self-contained page: each gated metric over the nights, and the nights on which it changed.

Change points by optimal partitioning (Jackson et al., An Algorithm for Optimal Partitioning of Data on an Interval, 2005): of
all ways to cut the series into pieces of constant mean, the one with the least squared error in units of its night-to-night
scatter, where each cut costs what chance may gain by one. A change smaller than half of what the metric's gate allows is none.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from analysis import history, pages
from analysis.arrays import Floats
from analysis.gates import GATES
from analysis.judge import write_atomically
from analysis.metrics.definitions import DEFINITIONS

SHORTEST = 4  # nights on either side: fewer cannot be told from a bad week-end
CUT = 14.0  # a page has hundreds of series: with CUT_LOG it lets fewer than one in a hundred of pure noise through
CUT_LOG = 4.0
WIDTH, HEIGHT, PAD = 320, 90, 6
UNITS = {one.name: one.unit for one in DEFINITIONS}


@dataclass(frozen=True, slots=True)
class Change:
    """From the night at `at` on, the mean was `after` where it had been `before`."""

    at: int
    before: float
    after: float


@dataclass(frozen=True, slots=True)
class Panel:
    """One series, drawn: `points` for an SVG polyline, `changes` as (x, night, commit, before, after)."""

    member: str
    metric: str
    unit: str
    last: float
    lowest: float
    highest: float
    points: str
    dots: tuple[tuple[float, float, str], ...]
    changes: tuple[tuple[float, str, str, float, float], ...]


def write(path: Path, page: Path) -> Path:
    """The page of the history at `path`."""
    rows = history.read(path)
    panels = list(_panels(rows))
    text = pages.template("trend.html.j2").render(
        suite=rows["suite"].iloc[-1] if len(rows) else "",
        nights=rows["run_id"].nunique(),
        members=list(dict.fromkeys(panel.member for panel in panels)),
        panels=panels,
        changed=[panel for panel in panels if panel.changes],
        lacking=[(_night(row), row["member"], row["state"]) for _, row in rows[rows["metric"] == ""].iterrows()],
        size=(WIDTH, HEIGHT),
    )
    page.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(page, text)
    return page


def change_points(values: Floats, least: float) -> list[Change]:
    """Where the mean of a series changed by more than `least`, in order."""
    if len(values) < 2 * SHORTEST:
        return []
    edges = [0, *_cuts(values, _scatter(values, least)), len(values)]
    means = [float(values[a:b].mean()) for a, b in itertools.pairwise(edges)]
    steps = zip(edges[1:-1], itertools.pairwise(means), strict=True)
    return [Change(at, before, after) for at, (before, after) in steps if abs(after - before) > least]


def _scatter(values: Floats, least: float) -> float:
    """Standard deviation from night to night, which a change of level hardly shows in; at least a quarter of what matters."""
    differences = np.diff(values)
    return max(float(np.median(np.abs(differences))) / (0.6745 * math.sqrt(2)), least / 4, 1e-12)


def _cuts(values: Floats, scatter: float) -> list[int]:
    count = len(values)
    scaled = (values - values.mean()) / scatter
    sums, squares = (np.concatenate([[0.0], np.cumsum(one)]) for one in (scaled, scaled**2))
    price = CUT + CUT_LOG * np.log(count)
    cost, last = np.full(count + 1, np.inf), np.zeros(count + 1, dtype=np.int64)
    cost[0] = -price
    for end in range(SHORTEST, count + 1):
        starts = np.arange(end - SHORTEST + 1)
        error = squares[end] - squares[starts] - (sums[end] - sums[starts]) ** 2 / (end - starts)
        best = cost[starts] + error + price
        last[end] = int(best.argmin())
        cost[end] = best[last[end]]
    found, at = list[int](), int(last[count])
    while at:
        found.append(at)
        at = int(last[at])
    return found[::-1]


def _panels(rows: pd.DataFrame) -> list[Panel]:
    found = []
    order = {name: at for at, name in enumerate(GATES)}
    for (member, metric), series in rows[rows["metric"].isin(order)].groupby(["member", "metric"], sort=False):
        known = series[series["median"].notna()].reset_index(drop=True)
        if len(known):
            found.append(_panel(str(member), str(metric), known))
    return sorted(found, key=lambda panel: (panel.member, order[panel.metric]))


def _night(row: pd.Series[Any]) -> str:
    return pd.Timestamp(row["started"]).date().isoformat()


def _panel(member: str, metric: str, series: pd.DataFrame) -> Panel:
    values = series["median"].to_numpy(dtype=np.float64)
    low, high = float(values.min()), float(values.max())
    x = PAD + np.arange(len(values)) * ((WIDTH - 2 * PAD) / max(1, len(values) - 1))
    y = HEIGHT - PAD - (values - low) / ((high - low) or 1.0) * (HEIGHT - 2 * PAD)
    least = GATES[metric].allowed(float(np.median(values))) / 2
    changes = []
    for change in change_points(values, least):
        night = series.iloc[change.at]
        changes.append((float(x[change.at]), _night(night), night["commit"][:12], change.before, change.after))
    dots = tuple(
        (
            float(a),
            float(b),
            f"{night['started'].date().isoformat()} {night['commit'][:12]}: {value:.5g} ({night['state'] or 'not gated'})",
        )
        for a, b, value, (_, night) in zip(x, y, values, series.iterrows(), strict=True)
    )
    points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))
    return Panel(member, metric, UNITS.get(metric, ""), float(values[-1]), low, high, points, dots, tuple(changes))
