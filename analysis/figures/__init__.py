"""Figures of one run, one file each: PNG, SVG and the drawn data as CSV. Missing data is a gap, never zero (pitfall H-22).

Works from `analysis.view.View`; a figure without its data is left out. Style: `style.py`, for all of them.
"""

from __future__ import annotations

from analysis.figures.style import Drawn, Target
from analysis.view import View

__all__ = ["Drawn", "draw_all"]

INVALID = "INVALID RUN"


def draw_all(seen: View, *, valid: bool = True) -> list[Drawn]:
    """Write every figure that applies into `figures/` of the results folder, replacing what was there.

    Those of a run that is not `valid` carry a mark, so that none can be taken for a result.
    """
    from analysis.figures import (
        delay,
        delay_spread,
        ev_states,
        goodput,
        messages,
        paths,
        planes,
        ports,
        recovery,
        steps,
        windows,
    )

    target = Target(seen.run.path / "figures", "" if valid else INVALID)
    target.folder.mkdir(exist_ok=True)
    for old in target.folder.iterdir():
        if old.suffix in {".png", ".svg", ".csv"}:
            old.unlink()
    drawn: list[Drawn | None] = [steps.draw(seen, target), goodput.draw(seen, target), *recovery.draw_all(seen, target)]
    topics = (paths, ev_states, planes, messages, delay_spread, delay, windows, ports)
    drawn += [topic.draw(seen, target) for topic in topics]
    return [figure for figure in drawn if figure is not None]
