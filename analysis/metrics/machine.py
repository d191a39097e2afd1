"""What the run cost the machine: `cpu_busy`, `host_lag_ms_p99`, `bringup_s`, `teardown_s`, and the unit `rtt_base_ms`."""

from __future__ import annotations

import numpy as np

from analysis.arrays import floats, ints, is_text, percentile
from analysis.view import View


def measure(view: View) -> dict[str, float]:
    found = {"rtt_base_ms": view.rtt_base_ns / 1e6}
    cpu = view.run.cpu
    times = ints(cpu, "t_ns")
    counted = (times > view.start_ns) & (times <= view.end_ns)
    busy = floats(cpu, "busy")[counted & is_text(cpu, "who", "machine")]
    if np.any(~np.isnan(busy)):
        found["cpu_busy"] = float(np.nanmean(busy))
    lag = floats(cpu, "lag_ms_p99")[counted & is_text(cpu, "who", *view.topology.hosts)]
    if np.any(~np.isnan(lag)):
        found["host_lag_ms_p99"] = percentile(lag, 0.99)
    for name in ("bringup_s", "teardown_s"):
        value = view.run.manifest.get(name)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            found[name] = float(value)
    return found
