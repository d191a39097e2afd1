"""A suite's run against a baseline: which metrics of which members are worse by more than they may be, and how sure that is.

Runs are compared seed by seed: seeds differ in who sends to whom over which paths, and that is no scatter. The median of these
differences gets a 95 % bootstrap interval in which both kinds of scatter are drawn: runs within a session, and sessions (the
baseline's sessions are drawn as wholes, and the run under test, which is one session, gets the deviation that a session of the
baseline had). A metric fails when the whole interval lies beyond what its gate allows; so noise widens the interval and never
fails a gate. Invalid runs give no value: a member with too few others is `invalid`, never regressed (pitfall H-06).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from analysis import baseline, suites
from analysis.arrays import Floats
from analysis.baseline import RUNS_MIN, Baseline, Sessions
from analysis.gates import Better, Gate
from analysis.suites import Suite
from testbed.errors import PRECEDENCE, ExitStatus, Problem, ScenarioError

RESAMPLES = 4000
TAIL = 2.5  # per cent at either end


class State(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    UNSUPPORTED = "unsupported"  # there is nothing to compare, or this machine cannot run it
    INVALID = "invalid"  # the machine decided the numbers


EXITS = {State.FAILED: ExitStatus.EXPECTATION_FAILED, State.INVALID: ExitStatus.INVALID}
EXPECTATIONS = "expectations"


@dataclass(frozen=True, slots=True)
class Case:
    """One check. `difference`, `low`, `high`: this run minus the baseline, in the metric's unit; None where none was taken."""

    member: str
    name: str
    state: State
    text: str
    median: float | None = None
    reference: float | None = None
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    allowed: float | None = None


@dataclass(frozen=True, slots=True)
class Regression:
    """`notes`: what a reader should know before believing any of it."""

    suite: Suite
    cases: tuple[Case, ...]
    notes: tuple[str, ...]

    def count(self, state: State) -> int:
        return sum(case.state is state for case in self.cases)

    @property
    def status(self) -> ExitStatus:
        return min((EXITS.get(case.state, ExitStatus.PASSED) for case in self.cases), key=PRECEDENCE.index)

    @property
    def state(self) -> State:
        """One word for all of it."""
        found = {ExitStatus.INVALID: State.INVALID, ExitStatus.EXPECTATION_FAILED: State.FAILED}
        return found.get(self.status, State.PASSED)


def regress(folder: Path, reference: Baseline | None) -> Regression:
    """Every expectation and every gated metric of the suite's run in `folder`. Without a baseline only the expectations.

    ScenarioError when `folder` is no suite's, or the baseline is of another.
    """
    suite = suites.read(folder)
    if reference is not None and reference.suite != suite.plan["suite"]:
        raise ScenarioError(
            [Problem(str(folder), 0, "", f"a run of {suite.plan['suite']}, the baseline is of {reference.suite}", "")]
        )
    cases = list[Case]()
    for member in suite.members:
        own = _expectations(suite, member)
        cases.append(own)
        if own.state in (State.PASSED, State.FAILED):
            cases += _metrics(suite, member, reference) if reference is not None else []
    return Regression(suite, (*cases, *_claims(suite)), _notes(suite, reference))


def _expectations(suite: Suite, member: str) -> Case:
    """What the member's own runs expected of themselves, and whether there is anything to compare."""
    word, _ = suite.status(member)
    counted = suite.of(member)
    usable = [one for one in counted if one.usable]
    if word == suites.UNSUPPORTED:
        return Case(member, EXPECTATIONS, State.UNSUPPORTED, counted[0].error or "this machine lacks something")
    broken = [one for one in counted if one.status is ExitStatus.BROKEN]
    if broken:
        return Case(member, EXPECTATIONS, State.FAILED, f"seed {broken[0].seed} broke: {broken[0].error or 'no reason given'}")
    if len(usable) < min(RUNS_MIN, len(counted)) or not usable:
        why = "; ".join(suites.why(one) for one in counted if not one.usable) or "it was not run"
        return Case(member, EXPECTATIONS, State.INVALID, f"{len(usable)} of {len(counted)} runs are valid: {why}")
    lines = suites.failed_lines(counted)
    return Case(member, EXPECTATIONS, State.FAILED if lines else State.PASSED, "\n".join(lines) or "every expectation holds")


def _metrics(suite: Suite, member: str, reference: Baseline) -> list[Case]:
    known = reference.members.get(member)
    if known is None:
        return [Case(member, "baseline", State.UNSUPPORTED, "the baseline does not have this member: update it")]
    if known.scenario != baseline.fingerprint(suite, member):
        return [Case(member, "baseline", State.UNSUPPORTED, "the scenario has changed since the baseline was made: update it")]
    table = suite.values(member)
    found = []
    for name, sessions in known.metrics.items():
        gate = reference.gates.get(f"{member}.{name}", reference.gates.get(name))
        if gate is None:
            continue
        values = table[name].dropna() if name in table else pd.Series(dtype="float64")
        found.append(_judged(member, name, gate, values[values.index.isin(known.seeds)], known.seeds, sessions))
    return found


