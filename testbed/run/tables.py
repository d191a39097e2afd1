"""One results table after the other, from raw rows (columns and units: analysis.tables). Vectorised.

Tolerates what an interrupted or killed run leaves: absent files, half records, sender rows whose arrival is unknown.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from testbed.model.hashed import ANY_UPLINK
from testbed.model.paths import PLANE_SHIFT
from testbed.model.topology import Topology, t0_name, t1_name
from testbed.run import match
from testbed.run.records import read
from testbed.run.telemetry import COUNTERS, CPU_WHO, LEVELS

# Codes of the raw records, in order; tests/unit/test_run_tables.py holds them against the transport's own.
FATES = ("unknown", "acknowledged", "trimmed", "lost", "refused")
REASONS = ("", "later_same_path", "reorder_window", "rto", "probe", "port_down")
EV_STATES = ("GOOD", "SKIP", "ASSUMED_BAD", "DENIED", "UNKNOWN")
PORT_STATES = ("DOWN", "UP")
PLANE_STATES = ("OPEN", "HERE_DOWN", "THERE_DOWN", "BOTH_DOWN", "CHECKING")
PLANE_CAUSES = ("", "port_down", "port_up", "peer_down", "peer_up", "probe_answered")
EV_CAUSES = ("", "marked", "trimmed", "lost", "always_skip", "turn_passed", "probes_answered", "deny", "allow", "too_few")
ROLES = ("sender", "receiver", "stream")
NO_PLANE = 255
SENDER = 0  # a message's role
INCOMPLETE, OK, CORRUPT = 0, 1, 2  # its verdict
CE, DUPLICATE, TRIMMED, REFUSED = 1, 2, 8 | 16, 32  # the receiver's flags

Connection = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Source:
    """What the tables are made from. `delay_ns`: the smallest one-way delay of the fabric; `cores` of the machine."""

    raw: Path
    topology: Topology
    connections: list[Connection]
    delay_ns: int
    cores: int

    @property
    def live(self) -> Path:
        """The runner's own records."""
        return self.raw / "run"

    def every(self, name: str) -> pd.DataFrame | None:
        """One raw table of all hosts, with a `host` column; None when there is not a single row."""
        frames = []
        for host in self.topology.hosts:
            rows = read(self.raw / host / f"{name}.rec")
            if rows is not None and len(rows):
                frames.append(_frame(rows).assign(host=host))
        return pd.concat(frames, ignore_index=True) if frames else None


def packets(source: Source) -> pd.DataFrame:
    """Sender rows joined with what the receiver saw of each."""
    sent = with_flow(source.every("packets"), source.connections, "host")
    if sent is None:
        return pd.DataFrame()
    got = with_flow(source.every("received"), source.connections, "peer")
    arrival = match.arrivals(sent, got, source.delay_ns)
    seen = arrival >= 0
    flags = np.zeros(len(sent), dtype=np.int64)
    placed = np.zeros(len(sent), dtype=np.int64)
    if got is not None:
        flags[seen] = got["flags"].to_numpy()[arrival[seen]]
        placed[seen] = got["placed_ns"].to_numpy()[arrival[seen]]
    whole = seen & (flags & (TRIMMED | REFUSED) == 0)
    fate = np.asarray(FATES, dtype=object)[sent["fate"].to_numpy()]
    marked = (sent["marked"].to_numpy() != 0) | (flags & CE != 0)
    fate[(fate == "acknowledged") & marked] = "marked"
    sent["ev"] = ev = chosen_evs(sent, source.connections)
    return pd.DataFrame(
        {
            "host": category(sent["host"]),
            "peer": category(sent["peer"]),
            "flow": sent["flow"].astype("int64"),
            "qp": sent["qp"].astype("int64"),
            "psn": sent["psn"].astype("int64"),
            "ev": ev,
            "plane": ev >> PLANE_SHIFT,
            "path": category(_path_names(sent, source.topology)),
            "bytes": sent["bytes"].astype("int64"),
            "sent_ns": sent["sent_ns"],
            "fate_ns": nullable(sent["fate_ns"].to_numpy(), sent["fate_ns"].to_numpy() != 0),
            "placed_ns": nullable(placed, whole),
            "fate": category(fate),
            "reason": category(np.asarray(REASONS, dtype=object)[sent["reason"].to_numpy()]),
            "retransmission": sent["retransmission"].to_numpy() != 0,
            "duplicate": whole & (flags & DUPLICATE != 0),
        }
    ).sort_values("sent_ns", ignore_index=True)


