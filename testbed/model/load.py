"""From a scenario file, `--set` overrides and a seed to a checked `Scenario`; every problem at once, none skipped."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from testbed.errors import Problem, ScenarioError
from testbed.model import checks, fields, framing, schema, traffic, transport, workloads
from testbed.model import tree as t
from testbed.model.dump import dump
from testbed.model.fields import Key, Problems, Reader, Values
from testbed.model.scenario import Expectation, RoutingSpec, Scenario, WorkloadSpec

__all__ = ["available", "dump", "find", "load", "load_text"]

MAX_SEED = 2**32 - 1
SUFFIXES = (".yaml", ".yml")
# iperf3 sends no messages; what can go wrong with its flows is that one fails.
OF_KERNELS = (Expectation("flows_failed == 0", "flows_failed", "==", 0.0),)
INTEGRITY = (
    Expectation("messages_corrupt == 0", "messages_corrupt", "==", 0.0),
    Expectation("messages_incomplete == 0", "messages_incomplete", "==", 0.0),
)


def load(path: Path, overrides: Sequence[str] = (), seed: int | None = None) -> Scenario:
    """The scenario in `path`, with `key.path=value` overrides put in and `seed` (when given) in place of its own.

    Raises ScenarioError with every problem found; nothing else is raised for bad input.
    """
    return _resolve(t.read(path), overrides, seed)


def load_text(text: str, file: str, overrides: Sequence[str] = (), seed: int | None = None) -> Scenario:
    """As `load`, from text; messages call it `file`."""
    return _resolve(t.mapping(text, file), overrides, seed)


def load_with(path: Path, changes: Mapping[str, t.Tree], overrides: Sequence[str] = (), seed: int | None = None) -> Scenario:
    """As `load`, with trees of another file put in first: a suite's `set`. Problems name where each was written."""
    tree, problems = t.read(path), list[Problem]()
    for key_path, value in changes.items():
        try:
            tree = t.put(tree, key_path, value)
        except ScenarioError as error:
            problems.extend(error.problems)
    if problems:
        raise ScenarioError(problems)
    return _resolve(tree, overrides, seed)


def find(name_or_file: str, root: Path) -> Path:
    """The file meant on the command line: a path to a YAML file, or a name below `root`/scenarios.

    A name is the path there without suffix (`quickstart`, `paper/fig9c`); the last part alone is enough while it is the
    only one. ScenarioError when there is none or several.
    """
    given = Path(name_or_file)
    if given.suffix in SUFFIXES:
        return given
    names = {_name(file, root): file for file in _files(root)}
    if name_or_file in names:
        return names[name_or_file]
    short = [name for name in names if name.rsplit("/", 1)[-1] == name_or_file]
    if len(short) == 1:
        return names[short[0]]
    if short:
        raise ScenarioError([Problem(name_or_file, 0, "", "several scenarios have this name", f"one of {', '.join(short)}")])
    if given.exists():
        what = "a folder" if given.is_dir() else "no YAML file"
        hint = f"a scenario's name, or a file that ends in {' or '.join(SUFFIXES)}"
        raise ScenarioError([Problem(name_or_file, 0, "", f"is {what}", hint)])
    raise ScenarioError([Problem(name_or_file, 0, "", "there is no such scenario", fields.nearest(name_or_file, names))])


def available(root: Path) -> list[tuple[str, str]]:
    """(name, description) of every scenario below `root`/scenarios, by name. A broken one says so in its description."""
    found: list[tuple[str, str]] = []
    for file in _files(root):
        try:
            tree = t.read(file)
        except ScenarioError as error:
            found.append((_name(file, root), f"(cannot be read: {error.problems[0]})"))
            continue
        description = tree.entries.get("description")
        text = description.text.strip() if isinstance(description, t.Scalar) else ""
        found.append((_name(file, root), f"(suite) {text}" if "suite" in tree.entries else text))
    return found


def _files(root: Path) -> list[Path]:
    return sorted(file for suffix in SUFFIXES for file in (root / "scenarios").rglob(f"*{suffix}"))


def _name(file: Path, root: Path) -> str:
    return file.relative_to(root / "scenarios").with_suffix("").as_posix()


def _resolve(tree: t.Mapping, overrides: Sequence[str], seed: int | None) -> Scenario:
    if "suite" in tree.entries:
        place = tree.keys["suite"]
        raise ScenarioError(
            [Problem(place.file, place.line, "suite", "a suite is no scenario", "run it with --suite=NAME|FILE")]
        )
    problems = Problems()
    for assignment in overrides:
        try:
            tree = t.override(tree, assignment)
        except ScenarioError as error:
            problems.found.extend(error.problems)
    if seed is not None and seed > MAX_SEED:
        problems.add(t.Place("--seed", 0), "", f"{seed} is outside 0 to {MAX_SEED}")
    elif seed is not None:
        place = t.Place("--seed", 0)
        written = t.Scalar(place, str(seed), "int", quoted=False)
        tree = replace(tree, entries={**tree.entries, "seed": written}, keys={**tree.keys, "seed": place})
    with suppress(fields.Enough):
        done = _read(tree, problems)
        checks.check(tree, done, problems)
    if problems.found:
        raise ScenarioError(sorted(problems.found, key=lambda problem: (problem.line == 0, problem.line)))
    return _assemble(done, checks.warnings(tree, done))


