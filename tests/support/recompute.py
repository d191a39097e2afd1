"""Every metric of summary.json worked out again from the raw tables of a results folder, in another way than `analysis` does.

Reads the Parquet files itself, loops over packets where `analysis` uses arrays, and takes the ideal from linear programs
written link by link. Of the product it uses the scenario and its loader only. For runs whose hosts recorded throughout.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from testbed.model.fluid import Mode
from testbed.model.load import load
from testbed.model.scenario import FaultAction, Scenario
from testbed.model.topology import build
from tests.support.fluid_program import Case, max_min

SETTLE_RTTS = 20


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


class Recomputed:
    """One run. All times absolute ns."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.scenario: Scenario = load(folder / "scenario.yaml")
        self.manifest: dict[str, Any] = json.loads((folder / "manifest.json").read_text())
        self.t0 = int(self.manifest["t0_ns"])
        self.start, self.end = (int(value) for value in self.manifest["window_ns"])
        self.rtt = int(self.manifest["rtt_base_ns"])
        names = ("packets", "messages", "events", "samples", "ports", "cpu")
        self.tables = {name: pd.read_parquet(folder / f"{name}.parquet") for name in names}
        packets = self.tables["packets"]
        self.sent = packets[(packets["sent_ns"] >= self.start) & (packets["sent_ns"] < self.end)]
        arrived = packets[packets["placed_ns"].notna()].copy()
        arrived["placed_ns"] = arrived["placed_ns"].astype("int64")
        self.arrived = arrived
        self.first = arrived.sort_values("placed_ns", kind="stable").drop_duplicates(["flow", "qp", "psn"])
        self.placed = self.first[(self.first["placed_ns"] >= self.start) & (self.first["placed_ns"] < self.end)]
        ends = packets[["flow", "host", "peer"]].astype({"host": str, "peer": str}).drop_duplicates("flow")
        self.ends: dict[int, tuple[str, str]] = {int(row.flow): (row.host, row.peer) for row in _rows(ends)}

    @property
    def seconds(self) -> float:
        return (self.end - self.start) / 1e9

    # --- the ideal

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
            stop = self.end
            if spec.stop_ns is not None and not completed.isna().any():
                stop = min(self.end, max(self.t0 + spec.stop_ns, int(completed.max())))
            spans[flow] = (self.t0 + spec.start_ns, stop)
        return spans

    @staticmethod
    def _belongs(spec: Any, host: int, peer: int) -> bool:
        if spec.bystander == (host, peer):
            return True
        return (
            host in spec.hosts and (spec.target in (None, peer)) if spec.hosts else (spec.source, spec.target) == (host, peer)
        )

    def ideal(self, mode: Mode = "free") -> dict[int, Steps]:
        moments = {self.t0, self.end}
        moments |= {moment for span in self.flow_spans.values() for moment in span}
        moments |= {moment for fault in self.faults for moment in (fault.start, fault.end or self.end)}
        edges = sorted(moment for moment in moments if self.t0 <= moment <= self.end)
        rates: dict[int, list[float]] = {flow: [] for flow in self.ends}
        for left, right in pairwise(edges):
            middle = (left + right) // 2
            active = [flow for flow, (begin, stop) in self.flow_spans.items() if begin <= middle < stop]
            found = max_min(self._case(active, middle, mode))
            for flow, steps in rates.items():
                steps.append(float(found[active.index(flow)]) if flow in active else 0.0)
        return {flow: Steps(edges, values) for flow, values in rates.items()}

    def _case(self, active: list[int], at: int, mode: Mode) -> Case:
        left: dict[str, float] = {}
        for fault in self.faults:
            if fault.start <= at < (fault.end or self.end):
                for way in fault.ways:
                    left[way] = left.get(way, 1.0) * fault.left
        demands = tuple((int(self.ends[flow][0][1:]), int(self.ends[flow][1][1:])) for flow in active)
        dead = tuple(way for way, share in left.items() if not share)
        slow = {way: share for way, share in left.items() if share}
        scenario = self.scenario
        return Case(scenario.topology, scenario.links, demands, dead, slow, None, mode, scenario.transport.payload)

    # --- metrics

    def metrics(self) -> dict[str, float]:
        return {
            **self._goodput(),
            **self._messages(),
            **self._delay(),
            **self._packets(),
            **self._events(),
            **self._fault_maxima(),
            **self._machine(),
        }

    def flow_rows(self) -> dict[int, tuple[float, float]]:
        """Per flow (goodput, ideal) in bit/s over the window."""
        ideal = self.ideal()
        return {
            flow: (
                int(self.placed.loc[self.placed["flow"] == flow, "bytes"].sum()) * 8 / self.seconds,
                ideal[flow].bytes_in(self.start, self.end) * 8 / self.seconds,
            )
            for flow in sorted(self.ends)
        }

    def _goodput(self) -> dict[str, float]:
        rows = self.flow_rows()
        goodput, ideal = sum(row[0] for row in rows.values()), sum(row[1] for row in rows.values())
        equal = sum(steps.bytes_in(self.start, self.end) for steps in self.ideal("equal_planes").values()) * 8 / self.seconds
        ratios = np.array([placed / bound for placed, bound in rows.values()])
        steps = list(self.ideal().values())
        seconds = []
        for at in range(self.start, self.end - 10**9 + 1, 10**9):
            inside = self.placed[(self.placed["placed_ns"] >= at) & (self.placed["placed_ns"] < at + 10**9)]
            seconds.append(inside["bytes"].sum() / sum(one.bytes_in(at, at + 10**9) for one in steps))
        return {
            "goodput_mbps": goodput / 1e6,
            "ideal_mbps": ideal / 1e6,
            "goodput_ratio": goodput / ideal,
            "ideal_equal_planes_mbps": equal / 1e6,
            "goodput_ratio_min_1s": min(seconds),
            "flow_goodput_ratio_min": ratios.min(),
            "flow_goodput_ratio_p50": np.median(ratios),
            "flow_goodput_ratio_max": ratios.max(),
            "jain_index": ratios.sum() ** 2 / (len(ratios) * (ratios**2).sum()),
        }

    def _messages(self) -> dict[str, float]:
        table = self.tables["messages"].astype({"verdict": str})
        done = table[(table["verdict"] == "ok") & table["complete_ns"].notna()]
        timed = done[(done["post_ns"] >= self.start) & (done["post_ns"] < self.end)]
        took = ((timed["complete_ns"] - timed["post_ns"]).astype("int64") / 1e6).tolist()
        placed = {(f, q, p) for f, q, p in zip(self.arrived["flow"], self.arrived["qp"], self.arrived["psn"], strict=True)}
        packets = self.tables["packets"].drop_duplicates(["flow", "qp", "psn"])
        rows = zip(packets["flow"], packets["qp"], packets["psn"], packets["bytes"], strict=True)
        return {
            "message_ms_p50": float(np.quantile(took, 0.5)),
            "message_ms_p99": float(np.quantile(took, 0.99)),
            "message_ms_max": max(took),
            "messages_completed": len(done),
            "messages_incomplete": len(table) - len(done) - (table["verdict"] == "corrupt").sum(),
            "messages_corrupt": (table["verdict"] == "corrupt").sum(),
            "bytes_lost": sum(size for flow, qp, psn, size in rows if (flow, qp, psn) not in placed),
        }

    def _delay(self) -> dict[str, float]:
        inside = self.arrived[(self.arrived["sent_ns"] >= self.start) & (self.arrived["sent_ns"] < self.end)]
        oneway = (inside["placed_ns"] - inside["sent_ns"]) / 1e3
        values = [j / 1e3 for at, j in self.jitter() if self.start <= at < self.end]
        found = {"oneway_us_p50": float(oneway.quantile(0.5)), "oneway_us_p99": float(oneway.quantile(0.99))}
        return found | {"jitter_us": sum(values) / len(values)} | {"rtt_base_ms": self.rtt / 1e6}

    def jitter(self, plane: int | None = None) -> list[tuple[int, float]]:
        """(time of arrival, running J in ns) of every first transmission after its path's first, RFC 3550 6.4.1."""
        firsts = self.arrived[~self.arrived["retransmission"] & (self.arrived["sent_ns"] < self.end)]
        firsts = firsts if plane is None else firsts[firsts["plane"] == plane]
        found = []
        for _, rows in firsts.groupby(["flow", "ev"]):
            ordered = rows.sort_values("placed_ns", kind="stable")
            transits = (ordered["placed_ns"] - ordered["sent_ns"]).tolist()
            j = 0.0
            for before, now, at in zip(transits, transits[1:], ordered["placed_ns"].tolist()[1:], strict=False):
                j += (abs(now - before) - j) / 16
                found.append((at, j))
        return found

    def _packets(self) -> dict[str, float]:
        fates = self.sent["fate"].astype(str)
        ports = self.tables["ports"]
        inside = ports[(ports["t_ns"] > self.start) & (ports["t_ns"] <= self.end)]
        found = {
            "packets_sent": len(self.sent),
            "retransmit_ratio": self.sent["retransmission"].mean(),
            "spurious_retransmit_ratio": self.sent["duplicate"].mean(),
            "packets_marked": (fates == "marked").sum(),
            "nacks": (fates == "trimmed").sum(),
            "packets_trimmed": inside["trimmed"].sum(),
            "packets_dropped_queue": inside["dropped_queue"].sum(),
            "packets_dropped_fault": inside["dropped_fault"].sum(),
        }
        whole = self.sent
        for fault in self.faults:
            if any(way.startswith("h") or ">h" in way for way in fault.ways):
                whole = whole[(whole["sent_ns"] < fault.start) | (whole["sent_ns"] >= (fault.end or self.end))]
        sizes = [whole.loc[whole["plane"] == plane, "bytes"].sum() for plane in range(self.scenario.topology.planes)]
        return found | {"plane_imbalance": max(sizes) / (sum(sizes) / len(sizes)) - 1}

    def _events(self) -> dict[str, float]:
        counts: dict[str, int] = defaultdict(int)
        for row in _rows(self.tables["events"]):
            if row.kind != "ev_state" or not self.start <= row.t_ns < self.end:
                continue
            counts["evs_retired"] += row.after == "ASSUMED_BAD" != row.before
            counts["evs_restored"] += row.before == "ASSUMED_BAD" and row.after == "GOOD"
            counts["evs_skipped"] += row.after == "SKIP"
        return {name: counts[name] for name in ("evs_retired", "evs_restored", "evs_skipped")}

    def _machine(self) -> dict[str, float]:
        cpu = self.tables["cpu"].astype({"who": str})
        inside = cpu[(cpu["t_ns"] > self.start) & (cpu["t_ns"] <= self.end)]
        lag = inside.loc[inside["who"].str.fullmatch(r"h\d+"), "lag_ms_p99"].dropna()
        found: dict[str, float] = {
            "cpu_busy": inside.loc[inside["who"] == "machine", "busy"].mean(),
            "host_lag_ms_p99": float(lag.quantile(0.99)),
        }
        return found | {name: self.manifest[name] for name in ("bringup_s", "teardown_s")}

    # --- faults

    def fault_rows(self) -> list[dict[str, float | None]]:
        return [self._cost(fault) for fault in self.faults]

    def _fault_maxima(self) -> dict[str, float]:
        rows = self.fault_rows()
        found: dict[str, float] = {}
        for name in ("recovery_ms", "recovery_rtts", "stall_ms", "stall_rtts"):
            values = [row[name] for row in rows]
            if values and None not in values:
                found[f"{name}_max"] = max(value for value in values if value is not None)
        return found

    def crosses(self, fault: HeldFault, flow: int, ev: int) -> bool:
        """Whether that path crosses a faulty direction, by the naming rules of the fabric."""
        (source, target), plane = (int(name[1:]) for name in self.ends[flow]), ev >> 16
        size = self.scenario.topology.hosts_per_t0
        up, down, top = f"p{plane}t0-{source // size}", f"p{plane}t0-{target // size}", f"p{plane}t1-{ev & 0xFFFF}"
        links = [f"h{source}>{up}", f"{down}>h{target}"] + ([f"{up}>{top}", f"{top}>{down}"] if up != down else [])
        return any(link in fault.ways for link in links)

    def _cost(self, fault: HeldFault) -> dict[str, float | None]:
        end = fault.end if fault.end is not None else max(self.end, fault.start)
        lost = []
        if fault.action != "rate":
            for row in _rows(self.tables["packets"]):
                gone = pd.isna(row.placed_ns) and row.fate in {"lost", "unknown"}
                if gone and fault.start - self.rtt // 2 <= row.sent_ns < end and self.crosses(fault, row.flow, row.ev):
                    lost.append(int(row.sent_ns))
        lost.sort()
        gaps = [later - sooner for sooner, later in pairwise(lost)]
        recovery = float(max(0, lost[-1] - fault.start)) if lost else 0.0
        if gaps and end - lost[-1] <= max(gaps):
            recovery = float(end - fault.start)
        stall = self._stall(fault, end)
        return {
            "at_s": (fault.start - self.t0) / 1e9,
            "until_s": None if fault.end is None else (fault.end - self.t0) / 1e9,
            "recovery_ms": recovery / 1e6,
            "recovery_rtts": recovery / self.rtt,
            "stall_ms": None if stall is None else stall / 1e6,
            "stall_rtts": None if stall is None else stall / self.rtt,
            "packets_lost": len(lost),
        }

    def _calm(self, fault: HeldFault) -> list[tuple[int, int]]:
        calm, cursor = [], self.start
        for other in self.faults:
            if other.start >= fault.start:
                break
            calm.append((cursor, other.start))
            cursor = max(cursor, (other.end or self.end) + SETTLE_RTTS * self.rtt)
        calm.append((cursor, min(fault.start, self.end)))
        return [span for span in calm if span[1] > span[0]]

    def _stall(self, fault: HeldFault, end: int) -> float | None:
        stop = min(end + SETTLE_RTTS * self.rtt, self.end)
        calm = self._calm(fault)
        if stop <= fault.start or sum(right - left for left, right in calm) < 5 * self.rtt:
            return None
        used = self.tables["packets"][["flow", "ev"]].drop_duplicates()
        hit = sorted({int(f) for f, ev in zip(used["flow"], used["ev"], strict=True) if self.crosses(fault, int(f), int(ev))})
        if not hit:
            return 0.0
        ideal = self.ideal()
        own = self.first[self.first["flow"].isin(hit)]
        usual = {flow: _placed_in(own[own["flow"] == flow], calm) / sum(ideal[flow].bytes_in(*s) for s in calm) for flow in hit}
        rate = sum(usual[f] * ideal[f].bytes_in(fault.start, stop) for f in hit) / ((stop - fault.start) / 1e9)
        after = own[(own["placed_ns"] >= fault.start) & (own["placed_ns"] < stop)].sort_values("placed_ns", kind="stable")
        worst, placed = 0.0, 0
        for at, size in [*zip(after["placed_ns"].tolist(), after["bytes"].tolist(), strict=True), (stop, 0)]:
            expected = sum(usual[flow] * ideal[flow].bytes_in(fault.start, at) for flow in hit)
            worst = max(worst, expected - placed)
            placed += size
        return worst / rate * 1e9


def _rows(frame: pd.DataFrame) -> Iterator[Any]:
    return iter(frame.itertuples())


def _placed_in(rows: pd.DataFrame, spans: Sequence[tuple[int, int]]) -> float:
    times = sorted(rows["placed_ns"].tolist())
    size = int(rows["bytes"].iloc[0])
    assert (rows["bytes"] == size).all()
    return float(size * sum(bisect_left(times, right) - bisect_left(times, left) for left, right in spans))
