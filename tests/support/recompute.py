"""Every metric of summary.json worked out again from the raw tables of a results folder, in another way than `analysis` does.

Reads the Parquet files itself, loops over packets where `analysis` uses arrays, and takes the ideal from linear programs
written link by link. Of the product it uses the scenario and its loader only. For runs whose hosts recorded throughout.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pandas as pd

from tests.support import recompute_jobs as jobs
from tests.support.recompute_ideal import HeldFault, Tables, each

SETTLE_RTTS = 20


class Recomputed(Tables):
    """One run. All times absolute ns."""

    # --- metrics

    def metrics(self) -> dict[str, float]:
        return {
            **self._goodput(),
            **self._messages(),
            **self._steps(),
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
        pairs = {tuple(f"h{end}" for end in spec.bystander) for spec in self.scenario.workload if spec.bystander}
        aside = [placed / bound for flow, (placed, bound) in rows.items() if tuple(self.ends[flow]) in pairs]
        beside = {"bystander_goodput_ratio": min(aside)} if aside else {}
        tied = {"ideal_transport_mbps": self._transport_mbps()} if self.one_path else {}
        return (
            tied
            | beside
            | {
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
        )

    @property
    def one_path(self) -> bool:
        """The transport leaves flows a part of their paths only."""
        return str(self.scenario.transport.kind) == "rc" or self.scenario.transport.policy == "single_path"

    def _transport_mbps(self) -> float:
        tied = self.ideal(own_paths=True).values()
        return sum(steps.bytes_in(self.start, self.end) for steps in tied) * 8 / self.seconds / 1e6

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

    def _steps(self) -> dict[str, float]:
        alone = {at: self.alone_bps(at) for at, spec in enumerate(self.scenario.workload) if jobs.in_lock_step(spec)}
        return jobs.metrics(self.scenario, self.tables["steps"], (self.start, self.end), alone)

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
        for _, of_path in firsts.groupby(["flow", "ev"]):
            ordered = of_path.sort_values("placed_ns", kind="stable")
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
        for row in each(self.tables["events"]):
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
            for row in each(self.tables["packets"]):
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


def _placed_in(rows: pd.DataFrame, spans: Sequence[tuple[int, int]]) -> float:
    times = sorted(rows["placed_ns"].tolist())
    size = int(rows["bytes"].iloc[0])
    assert (rows["bytes"] == size).all()
    return float(size * sum(bisect_left(times, right) - bisect_left(times, left) for left, right in spans))
