"""Reading typed values out of a tree: one small reader per kind of value, one table of keys per section.

A reader takes a tree and the key path and returns the value, or raises `Refused`. A section is read from its table of keys:
unknown keys, missing keys and refused values all become problems, and reading goes on, so that everything wrong is said at
once. A section with a problem yields None and is left out of later checks.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import islice
from typing import Any, Final

from testbed.errors import PROBLEMS_MAX, Problem
from testbed.model import tree as t
from testbed.model import units

NAME_MAX, NAMES_MAX = 64, 1024  # a hint is worth a millisecond, not a minute
Values = dict[str, Any]  # a section's values by key, as their readers returned them
Reader = Callable[[t.Tree, str], Any]


class Refused(Exception):
    """A value that cannot be read. Not raised for what was already reported further down: that is `Reported`."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class Reported(Exception):
    """A nested value that is broken and has been reported where it stands."""


class Enough(Exception):
    """More problems than are shown: reading ends."""


@dataclass(frozen=True, slots=True)
class Problems:
    """Collects what is wrong, in order of discovery. One more than are shown, then it raises Enough."""

    found: list[Problem] = field(default_factory=list)

    def add(self, place: t.Place, path: str, message: str, hint: str = "") -> None:
        self.found.append(Problem(place.file, place.line, path, message, hint))
        if len(self.found) > PROBLEMS_MAX:
            raise Enough

    def at(self, root: t.Mapping, path: str, message: str, hint: str = "") -> None:
        """As `add`, at the place of what lies at `path` of a whole scenario."""
        self.add(t.locate(root, path), path, message, hint)


class _Required:
    """Marks a key without a default."""


REQUIRED: Final = _Required()


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a section. `default` is the value itself, not text; REQUIRED where there is none."""

    name: str
    read: Reader
    default: Any = REQUIRED


def section(tree: t.Tree, path: str, keys: Sequence[Key], problems: Problems, later: Mapping[str, str] | None = None) -> Values:
    """The values of a mapping. `later` names keys that exist in the design but not in this version, with what they are.

    Raises Refused when it is no mapping, Reported when anything in it was wrong.
    """
    if not isinstance(tree, t.Mapping):
        raise Refused(f"expected a mapping, found {t.describe(tree)}", f"keys are {', '.join(key.name for key in keys)}")
    before = len(problems.found)
    values: Values = {}
    known = {key.name for key in keys}
    for name in (name for name in tree.entries if name not in known):
        here = join(path, name)
        if later and name in later:
            problems.add(tree.keys[name], here, f"{later[name]} is not available in this version", "remove the key")
        else:
            problems.add(tree.keys[name], here, "unknown key", nearest(name, (key.name for key in keys)))
    for key in keys:  # in the order of the table, not of the file: a reader may look at what was read before it
        if key.name in tree.entries:
            attempt(key.read, tree.entries[key.name], join(path, key.name), values, key.name, problems)
        elif isinstance(key.default, _Required):
            problems.add(tree.place, join(path, key.name), "this key is required")
        else:
            values[key.name] = key.default
    if len(problems.found) > before:
        raise Reported
    return values


def attempt(read: Reader, tree: t.Tree, path: str, values: Values, name: str, problems: Problems) -> None:
    """Read one value into `values`; a refusal becomes a problem at the value's place."""
    try:
        values[name] = read(tree, path)
    except Refused as refused:
        problems.add(tree.place, path, refused.message, refused.hint)
    except Reported:
        pass


def join(path: str, key: str | int) -> str:
    return f"{path}.{key}" if path else str(key)


def close(name: str, known: Iterable[str]) -> str:
    """`did you mean X?` for the nearest known name; empty when none is near, or too many would have to be looked at."""
    names = list(islice(known, NAMES_MAX + 1))
    if len(name) > NAME_MAX or len(names) > NAMES_MAX:
        return ""
    found = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    return f"did you mean {found[0]}?" if found else ""


def nearest(name: str, known: Iterable[str]) -> str:
    """As `close`, or all known names when none is near."""
    names = list(known)
    return close(name, names) or f"known: {', '.join(names[:NAME_MAX])}"


def _scalar(tree: t.Tree, expected: str, *, plain: bool = False) -> str:
    """The text of a scalar that is neither a boolean nor nothing; with `plain`, nor in quotes."""
    if not isinstance(tree, t.Scalar) or tree.kind in ("bool", "null"):
        raise Refused(f"expected {expected}, found {t.describe(tree)}")
    if plain and tree.quoted:
        raise Refused(f"expected {expected}, found {t.describe(tree)} in quotes", "remove the quotes")
    return tree.text


