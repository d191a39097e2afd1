"""The arrows of the house: which room may import what. Read from the source, so an import inside a function counts too.

`model <- fabric <- run`, `model <- analysis <- run`, `transport <- host`; `run` starts hosts as processes and imports
`analysis` and the numeric libraries only once traffic has ended.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Room:
    """What a room may import beside the standard library and itself; `lazily` only where loading the module does not."""

    may: tuple[str, ...] = ()
    lazily: tuple[str, ...] = ()


NUMERIC = ("numpy", "pandas", "pyarrow", "scipy", "matplotlib")
AFTER_TRAFFIC = ("analysis", *NUMERIC)
STARTS = ("testbed.run.cli", "testbed.run.commands", "testbed.run.traffic")  # what is loaded when a run begins

ROOMS = {
    "testbed.model": Room(("testbed.errors", "yaml"), lazily=("numpy", "scipy")),
    "testbed.transport": Room(),
    "testbed.transport.common": Room(),
    "testbed.transport.mrc": Room(("testbed.transport.common",)),
    "testbed.transport.rc": Room(("testbed.transport.common",)),
    "testbed.host": Room(("testbed.transport",)),
    "testbed.iperf": Room(("testbed.host", "iperf3")),
    "testbed.fabric": Room(("testbed.model", "testbed.errors", "testbed.whole", "mininet", "pyroute2")),
    "testbed.run": Room(
        ("testbed.model", "testbed.errors", "testbed.venv", "testbed.fabric", "analysis", "yaml", *NUMERIC), ("distributed",)
    ),
    "analysis": Room(
        ("testbed.model", "testbed.errors", "testbed.venv", "testbed.whole", "yaml", "jinja2", "markupsafe", "cycler", *NUMERIC)
    ),
}


@dataclass(frozen=True)
class Import:
    module: str
    line: int
    deferred: bool


def imports(source: str, package: str) -> Iterator[Import]:
    """Every import in `source`; `package` resolves relative ones. Deferred: in a function or under `if TYPE_CHECKING:`."""
    tree = ast.parse(source)
    inside: set[ast.AST] = set()
    for node in ast.walk(tree):
        typing_only = isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        if typing_only or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            inside |= set(ast.walk(node))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, node.lineno, node in inside)
        elif isinstance(node, ast.ImportFrom):
            base = package.rsplit(".", node.level - 1)[0] if node.level else ""
            module = ".".join(part for part in (base, node.module) if part)
            # `from testbed import model` names a module too: keep the most specific reading of both.
            yield from (Import(f"{module}.{alias.name}", node.lineno, node in inside) for alias in node.names)


def within(module: str, roots: tuple[str, ...]) -> bool:
    return any(module == root or module.startswith(f"{root}.") for root in roots)


def offences(room: str, package: str, source: str) -> list[str]:
    rules = ROOMS[room]
    found: list[str] = []
    for item in imports(source, package):
        if item.module.split(".")[0] in sys.stdlib_module_names or within(item.module, (room, *rules.may)):
            continue
        if within(item.module, rules.lazily):
            if not item.deferred:
                found.append(f"line {item.line}: {item.module} only inside functions")
            continue
        found.append(f"line {item.line}: {item.module}")
    return found


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_what_it_may(room: str) -> None:
    folder = ROOT / room.replace(".", "/")
    files = sorted(folder.rglob("*.py"))
    assert files
    found: list[str] = []
    for file in files:
        parts = file.relative_to(ROOT).with_suffix("").parts
        package = ".".join(parts[:-1])
        found += [f"{file.relative_to(ROOT)} {offence}" for offence in offences(room, package, file.read_text())]
    assert not found, "\n".join(found)


LONGEST = 399  # lines: one concept per file


def test_every_module_is_short_enough_to_be_read_at_once() -> None:
    long = {
        str(file.relative_to(ROOT)): lines
        for folder in ("testbed", "analysis", "benchmarks")
        for file in sorted((ROOT / folder).rglob("*.py"))
        if (lines := len(file.read_text().splitlines())) > LONGEST
    }
    assert not long


def test_the_transport_brings_in_nothing_but_the_standard_library() -> None:
    """Loaded, not read: whatever the modules import on their way is seen too."""
    done = subprocess.run([sys.executable, "-c", IMPORT_TRANSPORT], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = json.loads(done.stdout)
    assert "testbed.transport.mrc.endpoint" in loaded
    foreign = [name for name in loaded if name.split(".")[0] not in sys.stdlib_module_names]
    assert [name for name in foreign if not within(name, ("testbed.transport",))] == ["testbed"]


def test_the_error_tree_imports_nothing() -> None:
    modules = {item.module.split(".")[0] for item in imports((ROOT / "testbed/errors.py").read_text(), "testbed")}
    assert modules <= sys.stdlib_module_names


@pytest.mark.parametrize(
    ("room", "source"),
    [
        ("testbed.model", "import numpy"),
        ("testbed.model", "from testbed import fabric"),
        ("testbed.transport", "from testbed.errors import TestbedError"),
        ("testbed.transport", "def f():\n    import yaml"),
        ("testbed.host", "from testbed.model.topology import Topology"),
        ("testbed.fabric", "import testbed.transport.mrc"),
        ("testbed.fabric", "from ..run import order"),
        ("testbed.run", "def f():\n    from testbed.host import loop"),
        ("testbed.run", "from testbed.iperf import sampling"),
        ("testbed.host", "import iperf3"),
        ("analysis", "from testbed.run import order"),
        ("analysis", "from testbed import fabric"),
    ],
)
def test_a_wrong_import_is_seen(room: str, source: str) -> None:
    assert offences(room, room, source)


@pytest.mark.parametrize(
    ("room", "source"),
    [
        ("testbed.model", "import yaml\ndef f():\n    from scipy.optimize import linprog"),
        ("testbed.model", "from testbed.model import units\nfrom . import tree"),
        ("testbed.host", "from testbed.transport.mrc import Endpoint\nimport selectors"),
        ("testbed.run", "from testbed.fabric import network\ndef f():\n    import analysis"),
        ("testbed.run", "import pandas"),
        ("testbed.model", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import numpy"),
    ],
)
def test_a_right_import_passes(room: str, source: str) -> None:
    assert not offences(room, room, source)


def file_of(module: str) -> Path | None:
    """The source of a module of ours; of the module that `module` is a name in, when it is not one itself."""
    for name in (module, module.rpartition(".")[0]):
        path = ROOT / name.replace(".", "/")
        for file in (path.with_suffix(".py"), path / "__init__.py"):
            if name and file.exists():
                return file
    return None


def test_what_a_run_starts_with_brings_in_no_numeric_library() -> None:
    """They take a second and 100 MB that the hosts need; follows every import made when a module is loaded."""
    todo = [file for file in map(file_of, STARTS) if file is not None and file.stem != "__init__"]
    if not todo:
        pytest.skip("testbed/run holds no module yet")
    seen: set[Path] = set()
    found: list[str] = []
    while todo:
        file = todo.pop()
        if file in seen:
            continue
        seen.add(file)
        package = ".".join(file.relative_to(ROOT).parts[:-1])
        for item in imports(file.read_text(), package):
            if item.deferred:
                continue
            if within(item.module, AFTER_TRAFFIC):
                found.append(f"{file.relative_to(ROOT)} line {item.line}: {item.module} only inside functions")
            elif within(item.module, ("testbed",)) and (further := file_of(item.module)):
                todo.append(further)
    assert not found, "\n".join(found)


IMPORT_TRANSPORT = """
import importlib, json, pathlib, sys
before = set(sys.modules)
for file in sorted(pathlib.Path("testbed/transport").rglob("*.py")):
    importlib.import_module(".".join(file.with_suffix("").parts).removesuffix(".__init__"))
print(json.dumps(sorted(set(sys.modules) - before)))
"""
IMPORT_ALL = """
import importlib, json, pathlib, sys
before = set(sys.modules)
for file in sorted(pathlib.Path("testbed/host").rglob("*.py")):
    if file.stem != "__main__":
        name = ".".join(file.with_suffix("").parts).removesuffix(".__init__")
        importlib.import_module(name)
places = {name: getattr(module, "__file__", None) or "" for name, module in sys.modules.items() if name not in before}
print(json.dumps([name for name, place in places.items() if "site-packages" in place or "dist-packages" in place]))
"""


def test_the_host_room_brings_in_no_third_party_module() -> None:
    """A host process starts in milliseconds and stays small only while this holds."""
    if [file.name for file in (ROOT / "testbed/host").rglob("*.py")] == ["__init__.py"]:
        pytest.skip("testbed/host holds no module yet")
    done = subprocess.run([sys.executable, "-c", IMPORT_ALL], cwd=ROOT, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []
