"""Made-up results folders for tests: a small deterministic simulator of paced packets over paths. NOT a run of anything.

Every number it writes follows from its arguments and a seed, so a test can recompute what analysis says from raw rows. The
manifest says `synthetic`. By hand: `python -m tests.unit.analysis.synthetic DIR`.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from analysis.confirmed import Way, ways_of
from analysis.tables import EVENTS, STEPS
from testbed.model import faults as model_faults
from testbed.model import timing
from testbed.model.flows import Flow, flows
from testbed.model.fluid import ideal_rates
from testbed.model.framing import HEADER_BYTES, charged_bytes
from testbed.model.load import dump, load_text
from testbed.model.paths import ev_of, paths
from testbed.model.scenario import Scenario
from testbed.model.topology import Topology, build, host_name, t1_name

T0_NS = 7_000_000_000_000_123
LOAD = 0.985  # of the ideal
DETECT_RTTS = 1.3  # how long a sender goes on using a dead path
RESTORE_RTTS = 8.0  # how long after the repair it comes back
SPURIOUS_EVERY = 5000

SCENARIO = """
name: synthetic
description: Made-up data for tests of the analysis. Nothing ran.
source: "nowhere"
topology: {planes: 4, t0_groups: 2, t1_per_plane: 6, hosts_per_t0: 4}
links: {rate: 5mbit, delay: 20ms, mtu: 4500}
routing: srv6
transport: {kind: mrc, payload: 4096B}
workload:
  - {kind: permutation, hosts: all, message: 1MiB, depth: 2}
faults:
  - {at: 4s, link: "p0t0-0:p0t1-2", action: down, for: 4s}
  - {at: 12s, link: "p2t0-1:p2t1-4", action: blackhole, for: 4s}
measure: {warmup: 2s, duration: 20s, interval: 100ms}
expect:
  - goodput_ratio >= 0.97
  - recovery_rtts_max <= 3
  - stall_rtts_max <= 4
  - retransmit_ratio <= 0.002
  - plane_imbalance <= 0.03
seed: 1
scale: {link: 100gbit, rtt: 8us}
"""

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Wrong:
    """What goes wrong with the records or the machine, beside the scenario's faults. Seconds from t = 0."""

    silent: tuple[float, float] | None = None  # everyone alive, nobody sends
    dead_host: str | None = None  # this host's process writes nothing ...
    dead: tuple[float, float] = (0.0, 0.0)  # ... in this span
    busy: float = 0.6
    lag_ms: float = 0.8
    status: str = "passed"
    skip_tables: frozenset[str] = field(default_factory=frozenset)


@dataclass(frozen=True, slots=True)
class _Plan:
    scenario: Scenario
    topology: Topology
    flows: tuple[Flow, ...]
    faults: tuple[model_faults.PlannedFault, ...]
    rtt: int
    end: int
    rng: np.random.Generator


def write(folder: Path, text: str = SCENARIO, wrong: Wrong | None = None) -> Path:
    """A whole results folder at `folder` (created); returns it."""
    wrong = wrong or Wrong()
    folder.mkdir(parents=True, exist_ok=True)
    scenario = load_text(text, "synthetic.yaml")
    topology = build(scenario.topology)
    plan = _Plan(
        scenario,
        topology,
        flows(scenario, topology),
        model_faults.resolve(scenario, topology),
        timing.rtt_base_ns(scenario),
        T0_NS + scenario.measure.duration_ns,
        np.random.default_rng(scenario.seed),
    )
    packets = pd.concat([_flow_packets(plan, flow, wrong) for flow in plan.flows], ignore_index=True)
    tables = {
        "packets": packets,
        "messages": _messages(plan, packets),
        "steps": pd.DataFrame({column.name: [] for column in STEPS.columns}),
        "events": _events(plan),
        "samples": _samples(plan, packets, wrong),
        "ports": _ports(plan, packets),
        "cpu": _cpu(plan, wrong),
    }
    for name, frame in tables.items():
        if name not in wrong.skip_tables:
            texts = {column: "category" for column in frame.columns if frame[column].dtype == "str"}
            frame.sort_values("sent_ns" if name == "packets" else frame.columns[0]).astype(texts).to_parquet(
                folder / f"{name}.parquet", index=False
            )
    (folder / "scenario.yaml").write_text(dump(scenario))
    (folder / "manifest.json").write_text(json.dumps(_manifest(plan, wrong), indent=2))
    return folder


