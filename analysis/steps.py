"""Steps of jobs in lock step (training, collectives) as the whole job went through them: the steps table, its ranks joined.

A step of a job is over when its last rank is done; its time runs from the end of the step before. The collective begins when
the last rank has finished computing: what ranks waited for each other before is the job's own doing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from analysis.arrays import Bools, Ints, ints
from analysis.results import Run
from testbed.model.jobs import LOCKSTEP
from testbed.model.scenario import Scenario


@dataclass(frozen=True, slots=True)
class JobSteps:
    """One job's complete steps in order, as arrays of equal length; all times absolute ns."""

    workload: int  # its place in the scenario
    job: str
    step: Ints
    start_ns: Ints  # the end of the step before; of the first, when the first rank entered it
    ready_ns: Ints  # the last rank had finished computing
    end_ns: Ints  # the last rank was done

    def within(self, start_ns: int, end_ns: int) -> Bools:
        """Which steps lie wholly in [start, end)."""
        return np.asarray((self.start_ns >= start_ns) & (self.end_ns < end_ns), dtype=np.bool_)

    @property
    def took_ns(self) -> Ints:
        return self.end_ns - self.start_ns

    @property
    def collective_ns(self) -> Ints:
        return self.end_ns - np.maximum(self.ready_ns, self.start_ns)


def steps_of(run: Run, workload: int) -> JobSteps | None:
    """The steps that every rank of a job completed; None for a job that is not in lock step or completed none."""
    spec = run.scenario.workload[workload]
    mine = run.steps[ints(run.steps, "workload") == workload]
    if spec.kind not in LOCKSTEP or not len(mine):
        return None
    number, rank_of = np.unique(ints(mine, "step"), return_inverse=True)
    count = np.bincount(rank_of)
    whole = np.flatnonzero(count == len(spec.hosts))
    first, ready, end = (np.zeros(len(number), np.int64) for _ in range(3))
    first[:] = np.iinfo(np.int64).max
    np.minimum.at(first, rank_of, ints(mine, "start_ns"))
    np.maximum.at(ready, rank_of, ints(mine, "ready_ns"))
    np.maximum.at(end, rank_of, ints(mine, "end_ns"))
    if not len(whole):
        return None
    first, ready, end = first[whole], ready[whole], end[whole]
    start = np.concatenate([first[:1], end[:-1]])
    return JobSteps(workload, spec.job, number[whole], start, ready, end)


def over(run: Run, scenario: Scenario) -> Mapping[int, int]:
    """When each job of a limited number of steps had done them all, by its place in the scenario."""
    found: dict[int, int] = {}
    for index, spec in enumerate(scenario.workload):
        steps = steps_of(run, index)
        if steps is not None and spec.steps is not None and len(steps.step) == spec.steps:
            found[index] = int(steps.end_ns[-1])
    return found