def messages(source: Source) -> pd.DataFrame:
    """One row per message from its two ends. `ok` needs both: checked at the receiver, completed at the sender."""
    rows = with_posts(source.every("messages"), source.every("posts"))
    if rows is None:
        return pd.DataFrame()
    of_flow = pd.DataFrame(source.connections).drop_duplicates("flow").set_index("flow")
    ends = [rows[rows["role"] == role].set_index(["flow", "message"]) for role in (0, 1)]
    both = ends[0].join(ends[1], how="outer", lsuffix="_sent", rsuffix="_got").reset_index()
    times = {name: _int(both[name]) for name in ("start_ns_sent", "end_ns_sent", "end_ns_got")}
    verdict = _int(both["verdict_got"])
    corrupt = (verdict == CORRUPT) | (_int(both["verdict_sent"]) == CORRUPT)
    ok = (verdict == OK) & (times["end_ns_sent"] > 0)
    number = both["message"].astype("Int64")
    per_step = both["flow"].map(of_flow["messages_per_step"]).astype("Int64")
    return pd.DataFrame(
        {
            "flow": both["flow"].astype("int64"),
            "job": category(both["flow"].map(of_flow["job"])),
            "host": category(both["flow"].map(of_flow["host"])),
            "peer": category(both["flow"].map(of_flow["peer"])),
            "message": both["message"].astype("int64"),
            "bytes": both["bytes_sent"].fillna(both["bytes_got"]).astype("int64"),
            "post_ns": nullable(times["start_ns_sent"], times["start_ns_sent"] > 0),
            "complete_ns": nullable(times["end_ns_sent"], times["end_ns_sent"] > 0),
            "checked_ns": nullable(times["end_ns_got"], times["end_ns_got"] > 0),
            "verdict": category(np.select([corrupt, ok], ["corrupt", "ok"], "incomplete").astype(object)),
            "step": number // per_step,
            "phase": number % per_step,
        }
    )


def with_posts(rows: pd.DataFrame | None, posts: pd.DataFrame | None) -> pd.DataFrame | None:
    """`rows`, and what a sender that was killed had posted and could not say the end of."""
    if posts is None:
        return rows
    posted = posts.rename(columns={"t_ns": "start_ns"}).assign(role=SENDER, end_ns=0, verdict=INCOMPLETE)
    if rows is None:
        return posted
    key = ["flow", "message"]
    sent = pd.MultiIndex.from_frame(rows.loc[rows["role"] == SENDER, key])
    lost = posted[~pd.MultiIndex.from_frame(posted[key]).isin(sent)]
    return pd.concat([rows, lost], ignore_index=True) if len(lost) else rows


def steps(source: Source) -> pd.DataFrame:
    """What every rank of a job in lock step wrote about each step it completed."""
    rows = source.every("steps")
    if rows is None:
        return pd.DataFrame()
    names = {connection["workload"]: connection["job"] for connection in source.connections}
    return pd.DataFrame(
        {
            "workload": rows["job"].astype("int64"),
            "job": category(rows["job"].map(names)),
            "host": category(rows["host"]),
            "step": rows["step"].astype("int64"),
            "start_ns": rows["start_ns"],
            "ready_ns": rows["ready_ns"],
            "end_ns": rows["end_ns"],
            "verdict": category(np.where(rows["verdict"] == OK, "ok", "corrupt").astype(object)),
        }
    ).sort_values("end_ns", ignore_index=True)


