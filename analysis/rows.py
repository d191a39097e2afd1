"""What a suite came to, claim by claim: a row for each comparison and for each member that is in none.

Of a row's description what follows `Claim:` is the claim, and from `Here` on how it was tried; one without is taken whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.suites import NOT_RUN, STATUS, Attempt, Suite, Verdict
from testbed.errors import PRECEDENCE, ExitStatus
from testbed.model import claims

ALWAYS = ("messages_corrupt == 0", "messages_incomplete == 0")  # DESIGN 4.2; worth a line only where they fail
WORDS = {"passed": "reproduces", "failed": "does not reproduce", NOT_RUN: NOT_RUN}
INVALID = "no valid result"
_NOT_EMULATED = re.compile(r"(?P<what>(?:[^:(]|\([^)]*\))*): (?P<why>.*)")  # a colon in brackets belongs to what they explain
_CLAIM = re.compile(r"(?:Claim: )?(?P<claim>.*?)(?: (?P<here>Here .*))?")


@dataclass(frozen=True, slots=True)
class Line:
    """One expectation: as written, what was measured instead of its left side, whether it holds."""

    text: str
    measured: str
    holds: bool


@dataclass(frozen=True, slots=True)
class Ran:
    """A member of a row: `fidelity` of its runs that count, the worst first; `report` relative to the suite's folder."""

    name: str
    scenario: str
    status: str
    fidelity: str
    report: str
    metrics: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Row:
    """`name`: of the comparison or member; `metrics`: those that its claims speak of; `status` as in summary.json."""

    name: str
    source: str
    claim: str
    setup: str
    status: str
    lines: tuple[Line, ...]
    members: tuple[Ran, ...]
    metrics: tuple[str, ...]
    errors: tuple[str, ...]
    group: bool

    @property
    def verdict(self) -> str:
        return WORDS.get(self.status, INVALID)


def rows(suite: Suite, verdict: Verdict) -> list[Row]:
    """In the order of the members; a comparison stands where its first member does."""
    plans = {one["name"]: one for one in suite.plan["members"]}
    grouped = {
        member: (plan, outcome)
        for plan, outcome in zip(suite.plan["comparisons"], verdict.summary["comparisons"], strict=True)
        for member in suite.members
        if member.startswith(plan["prefix"]) and plan["prefix"]
    }
    found, seen = list[Row](), set[str]()
    for name in suite.members:
        if name not in grouped:
            found.append(_single(suite, verdict, plans[name]))
        elif grouped[name][0]["prefix"] not in seen:
            seen.add(grouped[name][0]["prefix"])
            found.append(_group(suite, verdict, *grouped[name]))
    whole = zip(suite.plan["comparisons"], verdict.summary["comparisons"], strict=True)
    return found + [_group(suite, verdict, plan, outcome) for plan, outcome in whole if not plan["prefix"]]


def claim_and_setup(text: str) -> tuple[str, str]:
    parts = _CLAIM.fullmatch(" ".join(text.split()))
    assert parts is not None  # everything in it may be absent
    return parts["claim"][:1].upper() + parts["claim"][1:], parts["here"] or ""


def what_and_why(text: str) -> tuple[str, str]:
    """An entry of `not_emulated`: what is not, and the reason as a sentence; one without a colon is all `what`."""
    parts = _NOT_EMULATED.fullmatch(text)
    return (parts["what"], parts["why"][:1].upper() + parts["why"][1:]) if parts else (text, "")


def number(value: float | None) -> str:
    return "none" if value is None else f"{value:.4g}"


def _single(suite: Suite, verdict: Verdict, plan: Mapping[str, Any]) -> Row:
    name = plan["name"]
    claim, here = claim_and_setup(plan["description"])
    lines = tuple(_expected(suite.of(name)))
    metrics = tuple(dict.fromkeys(line.text.split()[0] for line in lines))
    ran = _ran(suite, verdict, name)
    return Row(
        name, plan.get("source", ""), claim, here, ran.status, lines, (ran,), metrics, _errors(verdict, [name]), group=False
    )


