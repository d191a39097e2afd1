"""Fairness: each flow against its own ideal share (`flow_goodput_ratio_*`), an incast's bystander alone, Jain's index."""

from __future__ import annotations

import numpy as np

from analysis.arrays import percentile
from analysis.metrics.goodput import flow_rates
from analysis.view import View


def measure(view: View) -> dict[str, float]:
    if "packets" in view.run.missing or not view.flows:
        return {}
    rates = flow_rates(view)
    usable = rates.ideal > 0  # False for NaN: the flow was not active, or its receiver never recorded
    if not np.any(usable):
        return {}
    every = np.divide(rates.placed, rates.ideal, out=np.full(len(rates.placed), np.nan), where=usable)
    ratios = every[usable]
    found = {
        "flow_goodput_ratio_min": float(np.min(ratios)),
        "flow_goodput_ratio_p50": percentile(ratios, 0.5),
        "flow_goodput_ratio_max": float(np.max(ratios)),
    }
    jobs = {f"{spec.job}-bystander" for spec in view.run.scenario.workload if spec.bystander is not None}
    aside = every[usable & np.array([flow.job in jobs for flow in view.flows])]
    if len(aside):
        found["bystander_goodput_ratio"] = float(np.min(aside))
    squares = float(np.sum(ratios**2))
    if squares > 0:
        found["jain_index"] = float(np.sum(ratios)) ** 2 / (len(ratios) * squares)
    return found
