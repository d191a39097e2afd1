"""What a figure draws (its CSV) against the raw tables, put together again with groupby and loops."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest

from tests.support import recompute_jobs as jobs
from tests.support.recompute import Recomputed

DIGITS = 2e-5  # a CSV has six
Array = npt.NDArray[np.float64]


def check(folder: Path) -> set[str]:
    """Assert that every CSV in `figures/` holds what the tables hold; returns the figures that were looked at."""
    own = Recomputed(folder)
    seen = set()
    for file in sorted((folder / "figures").glob("*.csv")):
        kind = file.stem.partition("-")[0]
        assert kind in CHECKS, f"{file.name}: a figure whose data nothing checks"
        CHECKS[kind](own, pd.read_csv(file), file.stem)
        seen.add(kind)
    return seen


def same(found: Any, expected: Any, what: str, slack: float = 1e-9) -> None:
    found, expected = np.asarray(found, dtype=float), np.asarray(expected, dtype=float)
    assert found.shape == expected.shape, what
    scale = np.nanmax(np.abs(expected), initial=0.0)
    assert found == pytest.approx(expected, rel=DIGITS, abs=slack + 1e-5 * scale, nan_ok=True), what


def bins(own: Recomputed, intervals: int) -> tuple[list[int], int]:
    """(starts, width) of the whole bins from t = 0 to the end of the window."""
    width = intervals * own.scenario.measure.interval_ns
    return [own.t0 + width * at for at in range((own.end - own.t0) // width)], width


def per_bin(times: pd.Series[Any], values: pd.Series[Any], starts: list[int], width: int) -> Array:
    at = (times.astype("int64") - starts[0]) // width
    return values.groupby(at).sum().reindex(range(len(starts)), fill_value=0).to_numpy(dtype=float)


def goodput(own: Recomputed, data: pd.DataFrame, _name: str) -> None:
    starts, width = bins(own, 1)
    same(data["t_s"], [(at - own.t0 + width / 2) / 1e9 for at in starts], "t_s")
    first, ideal = own.first, own.ideal()
    mbps = 8 / (width / 1e9) / 1e6
    same(data["goodput_mbps"], per_bin(first["placed_ns"], first["bytes"], starts, width) * mbps, "goodput")
    bound = {flow: np.array([steps.bytes_in(at, at + width) for at in starts]) for flow, steps in ideal.items()}
    same(data["ideal_mbps"], sum(bound.values()) * mbps, "ideal")
    for flow, (host, peer) in own.ends.items():
        mine = first[first["flow"] == flow]
        placed = per_bin(mine["placed_ns"], mine["bytes"], starts, width)
        expected = np.where(bound[flow] > 1e-3, placed / np.maximum(bound[flow], 1e-9), np.nan)
        same(data[f"ratio {host}>{peer} ({flow})"], expected, f"ratio of flow {flow}")


def planes(own: Recomputed, data: pd.DataFrame, _name: str) -> None:
    starts, width = bins(own, 2)
    for plane in range(own.scenario.topology.planes):
        mine = own.first[own.first["plane"] == plane]
        expected = per_bin(mine["placed_ns"], mine["bytes"], starts, width) * 8 / (width / 1e9) / 1e6
        same(data[f"plane_{plane}_mbps"], expected, f"plane {plane}")


def paths(own: Recomputed, data: pd.DataFrame, _name: str) -> None:
    starts, width = bins(own, 2)
    packets = own.tables["packets"]
    flows = touched(own) or set(own.ends)
    packets = packets[packets["flow"].isin(flows)]
    fate = packets["fate"].astype(str)
    kinds = {"sent": fate != "", "marked": fate == "marked", "trimmed": fate == "trimmed"}
    kinds["lost"] = packets["placed_ns"].isna() & fate.isin(["lost", "unknown"])
    total = 0
    for what, mask in kinds.items():
        for path in sorted(set(packets["path"].astype(str))):
            mine = packets[mask & (packets["path"] == path)]
            same(data[f"{what} {path}"], per_bin(mine["sent_ns"], mine["bytes"] * 0 + 1, starts, width), f"{what} on {path}")
            total += 1
    assert total == len(data.columns) - 1


def touched(own: Recomputed) -> set[int]:
    used = own.tables["packets"][["flow", "ev"]].drop_duplicates()
    pairs = [(int(flow), int(ev)) for flow, ev in zip(used["flow"], used["ev"], strict=True)]
    return {flow for flow, ev in pairs if any(own.crosses(fault, flow, ev) for fault in own.faults)}


def ev_states(own: Recomputed, data: pd.DataFrame, _name: str) -> None:
    starts, width = bins(own, 2)
    events = own.tables["events"]
    changes = events[events["kind"] == "ev_state"].sort_values("t_ns", kind="stable")
    of_planes = events[events["kind"] == "plane_state"].sort_values("t_ns", kind="stable")
    assert len(data.columns) > 1
    for label in data.columns[1:]:
        ends, _, path = label.partition(" via ")
        host, _, peer = ends.partition(" \u2192 ")
        plane, uplink = path[1:].split("t1-") if "t1-" in path else (path[1:].split("t0-")[0], "0")
        ev = int(plane) << 16 | int(uplink)
        mine = changes[(changes["host"] == host) & (changes["peer"] == peer) & (changes["ev"] == ev)]
        of_plane = (of_planes["host"] == host) & (of_planes["peer"] == peer) & (of_planes["plane"] == int(plane))
        expected = []
        for start in starts:
            before = mine[mine["t_ns"] < start + width]
            hidden = of_planes[of_plane & (of_planes["t_ns"] < start + width)]
            state = hidden["after"].iloc[-1] if len(hidden) else "OPEN"
            if state == "OPEN":
                state = before["after"].iloc[-1] if len(before) else "GOOD"
            expected.append("PORT_DOWN" if state.endswith("_DOWN") else state)
        assert data[label].tolist() == expected, label


def messages(own: Recomputed, data: pd.DataFrame, _name: str) -> None:
    table = own.tables["messages"]
    kept = table[(table["verdict"] == "ok") & (table["post_ns"] >= own.start) & (table["post_ns"] < own.end)]
    for job, mine in data.groupby("job"):
        took = np.sort(
            (kept.loc[kept["job"] == job, "complete_ns"] - kept.loc[kept["job"] == job, "post_ns"]).to_numpy("float")
        )
        assert len(mine) == len(took) <= 1000
        same(mine["ms"], took / 1e6, f"messages of {job}")
        same(mine["share"], (np.arange(len(took)) + 1) / len(took), f"shares of {job}")
    assert set(data["job"]) == set(kept["job"])


def steps(own: Recomputed, data: pd.DataFrame, _name: str) -> None:
    every = dict(jobs.counted(own.scenario, own.tables["steps"], own.start, own.end))
    assert set(data["job"]) == {own.scenario.workload[index].job for index in every}
    for index, inside in every.items():
        spec = own.scenario.workload[index]
        mine = data[data["job"] == spec.job]
        same(mine["step"], [step.number for step in inside], "steps")
        same(mine["end_s"], [(step.end - own.t0) / 1e9 for step in inside], "ends of steps")
        same(mine["step_ms"], [(step.end - step.start) / 1e6 for step in inside], "steps")
        same(mine["collective_ms"], [(step.end - max(step.ready, step.start)) / 1e6 for step in inside], "collectives")
        ideal = spec.compute_ns + jobs.collective_ns(own.scenario, spec, own.alone_bps(index))
        same(mine["ideal_ms"], [ideal / 1e6] * len(inside), "ideal step")


def delay_spread(own: Recomputed, data: pd.DataFrame, _name: str) -> None:
    shares = np.concatenate([np.arange(181) / 200, 1 - 10 ** -(1 + np.arange(1, 121) / 40)])  # as exact as the CSV is not
    same(data["share"], shares, "shares", 1e-6)
    sent = own.arrived[(own.arrived["sent_ns"] >= own.start) & (own.arrived["sent_ns"] < own.end)]
    for plane in range(own.scenario.topology.planes):
        mine = sent[sent["plane"] == plane]
        oneway = np.quantile((mine["placed_ns"] - mine["sent_ns"]).to_numpy() / 1e6, shares)
        same(data[f"plane {plane} oneway_ms"], oneway, f"delay of plane {plane}", 1e-3)
        values = [j / 1e6 for at, j in own.jitter(plane) if own.start <= at < own.end]
        same(data[f"plane {plane} jitter_ms"], np.quantile(values, shares), f"jitter of plane {plane}", 1e-3)


def delay(own: Recomputed, data: pd.DataFrame, _name: str) -> None:
    starts, width = bins(own, 2)
    arrived = own.arrived[(own.arrived["sent_ns"] >= own.t0) & (own.arrived["sent_ns"] < own.end)]
    oneway = (arrived["placed_ns"] - arrived["sent_ns"]) / 1e6
    groups = oneway.groupby((arrived["sent_ns"] - own.t0) // width)
    for share in (5, 50, 99):
        same(data[f"oneway_ms_p{share}"], groups.quantile(share / 100).reindex(range(len(starts))), f"delay p{share}")
    running = pd.DataFrame(own.jitter(), columns=["at", "j"])
    mean = (running["j"] / 1e6).groupby((running["at"] - own.t0) // width).mean().reindex(range(len(starts)))
    same(data["jitter_ms"], mean, "jitter over time")


def windows(own: Recomputed, data: pd.DataFrame, _name: str) -> None:
    starts, width = bins(own, 1)
    rows = own.tables["samples"]
    rows = rows[rows["role"] == "sender"]
    at = (rows["t_ns"] - width // 2 - own.t0) // width
    for name in ("window", "inflight"):
        of_flow = (rows[name] / own.scenario.transport.payload).groupby([at, rows["flow"]]).max()
        for which in ("min", "median", "max"):
            expected = of_flow.groupby(level=0).agg(which).reindex(range(len(starts)))
            same(data[f"{name}_frames {which}"], expected, f"{which} of {name}")
    known = rows[rows["rtt_us"] > 0]
    for plane in range(own.scenario.topology.planes):
        mine = known[known["plane"] == plane]
        expected = (mine["rtt_us"] / 1e3).groupby(at[mine.index]).median().reindex(range(len(starts)))
        same(data[f"rtt_ms plane {plane}"], expected, f"RTT of plane {plane}")


def ports(own: Recomputed, data: pd.DataFrame, _name: str) -> None:
    starts, width = bins(own, 1)
    table = own.tables["ports"].sort_values(["port", "t_ns"]).astype({"port": str, "tier": str, "direction": str})
    since = table.groupby("port")["t_ns"].diff()
    used = table["delivered_bytes"] * 8e9 / since / table["rate_bps"]
    frame = own.scenario.transport.payload + 142 + own.scenario.links.overhead_bytes
    values = {"utilisation": used, "queue_frames": table["queue_bytes_max"] / frame}
    at = (table["t_ns"] - width // 2 - own.t0) // width
    for (tier, direction), rows in table.groupby(["tier", "direction"]):
        for name, value in values.items():
            groups = value[rows.index].groupby(at[rows.index])
            for which in ("min", "median", "max"):
                expected = groups.agg(which).reindex(range(len(starts)))
                same(data[f"{tier} {direction} {name} {which}"], expected, f"{tier} {direction} {name} {which}")


def recovery(own: Recomputed, data: pd.DataFrame, name: str) -> None:
    fault = own.faults[int(name.partition("-")[2])]
    packets = data[data["what"] == "packet"]
    assert set(packets["flow"].astype(int)) <= touched(own)
    planes = {int(way.split("p")[1].split("t")[0]) for way in fault.ways}
    table = own.tables["packets"]
    moment = (table["sent_ns"] - fault.start) / own.rtt
    shown = table[(moment >= packets["rtts"].min() - 1e-4) & (moment <= packets["rtts"].max() + 1e-4)]
    pairs = {(int(f), int(e)) for f, e in zip(table["flow"], table["ev"], strict=True)}
    hit = {flow for flow, ev in pairs if own.crosses(fault, flow, ev)}
    shown = shown[shown["flow"].isin(hit) & shown["plane"].isin(planes)]
    assert len(shown) == len(packets)
    same(np.sort(packets["rtts"]), np.sort(moment[shown.index]), "packets around the fault", 1e-4)
    assert packets["lost"].astype(bool).sum() == (shown["placed_ns"].isna() & shown["fate"].isin(["lost", "unknown"])).sum()
    assert packets["retransmission"].astype(bool).sum() == shown["retransmission"].sum()
    deficit = data[data["what"] == "deficit"]
    stall = own.fault_rows()[own.faults.index(fault)]["stall_rtts"]
    if stall is not None and len(deficit):
        assert deficit["behind_rtts"].max() <= stall + 1e-3


CHECKS: dict[str, Callable[[Recomputed, pd.DataFrame, str], None]] = {
    check.__name__: check
    for check in (goodput, planes, paths, ev_states, messages, steps, delay_spread, delay, windows, ports, recovery)
}
