"""Figures of one run, one file each: PNG, SVG and the drawn data as CSV. Missing data is a gap, never zero (pitfall H-22).

Works from `analysis.view.View`; a figure without its data is left out.
"""

from __future__ import annotations

from pathlib import Path

from analysis.figures.style import Drawn
from analysis.view import View, view

__all__ = ["Drawn", "draw_all", "write_all"]


def draw_all(seen: View) -> list[Drawn]:
    """Write every figure that applies into `figures/` of the results folder, replacing what was there."""
    from analysis.figures import delay, ev_states, goodput, planes, ports, recovery, steps

    folder = seen.run.path / "figures"
    folder.mkdir(exist_ok=True)
    for old in folder.iterdir():
        if old.suffix in {".png", ".svg", ".csv"}:
            old.unlink()
    drawn: list[Drawn | None] = [
        steps.draw(seen, folder),
        goodput.draw(seen, folder),
        *recovery.draw_all(seen, folder),
        ev_states.draw(seen, folder),
    ]
    drawn += [planes.draw(seen, folder), delay.draw(seen, folder), ports.draw(seen, folder)]
    return [figure for figure in drawn if figure is not None]


def write_all(run_dir: Path) -> list[Drawn]:
    """The same from a results folder on disk."""
    from analysis.results import read

    return draw_all(view(read(run_dir)))
