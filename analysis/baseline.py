"""The reference that a nightly is held against: values of several sessions of one suite, as a file that people review.

Runs within one session (one suite's folder) share what that hour was like, so one session, however many its runs, says nothing
about the next (pitfall H-24). A baseline is therefore made of at least three, of one commit, and a session in which anything
was invalid, or whose values scatter by more than the gates allow, does not become part of one.
"""

from __future__ import annotations

import hashlib
import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

from analysis.gates import GATES, Better, Gate
from analysis.judge import write_atomically
from analysis.suites import Suite
from analysis.variants import flat
from testbed.errors import Problem, ScenarioError

SCHEMA = 1
HEADER = (
    "# Written by `python -m analysis regress ... --update-baseline`: per metric one list per session. `gates` may be edited.\n"
)
HOW = "make one: --update-baseline with three runs of the suite"
SESSIONS_MIN = 3
RUNS_MIN = 2  # per session and member: one run has no scatter

Sessions = tuple[tuple[float, ...], ...]


@dataclass(frozen=True, slots=True)
class Reference:
    """What a baseline knows of one member: the fingerprint of its scenario, and per metric each session's values by seed."""

    scenario: str
    seeds: tuple[int, ...]
    metrics: Mapping[str, Sessions]


@dataclass(frozen=True, slots=True)
class Baseline:
    suite: str
    sessions: tuple[Mapping[str, Any], ...]  # where each came from
    members: Mapping[str, Reference]
    gates: Mapping[str, Gate]

    @property
    def machine(self) -> tuple[Any, ...]:
        return machine(self.sessions[0])


def read(path: Path) -> Baseline:
    """ScenarioError for what is no baseline."""
    with _document(path) as document:
        members = {
            name: Reference(
                one["scenario"], tuple(one["seeds"]), {key: tuple(map(tuple, of)) for key, of in one["metrics"].items()}
            )
            for name, one in document["members"].items()
        }
        return Baseline(document["suite"], tuple(document["sessions"]), members, {**GATES, **_gates(document)})


@contextmanager
def _document(path: Path) -> Iterator[dict[str, Any]]:
    """The file's content; whatever goes wrong with it inside the block is a ScenarioError."""
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
        if document["schema"] != SCHEMA:
            raise _refused(path, f"schema {document['schema']!r} is not known", f"this version reads schema {SCHEMA}")
        yield document
    except OSError as error:
        raise _refused(path, f"cannot be read: {error.strerror}", HOW) from error
    except (ValueError, KeyError, TypeError, AttributeError, yaml.YAMLError) as error:
        raise _refused(path, f"is no baseline: {error}", HOW) from error


def _gates(document: Mapping[str, Any]) -> dict[str, Gate]:
    return {name: Gate(**{**one, "better": Better(one["better"])}) for name, one in document.get("gates", {}).items()}


def write(path: Path, suites: Sequence[Suite]) -> Baseline:
    """Make a baseline of these sessions; the gates of a file that is there stay, also of one with nothing else in it.

    ScenarioError, and nothing written, when they cannot be one.
    """
    own = dict[str, Gate]()
    if path.is_file():
        with _document(path) as document:
            own = _gates(document)
    found = _made(path, suites, {**GATES, **own})
    document = {
        "schema": SCHEMA,
        "suite": found.suite,
        "sessions": list(found.sessions),
        "gates": {name: asdict(gate) | {"better": gate.better.value} for name, gate in own.items()},
        "members": {
            name: {
                "scenario": one.scenario,
                "seeds": list(one.seeds),
                "metrics": {key: [list(of) for of in values] for key, values in one.metrics.items()},
            }
            for name, one in found.members.items()
        },
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, HEADER + yaml.safe_dump(document, sort_keys=False, default_flow_style=None, width=10_000))
    return found


def fingerprint(suite: Suite, member: str) -> str:
    """Of a member's resolved scenario as its suite has it, but for what changes no packet.

    What the command line changed is under test: a run with `--set` is held against the baseline of the suite without it.
    """
    file = next(one.get("unchanged") or one["file"] for one in suite.plan["members"] if one["name"] == member)
    try:
        tree = yaml.safe_load((suite.folder / file).read_text(encoding="utf-8"))
    except OSError as error:
        raise _refused(suite.folder / file, f"cannot be read: {error.strerror}", "") from error
    return hashlib.sha256(json.dumps(flat(tree), sort_keys=True, default=str).encode()).hexdigest()[:16]


