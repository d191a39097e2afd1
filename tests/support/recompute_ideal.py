"""A results folder's raw tables, the faults that held, each flow's ideal from linear programs: what `recompute` counts with."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd

from testbed.model.fluid import Mode
from testbed.model.load import load
from testbed.model.scenario import FaultAction, Scenario
from testbed.model.topology import build
from tests.support import recompute_jobs as jobs
from tests.support.fluid_program import Case, max_min

Allowed = tuple[frozenset[int], ...]


@dataclass(frozen=True)
class HeldFault:
    """A fault as the events table has it; `ways` are directed links `from>to`."""

    index: int
    action: str
    ways: frozenset[str]
    left: float
    start: int
    end: int | None


@dataclass(frozen=True)
class Steps:
    """A piecewise constant rate in bit/s."""

    edges: list[int]
    rates: list[float]

    def bytes_in(self, start: int, end: int) -> float:
        total = 0.0
        for left, right, rate in zip(self.edges, self.edges[1:], self.rates, strict=False):
            total += max(0, min(right, end) - max(left, start)) * rate / 8e9
        return total


class Tables:
    """One run. All times absolute ns."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.scenario: Scenario = load(folder / "scenario.yaml")
        self.manifest: dict[str, Any] = json.loads((folder / "manifest.json").read_text())
        self.t0 = int(self.manifest["t0_ns"])
        self.start, self.end = (int(value) for value in self.manifest["window_ns"])
        self.rtt = int(self.manifest["rtt_base_ns"])
        names = ("packets", "messages", "steps", "events", "samples", "ports", "cpu")
        self.tables = {name: pd.read_parquet(folder / f"{name}.parquet") for name in names}
        packets = self.tables["packets"]
        self.sent = packets[(packets["sent_ns"] >= self.start) & (packets["sent_ns"] < self.end)]
        arrived = packets[packets["placed_ns"].notna()].copy()
        arrived["placed_ns"] = arrived["placed_ns"].astype("int64")
        self.arrived = arrived
        self.first = arrived.sort_values("placed_ns", kind="stable").drop_duplicates(["flow", "qp", "psn"])
        self.placed = self.first[(self.first["placed_ns"] >= self.start) & (self.first["placed_ns"] < self.end)]
        ends = packets[["flow", "host", "peer"]].astype({"host": str, "peer": str}).drop_duplicates("flow")
        self.ends: dict[int, tuple[str, str]] = {int(row.flow): (row.host, row.peer) for row in each(ends)}

    @property
    def seconds(self) -> float:
        return (self.end - self.start) / 1e9

    @cached_property
    def faults(self) -> list[HeldFault]:
        events = self.tables["events"]
        found = []
        for index, spec in enumerate(self.scenario.faults):
            mine = events[events["fault"] == index]
            starts, ends = mine[mine["kind"] == "fault_start"], mine[mine["kind"] == "fault_end"]
            if not len(starts):
                continue
            places = [str(place) for place in dict.fromkeys(starts["where"])]
            links = [name for place in places for name in ([place] if ":" in place else self._links_of(place))]
            ways = set[str]()
            for name in links:
                lower, upper = name.split(":")
                both = {f"{lower}>{upper}", f"{upper}>{lower}"}
                if spec.direction != "both":
                    assert spec.link.ends is not None
                    forward = ">".join(spec.link.ends)
                    both = {forward} if spec.direction == "forward" else both - {forward}
                ways |= both
            nominal = self.scenario.links.rate_bps if links[0].startswith("h") else self.scenario.links.fabric_rate_bps
            left = {FaultAction.RATE: spec.to_bps / nominal}.get(spec.action, 1 - spec.ratio if spec.ratio else 0.0)
            end = int(ends["t_ns"].max()) if len(ends) else None
            found.append(HeldFault(index, str(spec.action), frozenset(ways), left, int(starts["t_ns"].min()), end))
        return sorted(found, key=lambda fault: fault.start)

    def _links_of(self, switch: str) -> list[str]:
        links = build(self.scenario.topology).links
        return [link.name for link in links if switch in (link.lower.node, link.upper.node)]

    @cached_property
    def flow_spans(self) -> dict[int, tuple[int, int]]:
        """Start of each flow by the workload of its job, and when it had nothing left to send: a stop ends the posting only."""
        spans = {}
        messages = self.tables["messages"]
        for flow, (host, peer) in self.ends.items():
            spec = next(w for w in self.scenario.workload if self._belongs(w, int(host[1:]), int(peer[1:])))
            completed = messages.loc[messages["flow"] == flow, "complete_ns"]
            stop = self._over(spec)
            if spec.stop_ns is not None and not completed.isna().any():
                stop = min(self.end, max(self.t0 + spec.stop_ns, int(completed.max())))
            spans[flow] = (self.t0 + spec.start_ns, stop)
        return spans

    def _over(self, spec: Any) -> int:
        """The end of a job of a limited number of steps, else of the window."""
        if not jobs.in_lock_step(spec) or spec.steps is None:
            return self.end
        done = jobs.steps(self.tables["steps"], self.scenario.workload.index(spec), len(spec.hosts))
        return min(self.end, done[-1].end) if len(done) == spec.steps else self.end

    @staticmethod
    def _belongs(spec: Any, host: int, peer: int) -> bool:
        if spec.bystander == (host, peer):
            return True
        return (
            host in spec.hosts and (spec.target in (None, peer)) if spec.hosts else (spec.source, spec.target) == (host, peer)
        )

    def workload_of(self, flow: int) -> int:
        """Its place in the scenario."""
        host, peer = (int(name[1:]) for name in self.ends[flow])
        return next(index for index, spec in enumerate(self.scenario.workload) if self._belongs(spec, host, peer))

    def ideal(self, mode: Mode = "free", *, own_paths: bool = False) -> dict[int, Steps]:
        """`own_paths`: over the EVs that each flow did send on alone."""
        moments = {self.t0, self.end}
        moments |= {moment for span in self.flow_spans.values() for moment in span}
        moments |= {moment for fault in self.faults for moment in (fault.start, fault.end or self.end)}
        edges = sorted(moment for moment in moments if self.t0 <= moment <= self.end)
        rates: dict[int, list[float]] = {flow: [] for flow in self.ends}
        for left, right in pairwise(edges):
            middle = (left + right) // 2
            active = [flow for flow, (begin, stop) in self.flow_spans.items() if begin <= middle < stop]
            found = self._paced(active, max_min(self._case(active, middle, mode, own_paths)).tolist())
            for flow, steps in rates.items():
                steps.append(found[active.index(flow)] if flow in active else 0.0)
        return {flow: Steps(edges, values) for flow, values in rates.items()}

    def _paced(self, active: list[int], found: list[float]) -> list[float]:
        """A job in lock step goes at the pace of its slowest flow, and pauses for latency and computing."""
        workloads = [self.workload_of(flow) for flow in active]
        paced = list(found)
        for at, index in enumerate(workloads):
            spec = self.scenario.workload[index]
            if jobs.in_lock_step(spec):
                slowest = min(rate for rate, other in zip(found, workloads, strict=True) if other == index)
                paced[at] = jobs.pace_bps(self.scenario, spec, slowest) if slowest else 0.0
        return paced

    def _case(self, active: list[int], at: int, mode: Mode, own_paths: bool) -> Case:
        held = [fault for fault in self.faults if fault.start <= at < (fault.end or self.end)]
        left: dict[str, float] = {}
        for way in {way for fault in held for way in fault.ways}:
            mine = [fault for fault in held if way in fault.ways]
            slowest = min([fault.left for fault in mine if fault.action == "rate"], default=1.0)
            left[way] = slowest * math.prod(fault.left for fault in mine if fault.action != "rate")
        return self._fabric(active, left, mode, self._used(active) if own_paths else None)

    def _fabric(self, active: list[int], left: dict[str, float], mode: Mode, allowed: Allowed | None = None) -> Case:
        demands = tuple((int(self.ends[flow][0][1:]), int(self.ends[flow][1][1:])) for flow in active)
        dead = tuple(way for way, share in left.items() if not share)
        slow = {way: share for way, share in left.items() if share}
        scenario = self.scenario
        return Case(scenario.topology, scenario.links, demands, dead, slow, allowed, mode, scenario.transport.payload)

    def _used(self, flows: list[int]) -> Allowed:
        packets = self.tables["packets"]
        return tuple(frozenset(int(ev) for ev in packets.loc[packets["flow"] == flow, "ev"]) for flow in flows)

    def alone_bps(self, workload: int) -> float:
        """What each flow of a job in lock step gets in a sound fabric with nothing else in it."""
        mine = [flow for flow in self.ends if self.workload_of(flow) == workload]
        return float(min(max_min(self._fabric(mine, {}, "free"))))


def each(frame: pd.DataFrame) -> Iterator[Any]:
    return iter(frame.itertuples())