def events(source: Source) -> pd.DataFrame:
    """The runner's faults and every host's changes of its ports, planes and EVs, in order of time."""
    frames = []
    faults = _json_lines(source.live / "events.jsonl")
    if faults:
        frames.append(pd.DataFrame(faults))
    evs, planes, ports = (source.every(name) for name in ("ev_states", "plane_states", "port_states"))
    if evs is not None:
        ev = evs["ev"].to_numpy().astype(np.int64)
        frames.append(state_rows(evs, "ev_state", source, EV_STATES, EV_CAUSES).assign(ev=ev, plane=ev >> PLANE_SHIFT))
    if planes is not None:
        frames.append(state_rows(planes, "plane_state", source, PLANE_STATES, PLANE_CAUSES).assign(plane=planes["plane"]))
    if ports is not None:
        before, after = np.asarray(PORT_STATES, dtype=object)[[1 - ports["up"], ports["up"]]]
        rows = ports[["t_ns", "host", "plane"]]
        frames.append(rows.assign(kind="port_state", before=before, after=after, reason="carrier"))
    if not frames:
        return pd.DataFrame()
    merged = pd.concat(frames, ignore_index=True).sort_values("t_ns", kind="stable", ignore_index=True)
    integers = {name: "Int64" for name in ("planned_ns", "fault", "ev", "plane") if name in merged}
    return merged.astype(integers)


def state_rows(rows: pd.DataFrame, kind: str, source: Source, states: tuple[str, ...], causes: tuple[str, ...]) -> pd.DataFrame:
    """Changes of state towards a peer, their codes replaced by names."""
    names = np.asarray(states, dtype=object)
    return pd.DataFrame(
        {
            "t_ns": rows["t_ns"],
            "kind": kind,
            "host": rows["host"],
            "peer": [source.topology.hosts[peer] for peer in rows["peer"]],
            "before": names[rows["before"].to_numpy()],
            "after": names[rows["after"].to_numpy()],
            "reason": np.asarray(causes, dtype=object)[rows["reason"].to_numpy()],
        }
    )


def samples(source: Source) -> pd.DataFrame:
    found = [rows for rows in (source.every("samples"), source.every("connections")) if rows is not None]
    if not found:
        return pd.DataFrame()
    rows = pd.concat(found, ignore_index=True)
    for name in ("segments", "retransmissions"):
        rows[name] = rows[name].fillna(0).astype("int64") if name in rows else 0
    planes = rows["plane"].to_numpy().astype(np.int64)
    rows["plane"] = np.where(planes == NO_PLANE, -1, planes)
    rtt_us = rows["rtt_ns"].to_numpy() / 1e3
    rows["role"] = category(np.asarray(ROLES, dtype=object)[rows["role"].to_numpy()])
    rows["rtt_us"] = np.where(rtt_us > 0, rtt_us, np.nan)
    rows["host"] = category(rows["host"])
    return rows.drop(columns="rtt_ns").sort_values("t_ns", ignore_index=True)


def ports(source: Source) -> pd.DataFrame:
    """Counter deltas between consecutive samples of a port; the first sample is where counting starts."""
    rows = read(source.live / "ports.rec")
    description = source.live / "ports.json"
    if rows is None or not len(rows) or not description.exists():
        return pd.DataFrame()
    frame = _frame(rows)
    grouped = frame.groupby("port", sort=False)
    for counter in COUNTERS:
        frame[counter] = grouped[counter].diff()
    frame = frame.dropna(subset=list(COUNTERS)).astype(dict.fromkeys((*COUNTERS, *LEVELS), "int64"))
    about = pd.DataFrame(json.loads(description.read_text())).rename(columns={"port": "name"})
    frame = frame.join(about, on="port").drop(columns="port").rename(columns={"name": "port"})
    for name in ("node", "port", "neighbour", "tier", "direction"):
        frame[name] = category(frame[name])
    return frame


