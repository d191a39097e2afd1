"""Which arrival belongs to which transmission: the join of sender rows and receiver rows, vectorised.

The wire carries no transmission number, so the key is (QP, PSN, EV, retransmission flag), and within a key the order of
time: a path is first in, first out. Only where fewer copies arrived than were sent is the choice not by rank: then each
arrival takes the latest transmission that is at least the propagation delay older, counting from the last arrival.
"""

from __future__ import annotations

from bisect import bisect_right

import numpy as np
import numpy.typing as npt
import pandas as pd

from testbed.model.paths import PLANE_SHIFT

Ints = npt.NDArray[np.int64]
RECEIVED_RETRANSMISSION = 4  # in the receiver's flags


def arrivals(sent: pd.DataFrame, got: pd.DataFrame | None, delay_ns: int) -> Ints:
    """For each row of `sent` the position of its arrival in `got`, or -1.

    `sent` has connection, psn, ev, retransmission, sent_ns; `got` has connection, psn, ev, flags, placed_ns. A `connection` is
    a pair of QPs, numbered alike in both. `delay_ns`: the smallest one-way delay of the fabric.
    """
    found = np.full(len(sent), -1, dtype=np.int64)
    if got is None or not len(got):
        return found
    here = _ranked(_key(sent, sent["retransmission"].to_numpy() != 0), sent["sent_ns"].to_numpy())
    there = _ranked(_key(got, got["flags"].to_numpy() & RECEIVED_RETRANSMISSION != 0), got["placed_ns"].to_numpy())
    copies = there.groupby("key").size()
    here["arrived"] = here["key"].map(copies).fillna(0).astype("int64")
    short = here[(here["arrived"] > 0) & (here["arrived"] < here["copies"])]
    ranked = here.drop(index=short.index).reset_index().merge(there.reset_index(), on=["key", "rank"], suffixes=("", "_got"))
    found[ranked["index"].to_numpy()] = ranked["index_got"].to_numpy()
    if len(short):
        groups = there[there["key"].isin(short["key"])].groupby("key")
        for key, transmissions in short.groupby("key"):
            _latest_before(transmissions.sort_values("time"), groups.get_group(key).sort_values("time"), delay_ns, found)
    return found


def _key(rows: pd.DataFrame, retransmission: npt.NDArray[np.bool_]) -> Ints:
    """One integer per (connection, PSN, EV, retransmission): 18 + 24 + 8 (plane) + 12 (uplink, as in the uSID plan) + 1."""
    connection, psn, ev = (rows[name].to_numpy().astype(np.int64) for name in ("connection", "psn", "ev"))
    path = (ev >> PLANE_SHIFT) << 12 | ev & 0xFFF
    key: Ints = (((connection << 24 | psn) << 20 | path) << 1) | retransmission
    return key


def _ranked(key: Ints, time: Ints) -> pd.DataFrame:
    """key, time, rank within the key in order of time, and the number of rows of the key; indexed by position."""
    frame = pd.DataFrame({"key": key, "time": time})
    by_key = frame.sort_values(["key", "time"], kind="stable").groupby("key", sort=False)
    frame["rank"] = by_key.cumcount()
    frame["copies"] = frame.groupby("key", sort=False)["time"].transform("size")
    return frame


def _latest_before(sent: pd.DataFrame, got: pd.DataFrame, delay_ns: int, found: Ints) -> None:
    free = list(zip(sent["time"].tolist(), sent.index.tolist(), strict=True))
    for time, position in zip(reversed(got["time"].tolist()), reversed(got.index.tolist()), strict=True):
        place = bisect_right(free, time - delay_ns, key=lambda item: item[0])
        if place:
            _, row = free.pop(place - 1)
            found[row] = position