def _bounded(parse: Callable[[str], int], expected: str, show: Callable[[int], str], low: int, high: int) -> Reader:
    def read(tree: t.Tree, _path: str) -> int:
        try:
            value = parse(_scalar(tree, expected, plain=show is str))
        except ValueError as error:
            raise Refused(str(error)) from error
        if not low <= value <= high:
            raise Refused(f"{show(value)} is outside {show(low)} to {show(high)}")
        return value

    return read


def rate(low: int, high: int) -> Reader:
    """A rate in bit/s within [low, high]."""
    return _bounded(units.rate, "a rate such as 5mbit", units.format_rate, low, high)


def time(low: int, high: int) -> Reader:
    """A time in ns within [low, high]."""
    return _bounded(units.time, "a time such as 20ms", units.format_time, low, high)


def size(low: int, high: int) -> Reader:
    """A size in bytes within [low, high]."""
    return _bounded(units.size, "a size such as 4096B", units.format_size, low, high)


def integer(low: int, high: int) -> Reader:
    """A plain whole number within [low, high]."""
    return _bounded(units.integer, "a whole number such as 4", str, low, high)


def ratio(low: float, high: float) -> Reader:
    """A plain number within [low, high]."""

    def read(tree: t.Tree, _path: str) -> float:
        try:
            value = float(units.number(_scalar(tree, "a number such as 0.01", plain=True)))
        except ValueError as error:
            raise Refused(str(error)) from error
        if not low <= value <= high:
            raise Refused(f"{value:g} is outside {low:g} to {high:g}")
        return value

    return read


def threshold(tree: t.Tree, _path: str) -> Fraction | int:
    """A queue threshold: a Fraction is full frames, an int is bytes. Zero is refused."""
    text = _scalar(tree, "a number of full frames such as 2, or a size such as 8KiB", plain=True)
    try:
        value = units.number(text) if units.is_number(text) else units.size(text)
    except ValueError as error:
        raise Refused(str(error), "a plain number counts full frames") from error
    if not 0 < value <= 2**31:
        raise Refused(f"{text} is no usable threshold", "more than zero, less than 2GiB")
    return value


def boolean(tree: t.Tree, _path: str) -> bool:
    """`true` or `false` and no other spelling: yes, no, on and off have misled too many (pitfall H-25)."""
    if isinstance(tree, t.Scalar) and not tree.quoted and tree.text in ("true", "false"):
        return tree.text == "true"
    raise Refused(f"expected true or false, found {t.describe(tree)}")


def text(tree: t.Tree, _path: str) -> str:
    """Any text; what YAML takes for a number, a boolean or nothing must be in quotes."""
    if isinstance(tree, t.Scalar) and tree.kind == "str":
        return tree.text.strip()
    hint = "put it in quotes" if isinstance(tree, t.Scalar) and tree.kind != "null" else ""
    raise Refused(f"expected text, found {t.describe(tree)}", hint)


def choice(options: Sequence[str], later: Iterable[str] = ()) -> Reader:
    """One word of `options`. Words in `later` are known to the design but not built yet, and say so."""

    def read(tree: t.Tree, _path: str) -> str:
        word = _scalar(tree, f"one of {', '.join(options)}")
        if word in options:
            return word
        if word in later:
            raise Refused(f"{units.shown(word)} is not available in this version", f"available: {', '.join(options)}")
        raise Refused(f"expected one of {', '.join(options)}, found {t.describe(tree)}", close(word, options))

    return read


def items(tree: t.Tree, path: str, read: Reader, problems: Problems) -> list[Any]:
    """Each entry of a list through `read`; None where an entry was refused, so that indices stay those of the file."""
    if not isinstance(tree, t.Sequence):
        raise Refused(f"expected a list, found {t.describe(tree)}", "start each entry with `- `")
    found: list[Any] = []
    for index, item in enumerate(tree.items):
        values: Values = {}
        attempt(read, item, join(path, index), values, "item", problems)
        found.append(values.get("item"))
    return found


def twice(found: Sequence[Any]) -> Any | None:
    """The first entry that was there before; None when each is there once."""
    seen: set[Any] = set()
    for entry in found:
        if entry in seen:
            return entry
        seen.add(entry)
    return None
