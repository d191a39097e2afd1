"""Jobs whose messages depend on each other or on a clock: what they send per step, their ideal step, their bus bandwidth.

A collective's ideal counts its latency steps: a ring all-reduce of S bytes over n ranks takes 2(n-1)(delay + S/(n x rate)), an
all-to-all of parts of m bytes takes delay + (n-1) m / rate. `delay` is the slowest plane's, since a message is complete when
its last packet is; the shapers add nothing to it (`timing.round_trip_ns`). Bus bandwidth as the NCCL tests define it
(PERFORMANCE.md there): an all-reduce counts S x 2(n-1)/n bytes, an all-to-all n m x (n-1)/n = (n-1) m.
"""

from __future__ import annotations

from collections.abc import Sequence

from testbed.model import framing
from testbed.model.flows import Flow
from testbed.model.scenario import Scenario, WorkloadKind, WorkloadSpec

LOCKSTEP = (WorkloadKind.ALL_TO_ALL, WorkloadKind.RING_ALLREDUCE, WorkloadKind.TRAINING)
NS_PER_S = 10**9


def collective(spec: WorkloadSpec) -> WorkloadKind:
    """The collective of a job in lock step: its kind, or what it trains with."""
    return spec.collective if spec.kind is WorkloadKind.TRAINING and spec.collective is not None else spec.kind


def messages_per_step(spec: WorkloadSpec) -> int:
    """Messages that one flow carries in one step."""
    return 2 * (len(spec.hosts) - 1) if collective(spec) is WorkloadKind.RING_ALLREDUCE else 1


def collective_ns(spec: WorkloadSpec, flow_rate_bps: float, delay_ns: int) -> float:
    """The ideal time of one collective when each of its flows gets `flow_rate_bps` of payload; infinite for none.

    A ring's flow is all that its rank sends, an all-to-all's one of its n-1.
    """
    if flow_rate_bps <= 0:
        return float("inf")
    count = messages_per_step(spec)
    size = spec.message / len(spec.hosts) if collective(spec) is WorkloadKind.RING_ALLREDUCE else spec.message
    return count * (delay_ns + size * 8 * NS_PER_S / flow_rate_bps)


def bus_bytes(spec: WorkloadSpec) -> float:
    """What one collective counts for in bus bandwidth, per rank."""
    ranks = len(spec.hosts)
    if collective(spec) is WorkloadKind.RING_ALLREDUCE:
        return spec.message * 2 * (ranks - 1) / ranks
    return float(spec.message * (ranks - 1))


def paced(scenario: Scenario, flows: Sequence[Flow], rates: Sequence[float]) -> list[float]:
    """Mean rates in bit/s of flows that could have `rates` for themselves: a job in lock step also waits and computes.

    Every flow of such a job goes at the pace of the slowest.
    """
    slowest: dict[int, float] = {}
    for flow, rate in zip(flows, rates, strict=True):
        slowest[flow.workload] = min(rate, slowest.get(flow.workload, rate))
    delay_ns = max(scenario.links.delay_ns)
    found = []
    for flow, rate in zip(flows, rates, strict=True):
        spec = scenario.workload[flow.workload]
        if spec.kind in LOCKSTEP:
            step_ns = spec.compute_ns + collective_ns(spec, slowest[flow.workload], delay_ns)
            found.append(messages_per_step(spec) * flow.message * 8 * NS_PER_S / step_ns)
        else:
            found.append(rate)
    return found


def offered_bps(scenario: Scenario, spec: WorkloadSpec) -> float:
    """Payload that each flow of a poisson job offers on average: its share of its host's `load`."""
    links = scenario.links
    ceiling = framing.payload_ceiling(scenario.transport.payload, links.overhead_bytes)
    return spec.load * ceiling * links.rate_bps * scenario.topology.planes / (len(spec.hosts) - 1)


def offers(scenario: Scenario, flows: Sequence[Flow]) -> list[float | None]:
    """What each flow has to send at most, in payload bit/s; None for one that takes what it gets."""
    specs = [scenario.workload[flow.workload] for flow in flows]
    return [offered_bps(scenario, spec) if spec.kind is WorkloadKind.POISSON else None for spec in specs]