def _group(suite: Suite, verdict: Verdict, plan: Mapping[str, Any], outcome: Mapping[str, Any]) -> Row:
    """The worst of the comparison and its members is its status."""
    claim, here = claim_and_setup(plan.get("description", ""))
    members = tuple(_ran(suite, verdict, name) for name in suite.members if name.startswith(plan["prefix"]))
    lines = [Line(one["text"], _sides(one), one["passed"]) for one in outcome["expectations"]]
    for ran in members:
        short = ran.name.removeprefix(plan["prefix"])
        own = (line for line in _expected(suite.of(ran.name)) if not line.holds)
        lines += [Line(f"{short}: {line.text}", line.measured, line.holds) for line in own]
    statuses = [outcome["status"], *(ran.status for ran in members)]
    metrics = dict.fromkeys(metric for text in plan["expect"] for metric in _spoken_of(text))
    errors = _errors(verdict, [ran.name for ran in members])
    source = plan.get("source", "")
    return Row(plan["name"], source, claim, here, _worst(statuses), tuple(lines), members, tuple(metrics), errors, group=True)


def _sides(outcome: Mapping[str, Any]) -> str:
    """Both sides over the medians; of repeated members also how many seeds say the same."""
    found, each = f"{number(outcome['actual'])} against {number(outcome['bound'])}", outcome["seeds"]
    return found + (f"; true of {sum(one['passed'] for one in each)} of {len(each)} seeds" if each else "")


def _spoken_of(text: str) -> list[str]:
    claim = claims.parse(text)
    return [one.metric for side in (claim.left, claim.right) for one in claims.measured(side)]


def _worst(statuses: Sequence[str]) -> str:
    """A member that was not run outweighs what an invalid one does not (`Suite.status`)."""
    order = [STATUS[status] for status in PRECEDENCE]
    worst = min((word for word in statuses if word != NOT_RUN), key=order.index, default=STATUS[ExitStatus.PASSED])
    least = order.index(STATUS[ExitStatus.INVALID])
    return NOT_RUN if NOT_RUN in statuses and order.index(worst) >= least else worst


def _expected(attempts: Sequence[Attempt]) -> Iterator[Line]:
    """The expectations of a member, each with what every usable run measured, in the order of the seeds."""
    usable = [one.summary["expectations"] for one in attempts if one.usable and one.summary is not None]
    for same in zip(*usable, strict=True):
        holds, text = all(one["passed"] for one in same), same[0]["text"]
        if not holds or text not in ALWAYS:
            yield Line(text, ", ".join(number(one["actual"]) for one in same), holds)


def _ran(suite: Suite, verdict: Verdict, name: str) -> Ran:
    member = next(one for one in verdict.summary["members"] if one["name"] == name)
    plan = next(one for one in suite.plan["members"] if one["name"] == name)
    counted = [one for one in suite.of(name) if one.summary is not None]
    fidelity = dict.fromkeys(one.summary["fidelity"]["verdict"] for one in counted if one.summary is not None)
    worst = [word for word in ("invalid", "degraded", "valid") if word in fidelity]
    report = f"{counted[0].path}/report.html" if counted and (suite.folder / counted[0].path / "report.html").is_file() else ""
    return Ran(name, plan["scenario"], member["status"], ", ".join(worst), report, member["metrics"])


def _errors(verdict: Verdict, names: Sequence[str]) -> tuple[str, ...]:
    return tuple(
        f"{one['name']}: {text}" for one in verdict.summary["members"] if one["name"] in names for text in one["errors"]
    )


def figure(suite: Suite, row: Row) -> Path | None:
    """The drawing beside a row without extension: of the run itself, or of a comparison's members."""
    if row.group:
        drawn = suite.folder / "figures" / row.name
        return drawn if drawn.with_suffix(".png").is_file() else None
    report = row.members[0].report
    for name in ("steps", "goodput"):
        drawn = suite.folder / Path(report).parent / "figures" / name
        if report and drawn.with_suffix(".png").is_file():
            return drawn
    return None
