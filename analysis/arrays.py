"""Array types and the few array helpers that every metric uses. Times in int64 ns; 0 stands for `never`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

NS = 1e9  # per second


def ints(frame: pd.DataFrame, column: str) -> Ints:
    """An integer column; nulls become 0."""
    return np.asarray(frame[column].to_numpy(dtype="int64", na_value=0), dtype=np.int64)


def floats(frame: pd.DataFrame, column: str) -> Floats:
    return np.asarray(frame[column].to_numpy(dtype="float64", na_value=np.nan), dtype=np.float64)


def bools(frame: pd.DataFrame, column: str) -> Bools:
    return np.asarray(frame[column].to_numpy(dtype="bool"), dtype=np.bool_)


def is_text(frame: pd.DataFrame, column: str, *values: str) -> Bools:
    """Which rows of a text column hold one of `values`."""
    return np.asarray(frame[column].isin(list(values)).to_numpy(), dtype=np.bool_)


def index_in(frame: pd.DataFrame, column: str, names: Sequence[str]) -> Ints:
    """Each row's position in `names`, -1 when it is none of them."""
    category = frame[column].cat
    position = {name: at for at, name in enumerate(names)}
    table = np.array([position.get(str(name), -1) for name in category.categories] + [-1], dtype=np.int64)
    return table[np.asarray(category.codes.to_numpy(), dtype=np.int64)]


def bins_ending(edges_ns: Ints, times_ns: Ints) -> Ints:
    """The bin of a row that stands for an interval ending at its time: the one that ends there, give or take a late timer."""
    return np.asarray(np.searchsorted(edges_ns, times_ns - (edges_ns[1] - edges_ns[0]) // 2, side="right") - 1, dtype=np.int64)


def percentile(values: Floats, share: float) -> float:
    """The `share` quantile (0..1), linear between ranks. NaNs are left out; NaN when nothing is left."""
    kept = values[~np.isnan(values)]
    return float(np.quantile(kept, share)) if kept.size else float("nan")
