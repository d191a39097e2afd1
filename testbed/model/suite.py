"""A suite: scenarios with overrides and repeats, run one after another, and claims about their results side by side.

A file with `suite:` lists members. A member whose file is a suite itself is a comparison of its own: its members join the
list under its name (`fig9c/mrc`), and its claims speak of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.errors import Problem, ScenarioError
from testbed.model import claims, fields, load, schema
from testbed.model import tree as t
from testbed.model.claims import Claim
from testbed.model.fields import Key, Problems, Refused
from testbed.model.scenario import Scenario

S = schema.S
MAX_REPEAT = 1000
RETRIES = 2  # more: a machine that disturbs three runs of one kind will disturb the fourth
SEPARATOR = "/"


@dataclass(frozen=True, slots=True)
class Member:
    """One scenario, loaded with its overrides, to be run `repeat` times with seeds counting up from its own.

    `values`: what a sweep varies, key path -> value as written; empty in a suite. `base`: the member as the file has it,
    where the command line changed it.
    """

    name: str
    scenario: Scenario
    repeat: int
    values: tuple[tuple[str, str], ...] = ()
    base: Scenario | None = None


@dataclass(frozen=True, slots=True)
class Comparison:
    """Claims about the members whose names start with `prefix`; claims leave it out. Texts are its suite file's."""

    name: str
    prefix: str
    expect: tuple[Claim, ...]
    description: str = ""
    source: str = ""


@dataclass(frozen=True, slots=True)
class Suite:
    """`time_limit_ns`: no run begins after it; None: none. `retries`: how often an invalid run is made again.

    `not_emulated`: what its source measured and this cannot, with the reason, for the page.
    """

    name: str
    description: str
    members: tuple[Member, ...]
    comparisons: tuple[Comparison, ...]
    time_limit_ns: int | None
    retries: int
    not_emulated: tuple[str, ...] = ()

    @property
    def warnings(self) -> tuple[str, ...]:
        return tuple(f"{member.name}: {warning}" for member in self.members for warning in member.scenario.warnings)


def is_suite(path: Path) -> bool:
    """Whether the file says `suite:`. ScenarioError when it cannot be read."""
    return "suite" in t.read(path).entries


@dataclass(frozen=True, slots=True)
class Given:
    """What the command line says of every member: `--set`, `--seed`, `--repeat`; None: each has its own."""

    overrides: tuple[str, ...] = ()
    seed: int | None = None
    repeat: int | None = None


def no_suite(path: Path) -> Problem:
    return Problem(str(path), 0, "", "is a scenario, it has no `suite:`", f"./run_experiment.py {path}")


def load_suite(path: Path, root: Path, given: Given = Given()) -> Suite:  # noqa: B008 - frozen
    """The suite in `path`; member names are looked up beside the file, then below `root`/scenarios.

    ScenarioError with every problem of the file, or of all its members.
    """
    values = _values(path)
    problems = list[Problem]()
    members, comparisons = list[Member](), list[Comparison]()
    own = tuple(values["expect"])
    for entry in values["suite"]:
        try:
            found, below = _member(entry, path, root, given)
        except ScenarioError as error:
            problems.extend(error.problems)
            continue
        members += found
        comparisons += below
    if not problems:
        problems = _check(path, values, members, own)
    if problems:
        raise ScenarioError(problems)
    if own:
        comparisons.append(_comparison(values, ""))
    return Suite(
        values["name"],
        values["description"],
        tuple(members),
        tuple(comparisons),
        values["time_limit"],
        values["retries"],
        tuple(values["not_emulated"]),
    )


def _comparison(values: fields.Values, prefix: str) -> Comparison:
    return Comparison(values["name"], prefix, tuple(values["expect"]), values["description"], values["source"])


def _values(path: Path) -> fields.Values:
    tree, problems = t.read(path), Problems()

    def members(tree: t.Tree, path: str) -> list[Any]:
        found = fields.items(tree, path, lambda item, here: _entry(item, here, problems), problems)
        if not found:
            raise Refused("no member: nothing would run")
        return found

    keys = (
        Key("name", schema.name),
        Key("suite", members),
        Key("description", fields.text, ""),
        Key("source", fields.text, ""),
        Key("expect", lambda tree, path: fields.items(tree, path, claims.read, problems), []),
        Key("time_limit", fields.time(1 * S, 7 * 24 * 3600 * S), None),
        Key("retries", fields.integer(0, 20), RETRIES),
        Key("not_emulated", lambda tree, path: fields.items(tree, path, fields.text, problems), []),
    )
    try:
        return fields.section(tree, "", keys, problems)
    except fields.Reported:
        raise ScenarioError(problems.found) from None