def _judged(member: str, name: str, gate: Gate, values: pd.Series[Any], seeds: tuple[int, ...], sessions: Sessions) -> Case:
    """`values` by seed, of seeds that the baseline has too."""
    if len(values) < RUNS_MIN:
        text = f"{len(values)} valid runs have this metric; {RUNS_MIN} are needed to know how it scatters"
        return Case(member, name, State.UNSUPPORTED, text)
    usual = dict(zip(seeds, baseline.by_seed(sessions), strict=True))
    own = np.array([usual[int(seed)] for seed in values.index])
    there = [np.array(one) - np.array(list(usual.values())) for one in sessions]
    here = values.to_numpy(dtype=np.float64) - own
    reference, difference = float(np.median(own)), float(np.median(here))
    median, allowed = float(values.median()), gate.allowed(reference)
    low, high = interval(here, there)
    worse = {Better.HIGHER: high < -allowed, Better.LOWER: low > allowed, Better.SAME: low > allowed or high < -allowed}
    better = {Better.HIGHER: low > allowed, Better.LOWER: high < -allowed, Better.SAME: False}
    state = State.FAILED if worse[gate.better] else State.PASSED
    what = "worse" if state is State.FAILED else "better" if better[gate.better] else "as before"
    text = (
        f"{name} {median:.5g}, baseline {reference:.5g}: {what} (by seed {difference:+.4g}, "
        f"95 % between {low:+.4g} and {high:+.4g}; {allowed:.4g} is allowed, {gate.better.value} is better)"
    )
    return Case(member, name, state, text, median, reference, difference, low, high, allowed)


def interval(values: Floats, sessions: Sequence[Floats]) -> tuple[float, float]:
    """The ends of the 95 % bootstrap interval of median(values) - median of the sessions' medians. All less their seed's usual.

    With one session nothing is known of how sessions differ, and the interval holds only what runs scatter by.
    """
    rng = np.random.default_rng(0)  # equal data give equal verdicts
    per_session = np.stack([_medians(one, rng) for one in sessions], axis=1)
    count = len(sessions)
    chosen = rng.integers(0, count, (RESAMPLES, count))
    there = np.median(np.take_along_axis(per_session, chosen, axis=1), axis=1)
    medians = np.array([np.median(one) for one in sessions])
    # A sample's spread about its own middle is smaller than the population's by this much.
    deviations = (medians - np.median(medians)) * np.sqrt(count / max(1, count - 1))
    here = _medians(values, rng) + rng.choice(np.concatenate([deviations, -deviations]), RESAMPLES)
    low, high = np.percentile(here - there, (TAIL, 100 - TAIL))
    return float(low), float(high)


def _medians(values: Floats, rng: np.random.Generator) -> Floats:
    drawn = rng.integers(0, len(values), (RESAMPLES, len(values)))
    return np.asarray(np.median(values[drawn], axis=1), dtype=np.float64)


def _claims(suite: Suite) -> list[Case]:
    """One case for each claim of the suite about its members."""
    found, absent = [], {name for name in suite.members if suite.status(name)[0] == suites.UNSUPPORTED}
    for one in suites.judge(suite).summary["comparisons"]:
        for claim in one["expectations"]:
            state = State.PASSED if claim["passed"] else State.INVALID if one["status"] == "invalid" else State.FAILED
            if not claim["passed"] and absent.intersection(claim["about"]):
                state = State.UNSUPPORTED
            sides = f"{claim['text']}: {suites.sides(claim)}"
            found.append(Case(one["scenario"], claim["text"], state, sides))
    return found


def _notes(suite: Suite, reference: Baseline | None) -> tuple[str, ...]:
    if reference is None:
        return ("there is no baseline: only expectations are judged",)
    found = []
    if reference.machine != baseline.machine(suite.plan):
        there, here = _words(reference.machine), _words(baseline.machine(suite.plan))
        found.append(f"the baseline comes from another machine or kernel: {there}, here {here}")
    if any(one.get("unchanged") for one in suite.plan["members"]):
        found.append(f"the command line changed this run's scenarios: {suite.plan.get('command', '')}")
    absent = [name for name in reference.members if name not in suite.members]
    if absent:
        found.append(f"not in this run: {', '.join(absent)}")
    return tuple(found)


def _words(machine: tuple[Any, ...]) -> str:
    return " ".join(str(one) for one in machine)


def as_json(found: Regression) -> Mapping[str, Any]:
    """For `--json` and the history."""
    return {
        "suite": found.suite.plan["suite"],
        "run_id": found.suite.folder.resolve().name,
        "state": found.state.value,
        "notes": list(found.notes),
        "cases": [
            {
                "member": case.member,
                "name": case.name,
                "state": case.state.value,
                "text": case.text,
                "median": case.median,
                "reference": case.reference,
                "low": case.low,
                "high": case.high,
                "allowed": case.allowed,
            }
            for case in found.cases
        ],
    }
