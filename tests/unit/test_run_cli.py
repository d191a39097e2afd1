"""The command line as a user meets it: exit statuses and messages of a subprocess. Nothing here builds a fabric."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NOBODY = 65534


def run(
    *arguments: str, path: str | None = None, cwd: Path = ROOT, user: int | None = None
) -> subprocess.CompletedProcess[str]:
    environment = os.environ | ({} if path is None else {"PATH": path})
    command = [sys.executable, str(ROOT / "run_experiment.py"), *arguments]
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=60,
        cwd=cwd,
        env=environment,
        check=False,
        user=user,
        group=user,
        extra_groups=None if user is None else [],
    )


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "testbed", *arguments]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, cwd=ROOT, check=False)


def test_help_shows_examples() -> None:
    """At once: it imports no package (below)."""
    done = run("--help")
    assert done.returncode == 0
    assert "examples:" in done.stdout


HELP = """
import sys
from testbed.run import cli
try:
    cli.main(["--help"])
except SystemExit:
    print([name for name in ("yaml", "pandas", "numpy", "mininet", "pyroute2") if name in sys.modules])
"""


def test_help_imports_no_package() -> None:
    done = subprocess.run([sys.executable, "-c", HELP], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.endswith("\n[]\n")


def test_list_names_the_quickstart_from_any_directory(tmp_path: Path) -> None:
    done = run("--list", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stdout.startswith("quickstart") or "\nquickstart" in done.stdout
    entries = json.loads(run("--list", "--json").stdout)
    assert "quickstart" in [entry["name"] for entry in entries]


def test_validate() -> None:
    done = run("--validate", "quickstart")
    assert (done.returncode, done.stdout, done.stderr) == (0, "quickstart: valid\n", "")


def test_validate_takes_a_file(tmp_path: Path) -> None:
    shutil.copy(ROOT / "scenarios" / "quickstart.yaml", tmp_path / "mine.yaml")
    assert run("--validate", "mine.yaml", cwd=tmp_path).returncode == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["quikstart"], "did you mean quickstart"),
        (["no-such-file.yaml"], "no-such-file.yaml"),
        (["quickstart", "--set", "measure.duraton=3s"], "measure.duraton: unknown key"),
        (["quickstart", "--set", "links.rate=fast"], "links.rate"),
        (["quickstart", "--set", "nonsense"], "nonsense"),
        (["quickstart", "--repeat", "0"], "--repeat: expected a whole number from 1 up, found '0'"),
        (["quickstart", "--seed", "-1"], "--seed: expected a whole number from 0 up, found '-1'"),
        (["quickstart", "--seed", "4294967296"], "--seed: 4294967296 is outside 0 to 4294967295"),
        (["README.md"], "README.md: is no YAML file (a scenario's name, or a file that ends in .yaml or .yml)"),
        (["scenarios"], "scenarios: is a folder"),
        ([], "which scenario?"),
        (["quickstart", "--cli", "--json"], "--cli and --json both want standard output"),
        (["--suite=nigthly"], "did you mean nightly"),
        (["--suite=quickstart"], "is a scenario, it has no `suite:`"),
        (["quick"], "a suite is no scenario (run it with --suite=NAME|FILE)"),
        (["quickstart", "--suite=quick"], "a suite names its own scenarios"),
        (["--suite=quick", "--cli"], "--cli: belongs to a single run"),
        (["--suite=quick", "--resume"], "there is nothing to resume"),
        (["quickstart", "--resume"], "--resume goes on with a suite or a sweep"),
        (["--sweep", "links.rate=1mbit,2mbit"], "which scenario?"),
        (["--suite=quick", "--engine", "dask"], "dask needs a scheduler"),
        (["--suite=quick", "--scheduler", "tcp://127.0.0.1:1"], "belongs to --engine dask"),
        (["quickstart", "--sweep", "links.rate=1mbit,fast"], "links.rate: expected a rate"),
        (["quickstart", "--no-such-option"], "--no-such-option"),
    ],
)
def test_what_is_wrong_with_the_input_is_said_plainly(arguments: list[str], said: str, tmp_path: Path) -> None:
    done = run(*arguments, "--out", str(tmp_path / "out"))
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert not (tmp_path / "out").exists()


def test_every_problem_comes_at_once() -> None:
    done = run("quickstart", "--set", "links.rate=fast", "--set", "measure.duration=soon")
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 2


def test_a_missing_tool_is_named_before_anything_exists(tmp_path: Path) -> None:
    done = run("quickstart", "--out", str(tmp_path / "out"), path=str(tmp_path))
    assert done.returncode == 3
    assert "Traceback" not in done.stderr
    for tool in ("ip", "tc"):
        assert any(line.startswith(tool) for line in done.stderr.splitlines()), done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give it up")
def test_without_root_it_says_so(tmp_path: Path) -> None:
    if not os.access(ROOT, os.X_OK):
        pytest.skip("the tree is not readable for others")
    done = run("quickstart", "--out", str(tmp_path / "out"), user=NOBODY)
    assert done.returncode == 3
    assert "root" in done.stderr
    assert not (tmp_path / "out").exists()


def test_without_an_environment_it_names_make_setup(tmp_path: Path) -> None:
    """A copy of the tree without .venv, run by a Python that has no packages."""
    shutil.copy(ROOT / "run_experiment.py", tmp_path)
    shutil.copytree(ROOT / "testbed", tmp_path / "testbed")
    done = subprocess.run(
        [sys.executable, "-S", str(tmp_path / "run_experiment.py"), "quickstart"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 3
    assert "make setup" in done.stderr
    assert "Traceback" not in done.stderr


def test_paths_of_a_pair_and_back() -> None:
    done = command("paths", "quickstart", "h0", "h5")
    assert done.returncode == 0
    rows = [line.split() for line in done.stdout.splitlines()[1:]]
    assert len(rows) == 24
    assert len({row[2] for row in rows}) == 24
    ev, plane, address, *hops = rows[-1]
    decoded = command("paths", "--decode", address)
    assert decoded.stdout == f"plane {plane}: {' '.join(hops[1:])}\n"
    assert int(ev) >> 16 == int(plane)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["paths", "quickstart", "h0", "h99"], "h99: is not a host of this scenario"),
        (["paths", "quickstart", "h0", "h0"], "h0: has no path to itself"),
        (["paths", "quickstart"], "needs a scenario and two hosts"),
        (["paths", "--decode", "nonsense"], "nonsense: is not an IPv6 address"),
        (["paths", "--decode", "2001:db8::1"], "2001:db8::1: "),
        (["shell", "quikstart"], "did you mean quickstart"),
        (["exec", "quickstart", "h9", "true"], "h9: is not a node of this scenario"),
        (["exec", "quickstart", "p0t1-2"], "exec: needs a command"),
        (["collect", "no/such/folder"], "holds no raw records"),
    ],
)
def test_commands_refuse_with_status_2(arguments: list[str], said: str) -> None:
    done = command(*arguments)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
