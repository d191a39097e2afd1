"""A report costs in proportion to its packets: four times as many, at most six times the processor time."""

from __future__ import annotations

import time
from pathlib import Path

from analysis import report
from analysis.results import read
from tests.unit.analysis import synthetic

LONGER = 4
LIMIT = 1.5 * LONGER


def cost(folder: Path) -> float:
    """Processor seconds of a report; a figure's drawing costs the same whatever the number of packets."""
    began = time.process_time()
    report.write(folder, figures=False)
    return time.process_time() - began


def test_four_times_the_packets_cost_about_four_times_as_much(tmp_path: Path) -> None:
    short = synthetic.write(tmp_path / "short", synthetic.SCENARIO)
    long = synthetic.write(tmp_path / "long", synthetic.SCENARIO.replace("duration: 20s", f"duration: {20 * LONGER}s"))
    assert len(read(long).packets) > (LONGER - 0.1) * len(read(short).packets)
    report.write(short, figures=False)  # imports
    shorts, longs = list[float](), list[float]()
    for _ in range(6):  # in turns, the cheapest of each: what shares a core with us makes a second of it worth less
        shorts.append(cost(short))
        longs.append(cost(long))
        if len(longs) >= 2 and min(longs) < LIMIT * min(shorts):
            break
    assert min(longs) < LIMIT * min(shorts)
