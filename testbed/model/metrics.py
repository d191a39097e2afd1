"""The names of `summary.json`'s metrics (DESIGN 4.4), in one place: what an expectation may speak of."""

from __future__ import annotations

import re

METRICS: tuple[str, ...] = (
    # goodput
    "goodput_mbps",
    "ideal_mbps",
    "goodput_ratio",
    "ideal_equal_planes_mbps",
    "ideal_transport_mbps",
    "goodput_ratio_min_1s",
    "flow_goodput_ratio_min",
    "flow_goodput_ratio_p50",
    "flow_goodput_ratio_max",
    "bystander_goodput_ratio",
    "jain_index",
    # messages, steps and collectives
    "message_ms_p50",
    "message_ms_p99",
    "message_ms_max",
    "step_ms_mean",
    "step_ms_mean_slowest_job",
    "step_ms_p50",
    "step_ms_p99",
    "step_ms_max",
    "step_jitter",
    "busbw_mbps",
    "busbw_ratio",
    # one-way delay and round trip
    "oneway_us_p50",
    "oneway_us_p99",
    "jitter_us",
    "rtt_base_ms",
    # packets and paths
    "packets_sent",
    "retransmit_ratio",
    "spurious_retransmit_ratio",
    "packets_marked",
    "packets_trimmed",
    "packets_dropped_queue",
    "packets_dropped_fault",
    "nacks",
    "evs_retired",
    "evs_restored",
    "evs_skipped",
    "plane_imbalance",
    # faults, run-wide
    "recovery_ms_max",
    "recovery_rtts_max",
    "stall_ms_max",
    "stall_rtts_max",
    # integrity
    "messages_completed",
    "messages_incomplete",
    "messages_abandoned",
    "messages_corrupt",
    "bytes_lost",
    "flows_failed",
    # the run itself
    "bringup_s",
    "teardown_s",
    "cpu_busy",
    "host_lag_ms_p99",
)

OPERATORS: tuple[str, ...] = (">=", "<=", "==", ">", "<")

# What a fault cost, in a suite's table and claims: `fault0_stall_ms` is the first entry of summary.json's `faults`.
FAULT_COSTS: tuple[str, ...] = ("recovery_ms", "recovery_rtts", "stall_ms", "packets_lost")
_OF_FAULT = re.compile(rf"fault[0-9]+_({'|'.join(FAULT_COSTS)})")


def is_claimable(name: str) -> bool:
    """Whether a suite's claim may speak of it: a metric, or a cost of one fault."""
    return name in METRICS or _OF_FAULT.fullmatch(name) is not None
