"""Jobs in lock step worked out again from the steps table and the scenario: their times, their ideal, their bus bandwidth.

The formulas are those of the metrics' definitions (results-format, "Metrics"), written down once more, with loops over ranks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pandas as pd

from testbed.model.scenario import Scenario

LOCKSTEP = {"training", "ring_allreduce", "all_to_all"}


class Step(NamedTuple):
    """One step that all ranks completed, absolute ns: its begin, when the last rank had computed, when the last was done."""

    number: int
    start: int
    ready: int
    end: int


def in_lock_step(spec: Any) -> bool:
    return str(spec.kind) in LOCKSTEP


def _ring(spec: Any) -> bool:
    return "ring_allreduce" in {str(spec.kind), str(spec.collective)}


def steps(table: pd.DataFrame, index: int, ranks: int) -> list[Step]:
    """The complete steps of workload `index`, in order."""
    found: list[Step] = []
    mine = table[table["workload"] == index]
    for number in sorted(set(mine["step"])):
        rows = mine[mine["step"] == number]
        if len(rows) == ranks:
            start = found[-1].end if found else int(rows["start_ns"].min())
            found.append(Step(int(number), start, int(rows["ready_ns"].max()), int(rows["end_ns"].max())))
    return found


def collective_ns(scenario: Scenario, spec: Any, flow_bps: float) -> float:
    """The ideal time of one collective whose flows get `flow_bps` of payload each."""
    ranks, delay, ahead = len(spec.hosts), max(scenario.links.delay_ns), head_start_ns(scenario)
    if _ring(spec):
        return float(2 * (ranks - 1) * (delay + max(0, spec.message / ranks * 8e9 / flow_bps - ahead)))
    return float(delay + max(0, spec.message * 8e9 / flow_bps - ahead))


def head_start_ns(scenario: Scenario) -> float:
    """What a full bucket of the slower ports is worth (docs/switch.md, burst), but no more than the time they stand idle."""
    links = scenario.links
    rate = min(links.rate_bps, links.fabric_rate_bps)
    frame = 14 + links.mtu + links.overhead_bytes
    return min(float(max(links.delay_ns)), (frame + max(frame / 2, rate / 8e3)) * 8e9 / rate)


def pace_bps(scenario: Scenario, spec: Any, flow_bps: float) -> float:
    """The mean rate of each flow when every step takes its ideal time."""
    ranks = len(spec.hosts)
    per_step = 2 * (ranks - 1) * spec.message / ranks if _ring(spec) else spec.message
    return float(per_step * 8e9 / (spec.compute_ns + collective_ns(scenario, spec, flow_bps)))


def counted(scenario: Scenario, table: pd.DataFrame, start: int, end: int) -> Iterator[tuple[int, list[Step]]]:
    """Each job in lock step with the steps that lie wholly in the window."""
    for index, spec in enumerate(scenario.workload):
        if in_lock_step(spec):
            inside = [step for step in steps(table, index, len(spec.hosts)) if start <= step.start and step.end < end]
            if inside:
                yield index, inside


def metrics(scenario: Scenario, table: pd.DataFrame, window: tuple[int, int], alone_bps: dict[int, float]) -> dict[str, float]:
    """`step_*` and `busbw_*`. `alone_bps`: what a flow of each job gets in the fabric without faults and other jobs."""
    took: list[float] = []
    of_jobs: list[float] = []
    buses: list[tuple[float, float]] = []
    for index, inside in counted(scenario, table, *window):
        spec, ranks = scenario.workload[index], len(scenario.workload[index].hosts)
        mine = [(step.end - step.start) / 1e6 for step in inside]
        took += mine
        of_jobs.append(sum(mine) / len(mine))
        mean = sum(step.end - max(step.ready, step.start) for step in inside) / len(inside)
        size = spec.message * (2 / ranks if _ring(spec) else 1) * (ranks - 1)
        buses.append((collective_ns(scenario, spec, alone_bps[index]) / mean, size * 8e3 / mean))
    if not took:
        return {}
    times = pd.Series(took)
    p50, p99 = float(times.quantile(0.5)), float(times.max() if len(took) < 100 else times.quantile(0.99))
    ratio, mbps = min(buses)
    return {
        "step_ms_mean": float(times.mean()),
        "step_ms_mean_slowest_job": max(of_jobs),
        "step_ms_p50": p50,
        "step_ms_p99": p99,
        "step_ms_max": float(times.max()),
        "step_jitter": p99 / p50 - 1,
        "busbw_mbps": mbps,
        "busbw_ratio": ratio,
    }
