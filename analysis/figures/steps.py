"""Steps of jobs in lock step: how long each took over time, and their distribution."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from analysis.figures import style
from analysis.metrics.steps import in_window
from analysis.view import View
from testbed.model.jobs import alone_ns

NAME = "steps"


def draw(view: View, target: style.Target) -> style.Drawn | None:
    jobs = in_window(view)
    if not jobs:
        return None
    rows = []
    with style.styled(NAME):
        figure = Figure(figsize=(style.WIDTH, 2.9))
        style.margins(figure, 0.6, 0.15, 0.5, 0.42, wspace=0.22)
        over_time, spread = figure.subplots(1, 2, width_ratios=(5, 2))
        for at, steps in enumerate(jobs):
            colour = style.CYCLE[at % len(style.CYCLE)]
            end_s, took = (steps.end_ns - view.t0_ns) / 1e9, steps.took_ns / 1e6
            over_time.plot(end_s, took, color=colour, marker="o", markersize=2.5, linewidth=0.9, label=steps.job)
            spec = view.run.scenario.workload[steps.workload]
            ideal = (spec.compute_ns + alone_ns(view.run.scenario, view.topology, steps.workload)) / 1e6
            over_time.axhline(ideal, color=colour, linestyle=(0, (4, 2)), linewidth=0.9)
            spread.plot(np.sort(took), np.arange(1, len(took) + 1) / len(took), color=colour, drawstyle="steps-post")
            columns = {"step": steps.step, "end_s": end_s, "step_ms": took, "collective_ms": steps.collective_ns / 1e6}
            rows.append(pd.DataFrame(columns).assign(job=steps.job, ideal_ms=ideal))
        over_time.set_ylabel("step (ms)")
        over_time.set_ylim(bottom=0)
        style.legend_above(over_time, loc="lower left", bbox_to_anchor=(0.0, 1.09))
        style.shade_faults(over_time, view, label=len(view.faults) <= 2)  # half a page wide
        style.time_axis(over_time, view)
        spread.set_xlabel("step (ms)")
        spread.set_ylabel("share of steps")
        spread.set_ylim(0, 1.02)
        style.save(figure, target, NAME, pd.concat(rows, ignore_index=True))
    return style.Drawn(
        NAME,
        "Step times",
        "Each step that lies wholly in the window, from the last rank's end of the step before to the last rank's end of this "
        "one. The dashed line is the ideal: computing, latency and line rate without faults. Shaded: faults. Right: how many "
        "steps took no longer.",
        "Line chart of step times over time with the ideal step, and their cumulative distribution.",
    )
