"""`policy: FILE.py:Class`: a path policy of one's own, from a file inside the scenario's folder. Read here, never executed.

What was read and checked is what runs: the text goes into the resolved scenario and from there into the results folder, where
the hosts find it. docs/policies.md has the interface and an example.
"""

from __future__ import annotations

import ast
import re
import warnings
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from testbed.model import fields, units
from testbed.model.fields import Refused

MAX_BYTES = 2**16  # a policy is a page; also bounds what the parser is given
WRITTEN = re.compile(r"(?P<file>[^:]+\.py):(?P<name>[^:]*)")
# Folders that every results folder has: a copy of the scenario's file would get in their way.
RESULTS_FOLDERS = ("raw", "logs", "figures")
METHOD = "next"


@dataclass(frozen=True, slots=True)
class PolicyFile:
    """`file` is relative to the scenario's folder, `name` a class in it, `text` the whole file."""

    file: str
    name: str
    text: str


def is_one(written: str) -> bool:
    """Whether this is meant to be a policy of one's own rather than a word."""
    return ".py" in written or ":" in written


def read(written: str, folder: Path) -> PolicyFile:
    """The policy that `policy: written` names in a scenario of `folder`. Refused when it cannot be one."""
    match = WRITTEN.fullmatch(written)
    if match is None:
        raise Refused(f"expected FILE.py:Class, found {units.shown(written)}", "for example policy: mine.py:Mine")
    file, name = match["file"], match["name"]
    text = _text(_inside(file, folder), file)
    _check_class(text, file, name)
    return PolicyFile(file, name, text)


def _inside(file: str, folder: Path) -> Path:
    """The file named, if it lies in the scenario's folder: the code in it runs as root."""
    parts = PurePosixPath(file).parts
    hint = "name a file in the folder of the scenario, or below it"
    if PurePosixPath(file).is_absolute() or ".." in parts or "\\" in file or not file.isprintable():
        raise Refused(f"{units.shown(file)} is not inside the scenario's folder", hint)
    if parts[0] in RESULTS_FOLDERS:
        raise Refused(f"a policy cannot lie in a folder called {parts[0]}: a results folder has its own", "move the file")
    place = folder / file
    try:
        if not place.resolve().is_relative_to(folder.resolve()):
            raise Refused(f"{units.shown(file)} is a link that leads out of the scenario's folder", hint)
    except (OSError, RuntimeError) as error:  # a loop of links
        raise Refused(f"{units.shown(file)} cannot be read: {error}") from error
    return place


def _text(place: Path, file: str) -> str:
    try:
        if not place.is_file():
            beside = sorted(mate.name for mate in place.parent.glob("*.py")) if place.parent.is_dir() else []
            hint = fields.close(place.name, beside) or "the path is relative to the scenario's folder"
            raise Refused(f"there is no file {units.shown(file)}", hint)
        with place.open("rb") as stream:
            raw = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise Refused(f"{units.shown(file)} cannot be read: {error.strerror}") from error
    if len(raw) > MAX_BYTES:
        raise Refused(f"{units.shown(file)} is larger than {units.format_size(MAX_BYTES)}")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise Refused(f"{units.shown(file)} line {line} is not UTF-8 text") from error


def _check_class(text: str, file: str, name: str) -> None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what Python has to say about a scenario's file goes to the host's log
            tree = ast.parse(text)
    except SyntaxError as error:
        raise Refused(f"{units.shown(file)} line {error.lineno or 0} is not valid Python: {error.msg}") from error
    except (ValueError, RecursionError, MemoryError) as error:  # a zero byte, or nested beyond reason
        raise Refused(f"{units.shown(file)} is not valid Python: {str(error) or type(error).__name__}") from error
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    if name not in classes:
        hint = fields.nearest(name, classes) if classes else f"write class {name or 'Mine'} with a method {METHOD}(now)"
        raise Refused(f"{units.shown(file)} has no class {units.shown(name)}", hint)
    found = classes[name]
    methods = {node.name for node in found.body if isinstance(node, ast.FunctionDef)}
    if METHOD not in methods and not found.bases:
        raise Refused(f"class {name} in {units.shown(file)} has no method {METHOD}(now): it would choose no path")
