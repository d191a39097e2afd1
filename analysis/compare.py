"""Runs side by side: groups of repeats, the mean of each metric, and the difference to the first group with its uncertainty.

A group is every run of one scenario whatever its seed; with `ab` there are two, paired by seed. Intervals are 95 % percentile
bootstraps (Efron and Tibshirani, An Introduction to the Bootstrap, 13): runs are drawn again, with their seeds kept together
where they are paired. A run whose numbers must not be used is refused, not averaged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from analysis.arrays import Floats
from analysis.study import Study, label, study
from analysis.variants import variants
from testbed.errors import Problem, ScenarioError

RESAMPLES = 10_000
SHARE = 0.95
USABLE = ("passed", "failed")

HEADLINE = (
    "goodput_ratio",
    "goodput_ratio_min_1s",
    "flow_goodput_ratio_min",
    "jain_index",
    "message_ms_p50",
    "message_ms_p99",
    "step_ms_p50",
    "step_ms_p99",
    "oneway_us_p99",
    "retransmit_ratio",
    "packets_trimmed",
    "recovery_rtts_max",
    "stall_rtts_max",
)


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean and its 95 % bootstrap interval; None where a single value has none."""

    mean: float
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class Row:
    """One metric of one group. `difference`: to the first group, None for that group itself or where runs do not pair."""

    metric: str
    group: str
    runs: int
    value: Interval
    difference: Interval | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """`rows` by metric, then group, in order. `doubtful`: runs that were let in although their numbers must not be used."""

    groups: tuple[str, ...]
    rows: tuple[Row, ...]
    paired: bool
    doubtful: tuple[str, ...]

    @property
    def table(self) -> pd.DataFrame:
        """One line per row: means, differences and the ends of their intervals; NaN where there is none."""
        lines = []
        for row in self.rows:
            line: dict[str, Any] = {"metric": row.metric, "group": row.group, "runs": row.runs}
            for name, interval in (("", row.value), ("difference_", row.difference)):
                ends = (None, None, None) if interval is None else (interval.mean, interval.low, interval.high)
                line |= {f"{name}{end}": value for end, value in zip(("mean", "low", "high"), ends, strict=True)}
            lines.append(line)
        numbers = dict.fromkeys(("mean", "low", "high", "difference_mean", "difference_low", "difference_high"), "float64")
        return pd.DataFrame(lines, columns=["metric", "group", "runs", *numbers]).astype(numbers)


def compare(paths: Sequence[Path], *, ab: bool = False, metrics: Sequence[str] = (), allow_invalid: bool = False) -> Comparison:
    """Compare every run in `paths`. With `ab` exactly two paths, whose runs pair by seed.

    ScenarioError for what is no run, for runs that must not be used (unless allowed), for fewer than two groups and for seeds
    that do not pair.
    """
    loaded = study(paths)
    doubtful = _doubtful(loaded, allow_invalid=allow_invalid)
    frames = _pair(paths) if ab else _groups(loaded)
    if len(frames) < 2:
        raise _refused("nothing to compare: all runs are of one scenario", "give runs of another, or two folders with --ab")
    names = list(metrics) or [
        name for name in HEADLINE if all(name in frame and frame[name].notna().all() for frame in frames.values())
    ]
    rows = [row for name in names for row in _rows(name, frames, paired=ab)]
    return Comparison(tuple(frames), tuple(rows), ab, doubtful)


def bootstrap(values: Floats) -> Interval:
    """The mean of `values` and its interval. The draw is seeded: equal data give equal intervals."""
    mean = float(np.mean(values))
    if len(values) < 2:
        return Interval(mean, None, None)
    return _interval(mean, _means(values, np.random.default_rng(0)))


def bootstrap_difference(values: Floats, reference: Floats, *, paired: bool) -> Interval:
    """Mean of `values` minus mean of `reference`; `paired`: entry by entry, as many in both."""
    if paired:
        return bootstrap(values - reference)
    mean = float(np.mean(values) - np.mean(reference))
    if len(values) < 2 or len(reference) < 2:
        return Interval(mean, None, None)
    rng = np.random.default_rng(0)
    return _interval(mean, _means(values, rng) - _means(reference, rng))


def _means(values: Floats, rng: np.random.Generator) -> Floats:
    drawn = rng.integers(0, len(values), (RESAMPLES, len(values)))
    return np.asarray(values[drawn].mean(axis=1), dtype=np.float64)


def _interval(mean: float, draws: Floats) -> Interval:
    low, high = np.quantile(draws, ((1 - SHARE) / 2, (1 + SHARE) / 2))
    return Interval(mean, float(low), float(high))


def _rows(metric: str, frames: dict[str, pd.DataFrame], *, paired: bool) -> list[Row]:
    rows = []
    reference: Floats | None = None
    for group, frame in frames.items():
        if metric not in frame or frame[metric].isna().any():
            raise _refused(f"not every run of {group} has {metric}", "leave it out, or compare runs that have it")
        values = frame[metric].to_numpy(dtype="float64")
        difference = None if reference is None else bootstrap_difference(values, reference, paired=paired)
        rows.append(Row(metric, group, len(values), bootstrap(values), difference))
        reference = values if reference is None else reference
    return rows


def _groups(loaded: Study) -> dict[str, pd.DataFrame]:
    names = variants(loaded)
    metrics = loaded.metrics
    return {name: metrics[[one == name for one in names]] for name in dict.fromkeys(names)}


def _pair(paths: Sequence[Path]) -> dict[str, pd.DataFrame]:
    """Two studies with the same seeds, in the same order."""
    if len(paths) != 2:
        raise _refused(f"--ab takes two folders, not {len(paths)}", "give A and B")
    frames = [study([path]).metrics.sort_values("seed", ignore_index=True) for path in paths]
    seeds = [frame["seed"].tolist() for frame in frames]
    if seeds[0] != seeds[1] or len(set(seeds[0])) < len(seeds[0]):
        raise _refused(f"seeds do not pair: {seeds[0]} in A, {seeds[1]} in B", "run both with the same --seed and --repeat")
    titles = [path.resolve().name for path in paths]
    if titles[0] == titles[1]:
        titles = [f"{path.resolve().parent.name}/{path.resolve().name}" for path in paths]
    return {f"{letter}: {title}": frame for letter, title, frame in zip("AB", titles, frames, strict=True)}


def _doubtful(loaded: Study, *, allow_invalid: bool) -> tuple[str, ...]:
    found = tuple(label(one) for one in loaded.summaries if one["status"] not in USABLE)
    if found and not allow_invalid:
        why = "; ".join(f"{label(one)} is {one['status']}" for one in loaded.summaries if one["status"] not in USABLE)
        raise _refused(f"these numbers must not be used: {why}", "leave them out, or --allow-invalid, and the result is marked")
    return found


def _refused(message: str, hint: str) -> ScenarioError:
    return ScenarioError([Problem("compare", 0, "", message, hint)])