@dataclass(frozen=True, slots=True)
class _Entry:
    place: t.Place
    scenario: str
    name: str
    repeat: int | None
    changes: Mapping[str, t.Tree]


def _entry(tree: t.Tree, path: str, problems: Problems) -> _Entry:
    keys = (
        Key("scenario", fields.text),
        Key("as", schema.name, ""),
        Key("repeat", fields.integer(1, MAX_REPEAT), None),
        Key("set", _changes, {}),
    )
    if isinstance(tree, t.Scalar):
        tree = t.Mapping(tree.place, {"scenario": tree}, {"scenario": tree.place})
    values = fields.section(tree, path, keys, problems)
    name = values["as"] or Path(values["scenario"]).with_suffix("").name
    return _Entry(tree.place, values["scenario"], name, values["repeat"], values["set"])


def _changes(tree: t.Tree, _path: str) -> Mapping[str, t.Tree]:
    if not isinstance(tree, t.Mapping):
        raise Refused(f"expected key paths with values, found {t.describe(tree)}", "set: {links.rate: 10mbit}")
    for key in tree.entries:
        if not all(key.split(".")):
            raise Refused(f"{key!r} is no key path", "for example links.rate")
    return tree.entries


def _member(entry: _Entry, suite: Path, root: Path, given: Given) -> tuple[list[Member], list[Comparison]]:
    """The members that one entry stands for: itself, or those of the suite that it names."""
    file = _file(entry, suite, root)
    if not is_suite(file):
        return [_loaded(entry.name, file, entry.changes, given.repeat or entry.repeat or 1, given)], []
    inner = _values(file)
    members = list[Member]()
    for one in inner["suite"]:
        below = _file(one, file, root)
        if is_suite(below):
            raise _refused(one.place, f"{one.scenario} is a suite in a suite in a suite", "name its members here")
        repeat, changes = given.repeat or entry.repeat or one.repeat or 1, {**one.changes, **entry.changes}
        members.append(_loaded(entry.name + SEPARATOR + one.name, below, changes, repeat, given))
    problems = _check(file, inner, members, inner["expect"], entry.name + SEPARATOR)
    if problems:
        raise ScenarioError(problems)
    return members, [_comparison(inner, entry.name + SEPARATOR)] if inner["expect"] else []


def _loaded(name: str, file: Path, changes: Mapping[str, t.Tree], repeat: int, given: Given) -> Member:
    scenario = load.load_with(file, changes, given.overrides, given.seed)
    return Member(name, scenario, repeat, base=load.load_with(file, changes) if given.overrides else None)


def _file(entry: _Entry, suite: Path, root: Path) -> Path:
    beside = suite.parent / entry.scenario
    for path in (beside, beside.with_name(f"{beside.name}.yaml")):
        if path.suffix in load.SUFFIXES and path.is_file():
            if path.resolve() == suite.resolve():
                raise _refused(entry.place, "a suite cannot be its own member", "")
            return path
    try:
        return load.find(entry.scenario, root)
    except ScenarioError as error:
        problem = error.problems[0]
        raise _refused(entry.place, f"{problem.file} {problem.message}", problem.hint) from None


def _check(
    file: Path, values: fields.Values, members: Sequence[Member], expect: Sequence[Claim], prefix: str = ""
) -> list[Problem]:
    """What only the whole list can say: names are unlike, and claims speak of members there are."""
    found, names = list[Problem](), [member.name.removeprefix(prefix) for member in members]
    line = {entry.name: entry.place.line for entry in values["suite"]}
    for name in sorted({name for name in names if names.count(name) > 1}):
        found.append(
            Problem(str(file), line.get(name, 0), "suite", f"two members are called {name}", "give one of them `as: NAME`")
        )
    tree = t.read(file)
    for number, claim in enumerate(expect):
        for member in claim.members:
            if member not in names:
                place = t.locate(tree, f"expect.{number}")
                hint = fields.nearest(member, names)
                found.append(Problem(str(file), place.line, f"expect.{number}", f"there is no member {member}", hint))
    return found


def _refused(place: t.Place, message: str, hint: str) -> ScenarioError:
    return ScenarioError([Problem(place.file, place.line, "suite", message, hint)])
