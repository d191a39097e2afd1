"""Steps and collectives: `step_ms_*` and `step_jitter` of all jobs in lock step, `busbw_*` of the job furthest from its ideal.

Steps that lie wholly in the window count. Bus bandwidth follows the NCCL tests; its ideal is the job alone in the fabric
without faults (`testbed.model.jobs`), so that what other jobs and faults cost shows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analysis.arrays import Floats, percentile
from analysis.steps import JobSteps, steps_of
from analysis.view import View
from testbed.model.jobs import alone_ns, bus_bytes

FEW = 100  # of fewer values the 99th percentile is the largest (DESIGN 4.4)


@dataclass(frozen=True, slots=True)
class JobFigures:
    """One job over its steps in the window. Times in ms, bandwidth in Mbit/s per rank."""

    job: str
    steps: int
    step_ms_mean: float
    step_ms_max: float
    collective_ms_mean: float
    ideal_ms: float  # of the collective, alone in the fabric
    busbw_mbps: float
    busbw_ratio: float


def in_window(view: View) -> list[JobSteps]:
    """Each job that completed at least one step in the window, with only those steps."""
    found = []
    for workload in range(len(view.run.scenario.workload)):
        steps = steps_of(view.run, workload)
        if steps is None:
            continue
        kept = steps.within(view.start_ns, view.end_ns)
        if np.any(kept):
            columns = (steps.step[kept], steps.start_ns[kept], steps.ready_ns[kept], steps.end_ns[kept])
            found.append(JobSteps(workload, steps.job, *columns))
    return found


def figures(view: View, steps: JobSteps) -> JobFigures:
    """What one job got."""
    scenario = view.run.scenario
    mean_ns = float(np.mean(steps.collective_ns))
    ideal_ns = alone_ns(scenario, view.topology, steps.workload)
    return JobFigures(
        job=steps.job,
        steps=len(steps.step),
        step_ms_mean=float(np.mean(steps.took_ns)) / 1e6,
        step_ms_max=float(np.max(steps.took_ns)) / 1e6,
        collective_ms_mean=mean_ns / 1e6,
        ideal_ms=ideal_ns / 1e6,
        busbw_mbps=bus_bytes(scenario.workload[steps.workload]) * 8e3 / mean_ns,
        busbw_ratio=ideal_ns / mean_ns,
    )


def measure(view: View) -> dict[str, float]:
    jobs = in_window(view)
    if not jobs:
        return {}
    took: Floats = np.concatenate([steps.took_ns for steps in jobs]) / 1e6
    p50, p99 = percentile(took, 0.5), float(np.max(took)) if len(took) < FEW else percentile(took, 0.99)
    worst = min((figures(view, steps) for steps in jobs), key=lambda one: one.busbw_ratio)
    return {
        "step_ms_mean": float(np.mean(took)),
        "step_ms_mean_slowest_job": max(float(np.mean(steps.took_ns)) / 1e6 for steps in jobs),
        "step_ms_p50": p50,
        "step_ms_p99": p99,
        "step_ms_max": float(np.max(took)),
        "step_jitter": p99 / p50 - 1,
        "busbw_mbps": worst.busbw_mbps,
        "busbw_ratio": worst.busbw_ratio,
    }
