"""The notebooks run from top to bottom: as the plain Python that they are, on small fresh folders."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from analysis import report
from tests.unit.analysis import synthetic
from tests.unit.analysis.conftest import SMALL

ROOT = Path(__file__).parents[3]
NOTEBOOKS = sorted((ROOT / "analysis" / "notebooks").glob("*.py"))
FAULT = 'faults:\n  - {at: 2s, link: "p0t0-0:p0t1-1", action: blackhole, for: 1s}\nexpect:'
SHORT = SMALL.replace("duration: 8s", "duration: 4s").replace("expect:", FAULT)


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("study")
    for policy in ("mrc", "oblivious"):
        for seed in (3, 4):
            text = SHORT.replace("workload:", f"transport: {{policy: {policy}}}\nworkload:").replace("seed: 3", f"seed: {seed}")
            report.write(synthetic.write(place / policy / f"s{seed}", text), figures=False)
    return place


def test_there_are_two() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["many_runs", "one_run"]


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs(notebook: Path, study: Path, tmp_path: Path) -> None:
    environment = os.environ | {"RUN": str(study / "mrc" / "s3"), "STUDY": str(study), "MPLBACKEND": "Agg"}
    environment |= {"PYTHONPATH": str(ROOT), "MPLCONFIGDIR": str(tmp_path)}
    command = [sys.executable, "-W", "error", str(notebook)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    expected = {"one_run": ("times in ms since", "goodput_ratio >= 0.97"), "many_runs": ("4 of 4 runs", "policy=oblivious")}
    for words in expected[notebook.stem]:
        assert words in done.stdout


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_is_a_notebook_in_percent_format(notebook: Path) -> None:
    text = notebook.read_text()
    assert text.startswith("# ---\n# jupyter:\n#   jupytext:")
    assert text.count("\n# %%\n") >= 5
    assert text.count("\n# %% [markdown]\n") >= 5
