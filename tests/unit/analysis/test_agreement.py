"""The report says what the raw tables say, number by number: see tests/support/recompute.py for the other way of counting."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from analysis import report
from tests.support import agreement, figure_data
from tests.unit.analysis import synthetic
from tests.unit.analysis.conftest import SMALL

FAULTS = """faults:
  - {at: 3s, link: "p0t0-0:p0t1-1", action: blackhole, direction: forward, for: 1s}
  - {at: 5s, link: "h1:p1t0-0", action: rate, to: 1mbit, for: 1s}
  - {at: 6s, switch: p1t1-2, action: reboot, for: 500ms}
expect:"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = synthetic.write(tmp_path_factory.mktemp("agreement") / "run", SMALL.replace("expect:", FAULTS))
    report.write(folder)
    return folder


def test_every_number_of_a_run_with_three_faults(place: Path) -> None:
    assert len(json.loads((place / "summary.json").read_text())["faults"]) == 3
    agreement.check(place)


def test_what_figures_draw_is_what_the_tables_hold(place: Path) -> None:
    assert figure_data.check(place) == set(figure_data.CHECKS) - {"steps"}, (
        "a job in lock step has those: tests/fabric/test_jobs.py"
    )


def test_an_incast_with_a_bystander_and_a_flow_that_stops(tmp_path: Path) -> None:
    workload = """workload:
  - {kind: incast, senders: [h0, h1], receiver: h3, bystander: [h0, h2], message: 64KiB, depth: 2, stop: 5s}
  - {kind: stream, from: h3, to: h0, message: 64KiB, depth: 2, start: 2s}
"""
    text = SMALL[: SMALL.index("workload:")] + workload + SMALL[SMALL.index("measure:") :]
    folder = synthetic.write(tmp_path / "incast", text)
    report.write(folder, figures=False)
    agreement.check(folder)


@pytest.mark.parametrize("column", ["placed_ns", "sent_ns", "bytes", "plane", "retransmission"])
def test_it_notices_a_column_that_says_otherwise(place: Path, tmp_path: Path, column: str) -> None:
    for file in place.glob("*.*"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    table = pd.read_parquet(place / "packets.parquet")
    match column:
        case "retransmission":
            table[column] = ~table[column]
        case "plane":
            table[column] = 0
        case _:
            table[column] += 20_000_000
    table.to_parquet(tmp_path / "packets.parquet")
    with pytest.raises(AssertionError):
        agreement.check(tmp_path)
