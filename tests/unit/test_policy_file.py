"""A policy of one's own: what the loader takes and refuses, word for word, and that reading never runs it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from testbed.errors import ScenarioError
from testbed.host.plan import PlanError
from testbed.host.policy import compile_policy
from testbed.model import load
from testbed.model.flows import flows
from testbed.model.topology import build
from testbed.run import results
from testbed.run.plan import host_plans
from tests.support.goldens import TESTS

SCENARIO = """
name: own
topology: {planes: 2, t0_groups: 2, t1_per_plane: 2, hosts_per_t0: 2}
links: {rate: 5mbit, delay: 20ms}
workload:
  - {kind: permutation, message: 64KiB}
"""
GOOD = "class Mine:\n    def next(self, now):\n        return None\n"
FOLDER = "the scenario's folder (name a file in the folder of the scenario, or below it)"
Read = Callable[..., str]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """The one problem that a scenario with this policy has."""
    (tmp_path / "own.yaml").write_text(SCENARIO)
    (tmp_path / "mine.py").write_text(GOOD)

    def reader(policy: str, text: str | bytes | None = None) -> str:
        if text is not None:
            (tmp_path / "mine.py").write_bytes(text if isinstance(text, bytes) else text.encode())
        with pytest.raises(ScenarioError) as caught:
            load.load(tmp_path / "own.yaml", [f"transport.policy='{policy}'"])
        assert str(caught.value).startswith("--set: transport.policy: ")
        return str(caught.value).removeprefix("--set: transport.policy: ")

    return reader


@pytest.mark.parametrize(
    ("policy", "says"),
    [
        ("mine.py", "expected FILE.py:Class, found 'mine.py' (for example policy: mine.py:Mine)"),
        ("mine:Mine", "expected FILE.py:Class, found 'mine:Mine' (for example policy: mine.py:Mine)"),
        ("mine.py:Mine:x", "expected FILE.py:Class, found 'mine.py:Mine:x' (for example policy: mine.py:Mine)"),
        ("mine.py:Nine", "'mine.py' has no class 'Nine' (did you mean Mine?)"),
        ("mine.py:", "'mine.py' has no class '' (known: Mine)"),
        ("min.py:Mine", "there is no file 'min.py' (did you mean mine.py?)"),
        ("below/mine.py:Mine", "there is no file 'below/mine.py' (the path is relative to the scenario's folder)"),
        (
            "../mine.py:Mine",
            f"'../mine.py' is not inside {FOLDER}",
        ),
        (
            "below/../mine.py:Mine",
            f"'below/../mine.py' is not inside {FOLDER}",
        ),
        (
            "/etc/mine.py:Mine",
            f"'/etc/mine.py' is not inside {FOLDER}",
        ),
        ("raw/mine.py:Mine", "a policy cannot lie in a folder called raw: a results folder has its own (move the file)"),
    ],
)
def test_what_is_no_policy_is_refused(read: Read, policy: str, says: str) -> None:
    assert read(policy) == says


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("class Mine:\n    def next(self now):\n        pass\n", "'mine.py' line 2 is not valid Python: invalid syntax"),
        ("x = 1\n", "'mine.py' has no class 'Mine' (write class Mine with a method next(now))"),
        ("def f():\n    class Mine: pass\n", "'mine.py' has no class 'Mine' (write class Mine with a method next(now))"),
        (
            "class Mine:\n    def nxt(self, now): pass\n",
            "class Mine in 'mine.py' has no method next(now): it would choose no path",
        ),
        (b"class Mine:\n    '\xff'\n", "'mine.py' line 2 is not UTF-8 text"),
        ("#" * 70_000, "'mine.py' is larger than 64KiB"),
    ],
)
def test_what_is_in_the_file_is_checked(read: Read, text: str | bytes, says: str) -> None:
    assert read("mine.py:Mine", text).startswith(says)


@pytest.mark.parametrize(
    "text", ["(" * 30_000, "-" * 60_000 + "1", "a\0b", "\0", "class Mine:\n" + " " * 60_000 + "def next(self): ("]
)
def test_hostile_text_is_one_refusal(read: Read, text: str) -> None:
    assert "is not valid Python" in read("mine.py:Mine", text)


def test_a_link_out_of_the_folder_is_refused(read: Read, tmp_path: Path) -> None:
    outside = tmp_path.parent / "outside.py"
    outside.write_text(GOOD)
    (tmp_path / "link.py").symlink_to(outside)
    assert read("link.py:Mine").startswith("'link.py' is a link that leads out of the scenario's folder")
    (tmp_path / "loop.py").symlink_to(tmp_path / "loop.py")
    assert "loop.py" in read("loop.py:Mine")


def test_reading_and_planning_run_nothing_and_the_results_folder_reads_back(tmp_path: Path) -> None:
    folder = tmp_path / "scenario"
    (folder / "below").mkdir(parents=True)
    trap = f"import pathlib\npathlib.Path({str(tmp_path / 'ran')!r}).touch()\n{GOOD}"
    (folder / "below" / "mine.py").write_text(trap)
    (folder / "own.yaml").write_text(SCENARIO + "transport: {policy: 'below/mine.py:Mine'}\n")
    scenario = load.load(folder / "own.yaml")
    topology = build(scenario.topology)
    (plan, *_) = host_plans(scenario, topology, flows(scenario, topology), tmp_path)
    assert (plan["transport"]["policy"], plan["transport"]["policy_text"]) == ("below/mine.py:Mine", trap)
    made = results.create(tmp_path / "out", "own", 1)
    results.write_scenario(made.path, load.dump(scenario), scenario.transport.policy_file, scenario.transport.policy_text)
    assert load.load(made.path / "scenario.yaml") == scenario
    assert not (tmp_path / "ran").exists()
    compile_policy(scenario.transport.policy, scenario.transport.policy_text)
    assert (tmp_path / "ran").exists()


def test_the_example_of_the_docs_loads() -> None:
    scenario = load.load(TESTS.parent / "docs" / "examples" / "two-choices.yaml")
    assert scenario.transport.policy == "two_choices.py:TwoChoices"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "import no_such_module\n",
            "policy mine.py:Mine: ModuleNotFoundError: No module named 'no_such_module' (mine.py line 1)",
        ),
        ("class Mine:\n    x = 1 / 0\n", "policy mine.py:Mine: ZeroDivisionError: division by zero (mine.py line 2)"),
        ("del x\n", "policy mine.py:Mine: NameError: name 'x' is not defined (mine.py line 1)"),
    ],
)
def test_a_policy_that_fails_when_it_is_made_says_where(text: str, says: str) -> None:
    with pytest.raises(PlanError) as caught:
        compile_policy("mine.py:Mine", text)
    assert str(caught.value) == says
