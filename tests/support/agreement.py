"""Holds a report against the raw tables: every number of its tables, worked out again."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest

from tests.support.page import Page, value
from tests.support.recompute import Recomputed

EXACT = 2e-5  # summary.json has six digits; the linear programs are good to 1e-7
PRINTED = 6e-4  # the page has four
SLACK = 1e-6  # of what is near zero


def check(folder: Path) -> None:
    """Assert that summary.json and report.html of a results folder say what its tables say."""
    own = Recomputed(folder)
    summary = json.loads((folder / "summary.json").read_text())
    page = Page.of(folder / "report.html")
    metrics = own.metrics()
    assert set(summary["metrics"]) == set(metrics), "every metric of the summary is worked out again"
    for name, found in metrics.items():
        assert summary["metrics"][name] == pytest.approx(found, rel=EXACT, abs=SLACK), name
    printed = {row["Metric"]: value(row["Value"]) for row in page.rows("Metrics")}
    assert printed.keys() == metrics.keys()
    for name, found in metrics.items():
        assert printed[name] == pytest.approx(found, rel=PRINTED, abs=SLACK), name
    _expectations(summary, page, metrics)
    _faults(summary, page, own)
    _flows(page, own)
    _theory(page, own)


def _expectations(summary: dict[str, object], page: Page, metrics: dict[str, float]) -> None:
    said = page.rows("Expectations")
    assert isinstance(summary["expectations"], list)
    assert len(said) == len(summary["expectations"])
    for row, one in zip(said, summary["expectations"], strict=True):
        metric, op, bound = one["text"].split()
        holds = {
            ">=": metrics[metric] >= float(bound),
            "<=": metrics[metric] <= float(bound),
            "==": metrics[metric] == float(bound),
        }
        assert row["Expected"] == one["text"]
        assert value(row["Actual"]) == pytest.approx(metrics[metric], rel=PRINTED, abs=SLACK)
        assert one["passed"] == holds[op]
        assert ("holds" in row["Result"]) == holds[op]


def _faults(summary: dict[str, object], page: Page, own: Recomputed) -> None:
    expected = own.fault_rows()
    assert isinstance(summary["faults"], list)
    assert len(expected) == len(summary["faults"])
    said = page.rows("Faults") if expected else []
    head = {"at_s": "from (s)", "until_s": "until (s)", "packets_lost": "packets lost"}
    head |= {f"{what}_{unit.lower()}": f"{what} ({unit[:3]})" for what in ("recovery", "stall") for unit in ("RTTs", "ms")}
    for row, one, printed in zip(expected, summary["faults"], said, strict=True):
        for name, found in row.items():
            assert one[name] == pytest.approx(found, rel=1e-3, abs=1e-3), name
            assert value(printed[head[name]]) == pytest.approx(found, rel=1e-3, abs=1e-3), name


def _flows(page: Page, own: Recomputed) -> None:
    rows = own.flow_rows()
    said = page.rows("Flows")
    assert len(said) == len(rows)
    for printed, (flow, (placed, ideal)) in zip(said, rows.items(), strict=True):
        assert printed["Flow"] == " \u2192 ".join(own.ends[flow])
        assert value(printed["Mbit/s"]) == pytest.approx(placed / 1e6, rel=PRINTED)
        assert value(printed["ideal"]) == pytest.approx(ideal / 1e6, rel=PRINTED)
        assert value(printed["ratio"]) == pytest.approx(placed / ideal, rel=PRINTED)


def _theory(page: Page, own: Recomputed) -> None:
    """The states cover the window, and each row's rates are those of its span."""
    ideal, equal = own.ideal().values(), own.ideal("equal_planes").values()
    columns = {"ideal": ideal, "equal planes": equal}
    if own.one_path:
        columns["its paths"] = own.ideal(own_paths=True).values()
    edges = sorted({own.start, own.end, *(at for steps in ideal for at in steps.edges if own.start < at < own.end)})
    said = page.rows("Against theory")
    assert len(said) == len(edges) - 1
    for row, (start, end) in zip(said, pairwise(edges), strict=True):
        seconds = (end - start) / 1e9
        inside = own.first[(own.first["placed_ns"] >= start) & (own.first["placed_ns"] < end)]["bytes"].sum()
        expected = {"from (s)": (start - own.t0) / 1e9, "until (s)": (end - own.t0) / 1e9, "Mbit/s": inside * 8e-6 / seconds}
        for name, every in columns.items():
            expected[name] = sum(steps.bytes_in(start, end) for steps in every) * 8e-6 / seconds
        expected["ratio"] = expected["Mbit/s"] / expected["ideal"]
        for name, found in expected.items():
            assert value(row[name]) == pytest.approx(found, rel=PRINTED, abs=1e-4), (row, name)
        held = [fault for fault in own.faults if fault.start <= start and (fault.end or own.end) >= end]
        assert (row["Faults that held"] == "none") == (not held)
