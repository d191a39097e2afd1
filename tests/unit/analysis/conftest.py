"""One made-up run for all tests that only read it; small ones are made where they are needed."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from analysis.results import Run, read
from analysis.view import View, view
from tests.unit.analysis import synthetic

SMALL = """
name: small
description: Made-up data for tests of the analysis. Nothing ran.
source: "nowhere"
topology: {planes: 2, t0_groups: 2, t1_per_plane: 3, hosts_per_t0: 2}
links: {rate: 4mbit, delay: 10ms, mtu: 4500}
workload:
  - {kind: permutation, hosts: all, message: 64KiB, depth: 2}
measure: {warmup: 1s, duration: 8s, interval: 100ms}
expect:
  - goodput_ratio >= 0.97
seed: 3
"""


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return synthetic.write(tmp_path_factory.mktemp("runs") / "whole")


@pytest.fixture(scope="session")
def run(folder: Path) -> Run:
    return read(folder)


@pytest.fixture(scope="session")
def seen(run: Run) -> View:
    return view(run)


@pytest.fixture(scope="session")
def raw(folder: Path) -> pd.DataFrame:
    """The packets table as written, read without the code under test."""
    return pd.read_parquet(folder / "packets.parquet")
