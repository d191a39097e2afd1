"""The arrows of the house: which room may import what. Read from the source, so an import inside a function counts too.

`model <- fabric <- run`, `model <- analysis <- run`, `transport <- host`; `run` starts hosts as processes and imports
`analysis` only inside functions, after traffic has ended.
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
    """What a room may import beside the standard library and itself; `lazily` only inside functions."""

    may: tuple[str, ...] = ()
    lazily: tuple[str, ...] = ()


ROOMS = {
    "testbed.model": Room(("testbed.errors", "yaml"), lazily=("numpy", "scipy")),
    "testbed.transport": Room(),
    "testbed.host": Room(("testbed.transport",)),
    "testbed.fabric": Room(("testbed.model", "testbed.errors", "mininet", "pyroute2")),
    "testbed.run": Room(
        ("testbed.model", "testbed.errors", "testbed.fabric", "yaml"),
        lazily=("analysis", "numpy", "pandas", "pyarrow", "scipy", "matplotlib", "mininet", "pyroute2", "iperf3"),
    ),
    "analysis": Room(
        ("testbed.model", "testbed.errors", "numpy", "pandas", "pyarrow", "matplotlib", "jinja2", "markupsafe", "yaml", "scipy")
    ),
}


@dataclass(frozen=True)
class Import:
    module: str
    line: int
    inside_function: bool


def imports(source: str, package: str) -> Iterator[Import]:
    """Every import in `source`; `package` resolves relative ones. `if TYPE_CHECKING:` counts as an import as well."""
    tree = ast.parse(source)
    inside: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
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
            if not item.inside_function:
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
        ("testbed.run", "import analysis"),
        ("testbed.run", "def f():\n    from testbed.host import loop"),
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
    ],
)
def test_a_right_import_passes(room: str, source: str) -> None:
    assert not offences(room, room, source)


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
