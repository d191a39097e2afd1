"""A scenario file as a tree in which every value knows its file and line. Knows YAML, knows no scenario key.

PyYAML's composer gives nodes with marks and leaves plain scalars as they were written, so `010`, `yes` and `1e3` reach
the reader as text and nothing is converted behind its back (pitfall H-25). Anchors, aliases, merge keys, explicit tags and
second documents are refused: a scenario says what it means where it says it, and an alias bomb cannot be written.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Mapping as AbstractMapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import yaml

from testbed.errors import Problem, ScenarioError
from testbed.model import units

MAX_BYTES = 2**19  # a scenario is a page; more is the wrong file
MAX_VALUES = 50_000  # so many take the parser a second; a resolved scenario with the most faults there may be has less
MAX_DEPTH = 16  # the schema needs four; deeper input would only exhaust the parser
SET = "--set"
_SURROGATE = re.compile("[\ud800-\udfff]")  # an escape can write one, and no file can hold it


@dataclass(frozen=True, slots=True)
class Place:
    """Where something was written. Line 0: it has none, as with `--set`."""

    file: str
    line: int


@dataclass(frozen=True, slots=True)
class Scalar:
    """Text as written. `kind` is what YAML 1.1 would make of it (str, int, float, bool, null, ...); quoted text is str."""

    place: Place
    text: str
    kind: str
    quoted: bool


@dataclass(frozen=True, slots=True)
class Sequence:
    place: Place
    items: tuple[Tree, ...]


@dataclass(frozen=True, slots=True)
class Mapping:
    """`keys` holds the place of each key, for messages about the key itself."""

    place: Place
    entries: AbstractMapping[str, Tree]
    keys: AbstractMapping[str, Place] = field(default_factory=dict)


Tree = Scalar | Sequence | Mapping


def read(path: Path) -> Mapping:
    """The tree of a scenario file. ScenarioError when it cannot be read, is not YAML or is not one mapping."""
    file = str(path)
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # a pipe would be waited for
            raise _refusal(Place(file, 0), "cannot be read: it is no regular file")
        with path.open("rb") as stream:
            raw = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise _refusal(Place(file, 0), f"cannot be read: {error.strerror}") from error
    if len(raw) > MAX_BYTES:
        line = raw.count(b"\n") + 1
        raise _refusal(Place(file, line), f"the file is larger than {units.format_size(MAX_BYTES)}: this is no scenario")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise _refusal(
            Place(file, line), f"byte {raw[error.start]:#04x} is not UTF-8 text", "save the file as UTF-8"
        ) from error
    return mapping(text, file)


def mapping(text: str, file: str) -> Mapping:
    """As `read`, from text; `file` is the name used in messages."""
    tree = _compose(text, file)
    if tree is None:
        raise _refusal(Place(file, 1), "the file is empty", "a scenario needs at least name, topology, links and workload")
    if not isinstance(tree, Mapping):
        raise _refusal(tree.place, f"expected a mapping of scenario keys, found {describe(tree)}", "start with `name: ...`")
    return tree


def override(tree: Mapping, assignment: str) -> Mapping:
    """`tree` with one `key.path=value` of the command line put in; `faults.0.for=2s` reaches into lists."""
    path, equals, text = assignment.partition("=")
    place = Place(SET, 0)
    if not equals or not all(path.strip().split(".")):
        raise _refusal(
            place, f"expected key.path=value, found {units.shown(assignment)}", "for example --set links.rate=10mbit"
        )
    try:
        value = _compose(text, SET)
    except ScenarioError as error:
        raise ScenarioError([replace(problem, line=0, path=path) for problem in error.problems]) from error
    if value is None:
        raise _refusal(place, "no value after the equals sign", path=path)
    return put(tree, path.strip(), _moved(value, place))


def put(tree: Mapping, path: str, value: Tree) -> Mapping:
    """`tree` with `value` at `path`; ScenarioError at the place of `value` where nothing can lie."""
    changed = _put(tree, path.split("."), 0, value)
    assert isinstance(changed, Mapping)
    return changed


def locate(tree: Tree, path: str) -> Place:
    """The place of the value at `path`, or of the nearest thing around it that exists."""
    place = tree.place
    for key in path.split(".") if path else ():
        if isinstance(tree, Mapping) and key in tree.entries:
            tree = tree.entries[key]
        elif isinstance(tree, Sequence) and key.isdecimal() and int(key) < len(tree.items):
            tree = tree.items[int(key)]
        else:
            break
        place = tree.place
    return place


def describe(tree: Tree) -> str:
    """What a message calls a value of the wrong kind."""
    if isinstance(tree, Mapping):
        return "a mapping"
    if isinstance(tree, Sequence):
        return "a list"
    if tree.kind == "null":
        return "nothing"
    if tree.kind == "bool":
        return f"the boolean {units.shown(tree.text)}"
    if tree.kind in ("int", "float"):
        return f"the number {units.shown(tree.text)}"
    what = "date" if tree.kind == "timestamp" else "text"
    return f"the {what} {units.shown(tree.text)}"


def _refusal(place: Place, message: str, hint: str = "", path: str = "") -> ScenarioError:
    return ScenarioError([Problem(place.file, place.line, path, message, hint)])


def _compose(text: str, file: str) -> Tree | None:
    try:
        loader = _Loader(text, file)
        try:
            node = loader.get_single_node()
        finally:
            loader.dispose()
    except yaml.reader.ReaderError as error:
        line = text[: error.position].count("\n") + 1
        raise _refusal(Place(file, line), f"character {error.character:#04x} is not allowed in YAML") from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 0
        hint = "indent with spaces, not tabs" if "\\t" in str(error.problem) else ""
        if not hint and error.context and error.context_mark:
            hint = f"{error.context} that starts in line {error.context_mark.line + 1}"
        raise _refusal(Place(file, line), f"not valid YAML: {error.problem or error.context}", hint) from error
    if node is None:
        return None
    problems: list[Problem] = []
    tree = _convert(node, file, "", problems)
    if problems:
        raise ScenarioError(problems)
    return tree


class _Loader(yaml.SafeLoader):
    """Looks at every event before a node is made of it: nothing refused here can cost time or memory."""

    def __init__(self, text: str, file: str) -> None:
        super().__init__(text)
        self._file = file
        self._depth = self._documents = self._values = 0

    def get_event(self) -> yaml.Event:
        event: yaml.Event = super().get_event()  # type: ignore[no-untyped-call]
        mark = event.start_mark
        assert mark is not None  # a parser's events have one
        place = Place(self._file, mark.line + 1)
        if isinstance(event, yaml.DocumentStartEvent):
            self._documents += 1
            if self._documents > 1:
                raise _refusal(place, "a second YAML document starts here", "one scenario per file")
        elif isinstance(event, yaml.CollectionEndEvent):
            self._depth -= 1
        elif isinstance(event, yaml.NodeEvent):
            self._look_at(event, place)
        return event

    def _look_at(self, event: yaml.NodeEvent, place: Place) -> None:
        self._values += 1
        if self._values > MAX_VALUES:
            raise _refusal(place, f"more than {MAX_VALUES} values: this is no scenario")
        if event.anchor is not None:
            raise _refusal(place, "YAML anchors and aliases are not supported", "write the value out")
        if isinstance(event, (yaml.ScalarEvent, yaml.CollectionStartEvent)) and event.tag is not None:
            raise _refusal(place, f"YAML tags such as {units.shown(event.tag)} are not supported", "write the plain value")
        if isinstance(event, yaml.ScalarEvent) and _SURROGATE.search(event.value):
            raise _refusal(place, "half a surrogate pair is no character", "write the character itself")
        self._depth += isinstance(event, yaml.CollectionStartEvent)
        if self._depth > MAX_DEPTH:
            raise _refusal(place, f"nested deeper than {MAX_DEPTH} levels")


def _convert(node: yaml.Node, file: str, path: str, problems: list[Problem]) -> Tree:
    place = Place(file, node.start_mark.line + 1)
    if isinstance(node, yaml.ScalarNode):
        quoted = node.style is not None
        return Scalar(place, node.value, "str" if quoted else node.tag.rsplit(":", 1)[-1], quoted)
    if isinstance(node, yaml.SequenceNode):
        items = (_convert(item, file, _join(path, str(index)), problems) for index, item in enumerate(node.value))
        return Sequence(place, tuple(items))
    assert isinstance(node, yaml.MappingNode)
    entries: dict[str, Tree] = {}
    keys: dict[str, Place] = {}
    for key, value in node.value:
        line = key.start_mark.line + 1
        if not isinstance(key, yaml.ScalarNode):
            problems.append(Problem(file, line, path, "a key must be plain text, found a list or a mapping"))
            continue
        name = key.value
        if name in entries:
            message = f"the key is given twice, first in line {keys[name].line}"
            problems.append(Problem(file, line, _join(path, name), message, "keep one of them"))
            continue
        keys[name] = Place(file, line)
        entries[name] = _convert(value, file, _join(path, name), problems)
    return Mapping(place, entries, keys)


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _moved(tree: Tree, place: Place) -> Tree:
    """The same tree, said to be from `place`."""
    if isinstance(tree, Scalar):
        return replace(tree, place=place)
    if isinstance(tree, Sequence):
        return Sequence(place, tuple(_moved(item, place) for item in tree.items))
    return Mapping(place, {key: _moved(value, place) for key, value in tree.entries.items()}, dict.fromkeys(tree.keys, place))


def _put(tree: Tree | None, keys: list[str], index: int, value: Tree) -> Tree:
    """`tree` with `value` at keys[index:]. A mapping that is not there yet is made; a list keeps its length."""
    if index == len(keys):
        return value
    key, path = keys[index], ".".join(keys)
    if tree is None:
        tree = Mapping(value.place, {})
    if isinstance(tree, Mapping):
        changed = _put(tree.entries.get(key), keys, index + 1, value)
        return replace(tree, entries={**tree.entries, key: changed}, keys={key: value.place, **tree.keys})
    here = ".".join(keys[:index])
    if isinstance(tree, Scalar):
        raise _refusal(value.place, f"{here} is {describe(tree)}: nothing lies below it", path=path)
    if not key.isdecimal() or int(key) >= len(tree.items):
        count = len(tree.items)
        hint = f"indices are 0 to {count - 1}" if count else f"set the whole list: --set '{here}=[...]'"
        raise _refusal(value.place, f"{here} is a list of {count}, it has no entry {units.shown(key)}", hint, path)
    items = list(tree.items)
    items[int(key)] = _put(items[int(key)], keys, index + 1, value)
    return replace(tree, items=tuple(items))