def _flow_packets(plan: _Plan, flow: Flow, wrong: Wrong) -> pd.DataFrame:
    scenario, spec = plan.scenario, plan.scenario.topology
    rates = ideal_rates(
        plan.topology,
        scenario.links,
        [(one.source, one.target) for one in plan.flows],
        (),
        payload=scenario.transport.payload,
        header_bytes=HEADER_BYTES,
    )
    payload = scenario.transport.payload
    gap = payload * 8e9 / (rates[flow.id] * LOAD)
    count = int((plan.end - T0_NS) / gap)
    sent = T0_NS + flow.start_ns + (gap * (np.arange(count) + plan.rng.uniform(-0.2, 0.2, count))).astype(np.int64)
    if wrong.silent is not None:
        sent = sent[(sent < T0_NS + wrong.silent[0] * 1e9) | (sent >= T0_NS + wrong.silent[1] * 1e9)]
    psn = np.arange(len(sent), dtype=np.int64) + 1000 * flow.id
    plane = np.arange(len(sent)) % spec.planes
    uplink = (np.arange(len(sent)) // spec.planes + flow.id) % spec.t1_per_plane
    lost = np.zeros(len(sent), np.bool_)
    for fault in plan.faults:
        dead = _dead_paths(plan, flow, fault)
        hit = np.isin(plane << 16 | uplink, list(dead))
        start, stop = T0_NS + fault.at_ns, T0_NS + (fault.until_ns or plan.end)
        lost |= hit & (sent >= start) & (sent < min(stop, start + int(DETECT_RTTS * plan.rtt)))
        avoided = hit & (sent >= start + int(DETECT_RTTS * plan.rtt)) & (sent < stop + int(RESTORE_RTTS * plan.rtt))
        others = 1 + np.arange(len(sent)) // spec.planes // spec.t1_per_plane % (spec.t1_per_plane - 1)
        uplink = np.where(avoided, (uplink + others) % spec.t1_per_plane, uplink)
    spurious = (np.arange(len(sent)) % SPURIOUS_EVERY == SPURIOUS_EVERY - 1) & ~lost
    again = lost | spurious
    frame_ns = charged_bytes(payload, scenario.links.overhead_bytes) * 8e9 / scenario.links.rate_bps
    parts = []
    for mask, wait, is_again in ((np.ones(len(sent), np.bool_), 0.0, False), (again, DETECT_RTTS, True)):
        times = sent[mask] + int(wait * plan.rtt)
        swallowed = np.zeros(len(times), np.bool_) if is_again else lost
        up = (uplink[mask] + 2 * is_again) % spec.t1_per_plane
        delay = np.array(scenario.links.delay_ns)[plane[mask]]
        placed = times + delay + (plan.rng.exponential(0.35, len(times)) * frame_ns).astype(np.int64)
        fate = np.where(swallowed, "lost", np.where(plan.rng.random(len(times)) < 0.004, "marked", "acknowledged"))
        parts.append(
            pd.DataFrame(
                {
                    "host": host_name(flow.source),
                    "peer": host_name(flow.target),
                    "flow": np.int64(flow.id),
                    "qp": np.int64(17 + flow.id),
                    "psn": psn[mask],
                    "ev": (plane[mask] << 16 | up).astype(np.int64),
                    "plane": plane[mask].astype(np.int64),
                    "path": [t1_name(int(p), int(u)) for p, u in zip(plane[mask], up, strict=True)],
                    "bytes": np.int64(payload),
                    "sent_ns": times,
                    "fate_ns": pd.arrays.IntegerArray(placed + delay, np.zeros(len(times), np.bool_)),
                    "placed_ns": pd.arrays.IntegerArray(placed, swallowed | _unrecorded(wrong, flow, placed)),
                    "fate": fate,
                    "reason": np.where(swallowed, "later_same_path", ""),
                    "retransmission": is_again,
                    "duplicate": spurious[mask] if is_again else False,
                }
            )
        )
    return pd.concat(parts, ignore_index=True)


def _unrecorded(wrong: Wrong, flow: Flow, placed: Ints) -> npt.NDArray[np.bool_]:
    if wrong.dead_host != host_name(flow.target):
        return np.zeros(len(placed), np.bool_)
    return np.asarray((placed >= T0_NS + wrong.dead[0] * 1e9) & (placed < T0_NS + wrong.dead[1] * 1e9))


def _dead_paths(plan: _Plan, flow: Flow, fault: model_faults.PlannedFault) -> set[int]:
    ways: set[Way] = {(link.name, way) for link in fault.links for way in fault.directions}
    every = paths(plan.topology, flow.source, flow.target)
    return {path.ev for path in every if ways & set(ways_of(path, flow.source, flow.target))}


def _messages(plan: _Plan, packets: pd.DataFrame) -> pd.DataFrame:
    rows = []
    for flow in plan.flows:
        mine = packets[packets["flow"] == flow.id]
        size = flow.message // plan.scenario.transport.payload
        number = (mine["psn"] - 1000 * flow.id) // size
        begun = mine.groupby(number)["sent_ns"].min()
        done = mine.groupby(number)["placed_ns"].max().astype("Int64") + plan.rtt // 2
        whole = mine.groupby(number)["psn"].nunique() == size
        for at in begun.index[whole]:
            post = int(begun[max(0, at - flow.depth + 1)])
            rows.append(
                (
                    flow.id,
                    flow.job,
                    host_name(flow.source),
                    host_name(flow.target),
                    at,
                    flow.message,
                    post,
                    done[at],
                    done[at] - 1,
                    "ok",
                )
            )
    columns = ["flow", "job", "host", "peer", "message", "bytes", "post_ns", "complete_ns", "checked_ns", "verdict"]
    frame = pd.DataFrame(rows, columns=columns)
    return frame.astype({"post_ns": "Int64", "complete_ns": "Int64", "checked_ns": "Int64"})


def _events(plan: _Plan) -> pd.DataFrame:
    rows: list[dict[str, Any]] = []
    for fault in plan.faults:
        base = {"fault": fault.index, "action": fault.spec.action.value}
        for link in fault.links:
            moments = [("fault_start", fault.at_ns)] + ([("fault_end", fault.until_ns)] if fault.until_ns else [])
            rows += [
                base
                | {
                    "t_ns": T0_NS + at + 400_000,
                    "planned_ns": T0_NS + at,
                    "kind": kind,
                    "where": link.name,
                    "plane": link.plane,
                }
                for kind, at in moments
            ]
        for flow in plan.flows:
            for ev in _dead_paths(plan, flow, fault):
                about = {
                    "kind": "ev_state",
                    "host": host_name(flow.source),
                    "peer": host_name(flow.target),
                    "ev": ev,
                    "plane": ev >> 16,
                }
                gone = T0_NS + fault.at_ns + int(DETECT_RTTS * plan.rtt)
                rows.append(about | {"t_ns": gone, "before": "GOOD", "after": "ASSUMED_BAD", "reason": "later_same_path"})
                if fault.until_ns is not None:
                    back = T0_NS + fault.until_ns + int(RESTORE_RTTS * plan.rtt)
                    rows.append(about | {"t_ns": back, "before": "ASSUMED_BAD", "after": "GOOD", "reason": "probes"})
    frame = pd.DataFrame(rows, columns=[column.name for column in EVENTS.columns])
    return frame.astype({"t_ns": "int64", "planned_ns": "Int64", "fault": "Int64", "ev": "Int64", "plane": "Int64"})


def _ends(plan: _Plan) -> Ints:
    """Ends of the sampling intervals, a little past the end of the window, none exactly on time."""
    interval = plan.scenario.measure.interval_ns
    return np.arange(T0_NS + interval, plan.end + 5 * interval, interval, dtype=np.int64) + 150_000


def _alive(wrong: Wrong, host: str, ends: Ints) -> Ints:
    if host != wrong.dead_host:
        return ends
    return ends[(ends < T0_NS + wrong.dead[0] * 1e9) | (ends >= T0_NS + wrong.dead[1] * 1e9)]


def _samples(plan: _Plan, packets: pd.DataFrame, wrong: Wrong) -> pd.DataFrame:
    parts = []
    for flow in plan.flows:
        mine = packets[packets["flow"] == flow.id]
        for role, host, column in (("sender", flow.source, "sent_ns"), ("receiver", flow.target, "placed_ns")):
            ends = _alive(wrong, host_name(host), _ends(plan))
            for plane in range(plan.scenario.topology.planes):
                kept = mine[(mine["plane"] == plane) & mine[column].notna()]
                if role == "receiver":
                    kept = kept[~kept["duplicate"]]
                at = np.searchsorted(ends, kept[column].to_numpy(dtype=np.int64))
                size = np.bincount(at[at < len(ends)], weights=kept["bytes"].to_numpy()[at < len(ends)], minlength=len(ends))
                about: dict[str, Any] = {"host": host_name(host), "flow": flow.id, "plane": plane, "role": role}
                rows = pd.DataFrame(
                    {"t_ns": ends, "bytes": size.astype(np.int64), "window": 147_456, "inflight": 90_000, "rtt_us": 46e3}
                )
                parts.append(rows.assign(**about))
    return pd.concat(parts, ignore_index=True)


def _ports(plan: _Plan, packets: pd.DataFrame) -> pd.DataFrame:
    """Each port's traffic is what crosses its link in its direction; queues are made up, below a frame."""
    ends = _ends(plan)
    frame_bytes = charged_bytes(plan.scenario.transport.payload, plan.scenario.links.overhead_bytes)
    crossed: dict[Way, list[Ints]] = {}
    group: Any
    for group, rows in packets.groupby(["flow", "ev", packets["fate"] == "lost"]):
        flow_id, ev, swallowed = group
        flow = plan.flows[int(flow_id)]
        way_list = next(
            ways_of(p, flow.source, flow.target) for p in paths(plan.topology, flow.source, flow.target) if p.ev == ev
        )
        for crossing in way_list[: 1 if swallowed else None]:
            crossed.setdefault(crossing, []).append(rows["sent_ns"].to_numpy())
    parts = []
    for link in plan.topology.links:
        fast = plan.scenario.links.rate_bps if link.tier == "nic-t0" else plan.scenario.links.fabric_rate_bps
        for way, port, far in (("up", link.lower, link.upper), ("down", link.upper, link.lower)):
            times = np.concatenate(crossed.get((link.name, way), [np.empty(0, np.int64)]))
            at = np.searchsorted(ends, times)
            count = np.bincount(at[at < len(ends)], minlength=len(ends)).astype(np.int64)
            queue = (plan.rng.exponential(0.5, len(ends)) * frame_bytes * (count > 0)).astype(np.int64)
            parts.append(
                pd.DataFrame(
                    {
                        "t_ns": ends,
                        "node": port.node,
                        "port": port.name,
                        "neighbour": far.node,
                        "tier": str(link.tier),
                        "direction": way,
                        "plane": link.plane,
                        "rate_bps": fast,
                        "packets": count,
                        "bytes": count * frame_bytes,
                        "delivered_packets": count,
                        "delivered_bytes": count * frame_bytes,
                        "control_packets": 0,
                        "marked": 0,
                        "trimmed": 0,
                        "dropped_queue": 0,
                        "dropped_fault": 0,
                        "corrupted": 0,
                        "queue_bytes_max": queue * 2,
                        "queue_bytes": np.minimum(queue, frame_bytes),
                    }
                )
            )
    return pd.concat(parts, ignore_index=True)


def _cpu(plan: _Plan, wrong: Wrong) -> pd.DataFrame:
    parts = []
    for who in ("machine", "run", "delay", *plan.topology.hosts):
        ends = _alive(wrong, who, _ends(plan)) + 20_000
        lag = plan.rng.uniform(0.5, 1.0, len(ends)) * (0.4 if who == "delay" else wrong.lag_ms)
        nothing = np.full(len(ends), np.nan)
        parts.append(
            pd.DataFrame(
                {
                    "t_ns": ends,
                    "who": who,
                    "busy": {"machine": wrong.busy, "run": 0.02}.get(who, 0.04),
                    "steal": np.zeros(len(ends)) if who == "machine" else nothing,
                    "lag_ms_max": nothing if who == "machine" else lag * 2,
                    "lag_ms_p99": nothing if who == "machine" else lag,
                }
            )
        )
    return pd.concat(parts, ignore_index=True)


def _manifest(plan: _Plan, wrong: Wrong) -> dict[str, Any]:
    measure = plan.scenario.measure
    return {
        "schema": 1,
        "synthetic": True,
        "t0_ns": T0_NS,
        "wall_offset_ns": 1_790_000_000_000_000_000,
        "window_ns": [T0_NS + measure.warmup_ns, T0_NS + measure.duration_ns],
        "rtt_base_ns": plan.rtt,
        "rtt_measured": [{"plane": plane, "rtt_ns": plan.rtt + 300_000} for plane in range(plan.scenario.topology.planes)],
        "socket_drops": dict.fromkeys(plan.topology.hosts, 0),
        "stop_ns": T0_NS + measure.duration_ns,
        "counters": {host: {"port_dry_ns": 0} for host in plan.topology.hosts},
        "versions": {"python": "3.11.2"},
        "kernel": "made up",
        "cpu": {"model": "made up", "cores": 2},
        "command": "python -m tests.unit.analysis.synthetic",
        "git": {"commit": "0" * 40, "dirty": False},
        "seed": plan.scenario.seed,
        "delay_method": "nfqueue",
        "bringup_s": 1.25,
        "teardown_s": 0.2,
        "started": "2026-01-01T00:00:00Z",
        "ended": "2026-01-01T00:00:25Z",
        "status": wrong.status,
    }


if __name__ == "__main__":
    print(write(Path(sys.argv[1])))

__all__ = ["SCENARIO", "T0_NS", "Wrong", "ev_of", "write"]
