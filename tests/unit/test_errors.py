"""Malformed scenarios as data: `tests/errors/NAME.yaml` gives exactly the text in `NAME.txt`.

Lines `# --set key=value` at the top of a file are overrides. To add a case, write the YAML, run with REGENERATE_GOLDEN=1
and read the text that comes out as the person would who made the mistake.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from testbed.errors import ExitStatus, ScenarioError
from testbed.model import load
from tests.support import goldens, machine

CASES = sorted((goldens.TESTS / "errors").glob("*.yaml"))
SET = "# --set "


@pytest.fixture(scope="module")
def unit() -> float:
    return machine.speed()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.stem)
def test_error_text(case: Path, unit: float) -> None:
    lines = case.read_bytes().decode("utf-8", "replace").splitlines()
    overrides = [line.removeprefix(SET) for line in lines if line.startswith(SET)]
    began = time.process_time()
    with pytest.raises(ScenarioError) as caught:
        load.load(case, overrides)
    assert time.process_time() - began < 100 * unit, "a malformed file must not cost time"
    assert caught.value.exit_status is ExitStatus.BAD_INPUT
    text = str(caught.value).replace(str(case), case.name)
    goldens.check(text + "\n", case.with_suffix(".txt"))


def test_every_text_has_its_case() -> None:
    texts = {file.stem for file in (goldens.TESTS / "errors").glob("*.txt")}
    assert texts == {case.stem for case in CASES}
    assert len(CASES) >= 30


def test_a_missing_file_is_an_input_error() -> None:
    with pytest.raises(ScenarioError, match=r"nowhere\.yaml: cannot be read: No such file"):
        load.load(Path("nowhere.yaml"))


def test_a_large_file_is_refused_unread(tmp_path: Path) -> None:
    file = tmp_path / "large.yaml"
    file.write_text("# filler\n" * 200_000)
    with pytest.raises(ScenarioError, match=r"large\.yaml:58255: the file is larger than 512KiB"):
        load.load(file)
