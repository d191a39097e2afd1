"""Name, unit and meaning of every metric: what the report prints beside a value. The order is the order of summary.json."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Definition:
    name: str
    unit: str  # "" for a ratio
    meaning: str
    count: bool = False  # a whole number


def _count(name: str, meaning: str, unit: str = "") -> Definition:
    return Definition(name, unit, meaning, count=True)


DEFINITIONS: tuple[Definition, ...] = (
    Definition("goodput_mbps", "Mbit/s", "unique payload placed per second of the window, all flows"),
    Definition(
        "ideal_mbps", "Mbit/s", "fluid max-min rate over all usable paths at each moment, faults included; payload only"
    ),
    Definition("goodput_ratio", "", "goodput_mbps / ideal_mbps"),
    Definition("ideal_equal_planes_mbps", "Mbit/s", "the same ideal with equal load on every plane"),
    Definition(
        "ideal_transport_mbps",
        "Mbit/s",
        "the same ideal on the paths that the transport keeps each flow to; of several QPs, on all of theirs",
    ),
    Definition("goodput_ratio_min_1s", "", "lowest goodput over ideal among the window's whole seconds"),
    Definition("flow_goodput_ratio_min", "", "slowest flow against its own ideal share"),
    Definition("flow_goodput_ratio_p50", "", "median flow against its own ideal share"),
    Definition("flow_goodput_ratio_max", "", "fastest flow against its own ideal share"),
    Definition("bystander_goodput_ratio", "", "slowest bystander of an incast against its own ideal share"),
    Definition("jain_index", "", "Jain's fairness index over the flows' ratios; 1 is perfectly fair"),
    Definition("message_ms_p50", "ms", "post to completion, messages posted in the window: median"),
    Definition("message_ms_p99", "ms", "the same: 99th percentile"),
    Definition("message_ms_max", "ms", "the same: slowest"),
    Definition(
        "step_ms_mean", "ms", "step of a job in lock step, last rank to last rank, wholly in the window, all jobs: mean"
    ),
    Definition("step_ms_mean_slowest_job", "ms", "the same of each job: mean of the job with the longest"),
    Definition("step_ms_p50", "ms", "step_ms_mean's steps: median"),
    Definition("step_ms_p99", "ms", "the same: 99th percentile; of fewer than 100 steps the slowest"),
    Definition("step_ms_max", "ms", "the same: slowest"),
    Definition("step_jitter", "", "step_ms_p99 / step_ms_p50 - 1"),
    Definition(
        "busbw_mbps", "Mbit/s", "bus bandwidth per rank as the NCCL tests define it, of the job furthest below its ideal"
    ),
    Definition("busbw_ratio", "", "the same against that job alone in the fabric without faults, latency steps counted"),
    _count("messages_completed", "messages of the whole run, completed and checked"),
    _count("messages_incomplete", "messages of the whole run that never completed"),
    _count("messages_abandoned", "messages to or from a host that a fault killed, and that never completed"),
    _count("messages_corrupt", "messages, and results of collectives, of the whole run whose content was wrong"),
    _count("bytes_lost", "payload that was sent and never placed by any transmission", "bytes"),
    _count(
        "flows_failed",
        "flows of tcp and mptcp without a sound end: iperf3 failed or was ended, or it was not what its name says",
    ),
    Definition("oneway_us_p50", "\u00b5s", "sent to placed, data packets of the window: median"),
    Definition("oneway_us_p99", "\u00b5s", "the same: 99th percentile"),
    Definition("jitter_us", "\u00b5s", "mean RFC 3550 jitter per path, first transmissions"),
    Definition("rtt_base_ms", "ms", "round trip of one full packet on an idle cross-T1 path; the unit of every _rtts"),
    _count("packets_sent", "data packets sent in the window, retransmissions included"),
    Definition("retransmit_ratio", "", "retransmissions / packets_sent"),
    Definition("spurious_retransmit_ratio", "", "packets that arrived after their PSN had been placed / packets_sent"),
    _count("packets_marked", "data packets acknowledged as ECN-marked"),
    _count("packets_trimmed", "data packets trimmed by ports"),
    _count("packets_dropped_queue", "packets that ports dropped for want of room"),
    _count("packets_dropped_fault", "packets that faults swallowed, control included"),
    _count("nacks", "data packets that senders learnt were trimmed"),
    _count("evs_retired", "EVs taken out of use as lost (into ASSUMED_BAD)"),
    _count("evs_restored", "EVs back in use (ASSUMED_BAD to GOOD)"),
    _count("evs_skipped", "turns passed on because of congestion (into SKIP)"),
    Definition("plane_imbalance", "", "max/mean - 1 of bytes sent per plane, while no fault removes a whole plane"),
    Definition("recovery_ms_max", "ms", "worst fault: fault to the send time of the last data packet it swallowed"),
    Definition("recovery_rtts_max", "RTT", "the same in base round trips"),
    Definition("stall_ms_max", "ms", "worst fault: largest deficit of placed bytes, as time at the affected flows' usual rate"),
    Definition("stall_rtts_max", "RTT", "the same in base round trips"),
    Definition("cpu_busy", "", "mean share of all cores busy during the window"),
    Definition("host_lag_ms_p99", "ms", "99th percentile, over hosts and intervals, of how late the host loops' timers fired"),
    Definition("bringup_s", "s", "time to build and verify the fabric"),
    Definition("teardown_s", "s", "time to remove it"),
)