def machine(plan: Mapping[str, Any]) -> tuple[Any, ...]:
    """What two sessions must share for their numbers to be compared without a word of warning."""
    return (plan.get("kernel", "").split(" ")[0], *(plan.get("cpu") or {}).values())


def _made(path: Path, suites: Sequence[Suite], gates: Mapping[str, Gate]) -> Baseline:
    if len(suites) < SESSIONS_MIN:
        hint = "runs of one session share its bias: run the suite at other times, or after a reboot, and give all folders"
        raise _refused(path, f"{len(suites)} sessions; a baseline takes at least {SESSIONS_MIN}", hint)
    for what, of in (("suites", "suite"), ("commits", "git")):
        if len({json.dumps(one.plan.get(of)) for one in suites}) > 1:
            raise _refused(path, f"sessions of different {what}", "give runs of one")
    if len({one.folder.resolve() for one in suites}) < len(suites):
        raise _refused(path, "the same session twice", "give different ones")
    members = {name: _reference(path, suites, name, gates) for name in suites[0].members}
    return Baseline(suites[0].plan["suite"], tuple(_origin(one) for one in suites), members, gates)


def _reference(path: Path, suites: Sequence[Suite], member: str, gates: Mapping[str, Gate]) -> Reference:
    for suite in suites:
        word = suite.status(member)[0] if member in suite.members else "not there"
        if any(one.get("unchanged") for one in suite.plan["members"]):
            raise _refused(path, f"{suite.folder} was run with --set", "a baseline is of the suite as its file has it")
        if word != "passed":
            raise _refused(path, f"{member} is {word} in {suite.folder}", "a baseline is made of sessions that passed")
    prints = {fingerprint(suite, member) for suite in suites}
    if len(prints) > 1:
        raise _refused(path, f"{member} is another scenario in one session than in another", "run the same suite")
    tables = [suite.values(member) for suite in suites]
    seeds = tuple(tables[0].index)
    if any(tuple(table.index) != seeds for table in tables):
        raise _refused(path, f"{member} ran with other seeds in one session than in another", "run the same suite")
    if len(seeds) < RUNS_MIN:
        raise _refused(path, f"{member} ran once: nothing is known of its scatter", f"repeat: {RUNS_MIN} or more")
    names = [name for name in gates if all(name in table and table[name].notna().all() for table in tables)]
    metrics = {name: tuple(tuple(float(value) for value in table[name]) for table in tables) for name in names}
    for name, sessions in metrics.items():
        _refuse_noise(path, member, name, sessions, gates.get(f"{member}.{name}", gates[name]))
    return Reference(prints.pop(), seeds, metrics)


def _refuse_noise(path: Path, member: str, metric: str, sessions: Sessions, gate: Gate) -> None:
    """A reference whose own scatter exceeds what it is to tell apart would hide every regression."""
    usual = by_seed(sessions)
    allowed = gate.allowed(statistics.median(usual))
    apart = [[value - own for value, own in zip(one, usual, strict=True)] for one in sessions]
    medians = [statistics.median(one) for one in apart]
    scatter = max(statistics.median(abs(value - median) for value in one) for one, median in zip(apart, medians, strict=True))
    between = max(abs(median - statistics.median(medians)) for median in medians)
    if max(scatter, between) > allowed:
        where = "between" if between > scatter else "within"
        raise _refused(
            path,
            f"{member}: {metric} scatters by {max(scatter, between):.4g} {where} sessions, {allowed:.4g} is allowed",
            f"leave the noisy session out, or give {member}.{metric} a wider gate there (`schema` and `gates` will do)",
        )


def by_seed(sessions: Sessions) -> list[float]:
    """What each seed usually gives: seeds differ in who sends to whom over what, and that is no scatter."""
    return [statistics.median(values) for values in zip(*sessions, strict=True)]


def _origin(suite: Suite) -> dict[str, Any]:
    known = {name: suite.plan.get(name) for name in ("started", "git", "kernel", "cpu")}
    return {"run_id": suite.folder.resolve().name} | known


def _refused(path: Path, message: str, hint: str) -> ScenarioError:
    return ScenarioError([Problem(str(path), 0, "", message, hint)])