def _read(root: t.Mapping, problems: Problems) -> Values:
    """Every section that could be read, by key. Later sections see earlier ones through `done`."""
    done: Values = {}

    def keep(key: str, read: Callable[[t.Tree, str], Any]) -> Reader:
        def reader(tree: t.Tree, path: str) -> Any:
            done[key] = read(tree, path)
            return done[key]

        return reader

    def links(tree: t.Tree, path: str) -> Any:
        planes = done["topology"].planes if "topology" in done else None
        return schema.links(tree, path, problems, planes)

    def switch(tree: t.Tree, path: str) -> Any:
        payload = done["transport"].payload if "transport" in done else transport.DEFAULT_PAYLOAD
        overhead = done["links"].overhead_bytes if "links" in done else framing.DEFAULT_OVERHEAD_BYTES
        return schema.switch(tree, path, problems, framing.charged_bytes(payload, overhead))

    def workload(tree: t.Tree, path: str) -> list[WorkloadSpec | None]:
        hosts = done["topology"].hosts if "topology" in done else None
        found = fields.items(tree, path, lambda item, here: workloads.workload(item, here, problems, hosts), problems)
        if not found:
            raise fields.Refused("no workload: nothing would be sent")
        return found

    def faults(tree: t.Tree, path: str) -> Any:
        return fields.items(tree, path, lambda item, here: traffic.fault(item, here, problems), problems)

    def expect(tree: t.Tree, path: str) -> Any:
        return fields.items(tree, path, traffic.expectation, problems)

    empty = t.Mapping(root.place, {})
    nothing = t.Sequence(root.place, ())
    optional: dict[str, t.Tree] = {"switch": empty, "transport": empty, "measure": empty, "faults": nothing, "expect": nothing}
    readers: dict[str, Reader] = {
        "name": schema.name,
        "description": fields.text,
        "source": fields.text,
        "topology": lambda tree, path: schema.topology(tree, path, problems),
        "links": links,
        "transport": lambda tree, path: transport.transport(tree, path, problems, Path(root.place.file).parent),
        "switch": switch,
        "routing": lambda tree, path: schema.routing(tree, path, problems),
        "workload": workload,
        "faults": faults,
        "measure": lambda tree, path: schema.measure(tree, path, problems, done.get("links")),
        "expect": expect,
        "seed": fields.integer(0, MAX_SEED),
        "scale": lambda tree, path: schema.scale(tree, path, problems),
    }
    defaults: Values = {"description": "", "source": "", "routing": RoutingSpec(), "seed": 1, "scale": None}
    keys = [Key(key, keep(key, read), defaults.get(key, fields.REQUIRED)) for key, read in readers.items()]
    done |= {key: value for key, value in defaults.items() if key not in root.entries}
    with suppress(fields.Reported):  # said already; the sections that could be read are in `done`
        fields.section(replace(root, entries={**optional, **root.entries}), "", keys, problems)
    return done


def _assemble(done: Values, warnings: tuple[str, ...]) -> Scenario:
    given: list[Expectation] = done["expect"]
    metrics = {expectation.metric for expectation in given}
    always = [
        expectation
        for expectation in (OF_KERNELS if done["transport"].kind.is_kernels else INTEGRITY)
        if expectation not in given and (expectation.metric != "messages_incomplete" or expectation.metric not in metrics)
    ]
    return Scenario(
        **{
            **done,
            "routing": _with_seed(done["routing"], done["seed"]),
            "workload": _with_jobs(done["workload"]),
            "faults": tuple(done["faults"]),
            "expect": (*given, *always),
        },
        warnings=warnings,
    )


def _with_seed(routing: RoutingSpec, seed: int) -> RoutingSpec:
    """Hashes that no scenario fixed follow from its seed, so that another seed is another draw of collisions."""
    if not routing.hashes or routing.hash_seed:
        return routing
    return replace(routing, hash_seed=1 + seed % MAX_SEED)


def _with_jobs(specs: list[WorkloadSpec]) -> tuple[WorkloadSpec, ...]:
    """Jobs without a name are called after their kind, numbered where that is taken."""
    taken = {spec.job for spec in specs}
    named: list[WorkloadSpec] = []
    for spec in specs:
        job, number = spec.job or spec.kind.value, 2
        while not spec.job and job in taken:
            job, number = f"{spec.kind.value}-{number}", number + 1
        taken.add(job)
        named.append(replace(spec, job=job))
    return tuple(named)