def cpu(source: Source) -> pd.DataFrame:
    """The machine, the runner and the delay line from the runner's samples; hosts from their own loop records."""
    frames = []
    rows = read(source.live / "cpu.rec")
    if rows is not None and len(rows):
        frames.append(
            pd.DataFrame(
                {
                    "t_ns": rows["t_ns"],
                    "who": np.asarray(CPU_WHO, dtype=object)[rows["who"]],
                    "busy": rows["busy"],
                    "steal": rows["steal"],
                    "lag_ms_max": rows["lag_ns_max"] / 1e6,
                    "lag_ms_p99": rows["lag_ns_p99"] / 1e6,
                }
            )
        )
    loop = source.every("loop")
    if loop is not None:
        elapsed = loop.groupby("host", sort=False)["t_ns"].diff()
        frames.append(
            pd.DataFrame(
                {
                    "t_ns": loop["t_ns"],
                    "who": loop["host"],
                    "busy": loop["cpu_ns"] / elapsed / source.cores,
                    "steal": np.nan,
                    "lag_ms_max": loop["lag_ns_max"] / 1e6,
                    "lag_ms_p99": loop["lag_ns_p99"] / 1e6,
                }
            )
        )
    if not frames:
        return pd.DataFrame()
    merged = pd.concat(frames, ignore_index=True).sort_values("t_ns", ignore_index=True)
    return merged.assign(who=category(merged["who"]))


def _frame(rows: npt.NDArray[np.void]) -> pd.DataFrame:
    return pd.DataFrame({field: rows[field] for field in rows.dtype.names or ()})


def chosen_evs(sent: pd.DataFrame, connections: list[Connection]) -> npt.NDArray[np.int64]:
    """The EVs, where switches chose the T1 that one which the connection's 5-tuple was seen to take before the start."""
    ev = sent["ev"].to_numpy().astype(np.int64)
    left_open = ev & (1 << PLANE_SHIFT) - 1 == ANY_UPLINK
    if left_open.any():
        traced = {(one["host"], one["host_qp"]): one["evs"] for one in connections if "evs" in one}
        ends, place = np.unique(sent[["host", "qp"]].astype(str).agg("/".join, axis=1), return_inverse=True)
        table = np.array([traced[host, int(qp)] for host, _, qp in (end.partition("/") for end in ends)], dtype=np.int64)
        ev[left_open] = table[place[left_open], ev[left_open] >> PLANE_SHIFT]
    return ev


def with_flow(rows: pd.DataFrame | None, connections: list[Connection], end: str) -> pd.DataFrame | None:
    """`rows` with flow, host and peer of the connection whose `end` (host or peer) wrote them with its own QP number.

    `connection` is its place in the list: what the two ends of a QP have in common.
    """
    if rows is None or not connections:
        return None
    qps = pd.DataFrame(connections)[["flow", "host", "peer", f"{end}_qp"]].rename(columns={f"{end}_qp": "qp"})
    qps["connection"] = np.arange(len(qps))
    qps["writer"] = qps[end]
    return rows.rename(columns={"host": "writer"}).merge(qps, on=["writer", "qp"], how="inner")


def _path_names(sent: pd.DataFrame, topology: Topology) -> pd.Series[str]:
    """The T1 each row crossed, or its T0 where both hosts share a group."""
    group = {host: topology.group_of(index) for index, host in enumerate(topology.hosts)}
    source = sent["host"].map(group)
    local = source == sent["peer"].map(group)
    triples = pd.MultiIndex.from_arrays([sent["ev"], source, local])
    codes, unique = triples.factorize()
    names = [
        t0_name(ev >> PLANE_SHIFT, of_group) if inside else t1_name(ev >> PLANE_SHIFT, ev & (1 << PLANE_SHIFT) - 1)
        for ev, of_group, inside in unique
    ]
    return pd.Series(np.asarray(names, dtype=object)[codes], index=sent.index)


def category(values: Any) -> pd.Categorical:
    return pd.Categorical(values)


def nullable(values: npt.NDArray[np.int64], known: npt.NDArray[np.bool_]) -> pd.arrays.IntegerArray:
    return pd.arrays.IntegerArray(values.astype(np.int64), ~known)


def _int(values: pd.Series[Any]) -> npt.NDArray[np.int64]:
    """Integers of a column an outer join may have left holes in, holes as 0."""
    return np.asarray(values.astype("Int64").fillna(0), dtype=np.int64)


def _json_lines(path: Path) -> list[dict[str, Any]]:
    """Every complete line; a last one without its newline was cut off by a kill."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().split("\n")[:-1]]
