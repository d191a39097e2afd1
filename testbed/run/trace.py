"""The trace of a run as one table, from raw rows written once each: packets, changes of EVs and planes, other decisions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from testbed.model.paths import PLANE_SHIFT
from testbed.run.tables import (
    EV_CAUSES,
    EV_STATES,
    FATES,
    PLANE_CAUSES,
    PLANE_STATES,
    REASONS,
    Connection,
    Source,
    category,
    state_rows,
    with_flow,
)

# Codes of the raw records, in order; tests/unit/test_run_trace.py holds them against the transport's own.
KINDS = (
    *("", "evidence", "late", "passed_over", "window", "timeout", "probe", "probe_answered", "ev_probe", "ev_probe_answered"),
    *("nack", "nack_sent", "qp_state"),
)
QP_STATES = ("RESET", "INIT", "RTR", "RTS", "ERROR")
_WITHOUT_EV = ("window", "timeout", "qp_state")
_OF_A_PAIR = ("ev_probe", "ev_probe_answered")  # of two hosts, not of a QP; `value` is the other one
_WITHOUT_VALUE = ("passed_over", "probe", "probe_answered", "qp_state", *_OF_A_PAIR)
_NUMBERS = ("flow", "qp", "psn", "ev", "plane", "value")
_TEXTS = ("host", "peer", "kind", "before", "after", "reason")


def trace(source: Source) -> pd.DataFrame:
    """Everything in order of time; at one moment, what was learnt and decided comes before what was sent."""
    makers = (_decisions, _fates, _transitions, _planes, _sent)
    frames = [frame for frame in (maker(source) for maker in makers) if len(frame)]
    if not frames:
        return pd.DataFrame()
    whole = pd.concat(frames, ignore_index=True).sort_values("t_ns", kind="stable", ignore_index=True)
    for name in _NUMBERS:
        whole[name] = whole[name].astype("Int64")
    for name in _TEXTS:
        whole[name] = category(whole[name].fillna(""))
    return whole


def _decisions(source: Source) -> pd.DataFrame:
    rows = source.every("trace")
    if rows is None:
        return pd.DataFrame()
    rows = rows.merge(_ends(source.connections), on=["host", "qp"], how="left")
    rows["kind"] = _name(KINDS, rows["kind"])
    moved, paired = rows["kind"] == "qp_state", rows["kind"].isin(_OF_A_PAIR)
    value = rows["value"].to_numpy()
    step, peer = np.where(moved, value, 0), np.where(paired, value, 0)
    rows["before"] = np.where(moved, _name(QP_STATES, step >> 8), "")
    rows["after"] = np.where(moved, _name(QP_STATES, step & 0xFF), "")
    rows["peer"] = np.where(paired, _name(source.topology.hosts, peer), rows["peer"])
    rows["qp"] = rows["qp"].astype("Int64").mask(paired)
    rows["ev"] = rows["ev"].astype("Int64").mask(rows["kind"].isin(_WITHOUT_EV))
    rows["plane"] = rows["ev"] // (1 << PLANE_SHIFT)
    rows["value"] = rows["value"].astype("Int64").mask(rows["kind"].isin(_WITHOUT_VALUE))
    return rows


def _ends(connections: list[Connection]) -> pd.DataFrame:
    """Flow and far host by (host, its own QP number), for both ends of each connection."""
    ends = [(c["host"], c["host_qp"], c["flow"], c["peer"]) for c in connections]
    ends += [(c["peer"], c["peer_qp"], c["flow"], c["host"]) for c in connections]
    return pd.DataFrame(ends, columns=["host", "qp", "flow", "peer"])


def _transmissions(source: Source) -> pd.DataFrame:
    rows = with_flow(source.every("packets"), source.connections, "host")
    return pd.DataFrame() if rows is None else rows


def _sent(source: Source) -> pd.DataFrame:
    rows = _transmissions(source)
    if not len(rows):
        return rows
    again = np.where(rows["retransmission"] != 0, "retransmission", "")
    return _story(rows, rows["sent_ns"]).assign(kind="sent", reason=again, value=rows["bytes"])


def _fates(source: Source) -> pd.DataFrame:
    rows = _transmissions(source)
    if not len(rows):
        return rows
    rows = rows[rows["fate_ns"] != 0]
    kind = np.where(rows["marked"] != 0, "marked", _name(FATES, rows["fate"]))
    return _story(rows, rows["fate_ns"]).assign(kind=kind, reason=_name(REASONS, rows["reason"]))


def _story(rows: pd.DataFrame, t_ns: pd.Series[Any]) -> pd.DataFrame:
    return rows[["host", "peer", "flow", "qp", "psn", "ev"]].assign(t_ns=t_ns, plane=rows["ev"] // (1 << PLANE_SHIFT))


def _transitions(source: Source) -> pd.DataFrame:
    rows = source.every("ev_states")
    if rows is None:
        return pd.DataFrame()
    ev = rows["ev"].astype("Int64")
    return state_rows(rows, "ev_state", source, EV_STATES, EV_CAUSES).assign(ev=ev, plane=ev // (1 << PLANE_SHIFT))


def _planes(source: Source) -> pd.DataFrame:
    rows = source.every("plane_states")
    if rows is None:
        return pd.DataFrame()
    return state_rows(rows, "plane_state", source, PLANE_STATES, PLANE_CAUSES).assign(plane=rows["plane"].astype("Int64"))


def _name(names: Sequence[str], codes: Any) -> Any:
    return np.asarray(names, dtype=object)[np.asarray(codes, dtype=np.int64)]
