"""Jobs whose messages depend on each other or on a clock: what they send per step, their ideal step, their bus bandwidth.

A collective's ideal counts its latency steps: a ring all-reduce of S bytes over n ranks takes 2(n-1)(delay + S/(n x rate)), an
all-to-all of parts of m bytes takes delay + (n-1) m / rate. `delay` is the slowest plane's, since a message is complete when
its last packet is. The shapers add nothing to it; what is sent through idle ports is ahead of the line rate by their buckets
(`timing.head_start_ns`), once in each latency step. Without it the ideal would be none: eight frames per port and message
beat it by a tenth (docs/scenarios.md, "Collectives"). Bus bandwidth as the NCCL tests define it
(PERFORMANCE.md there): an all-reduce counts S x 2(n-1)/n bytes, an all-to-all n m x (n-1)/n = (n-1) m.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from testbed.model import fluid, framing, timing
from testbed.model.flows import Flow, message_bytes
from testbed.model.flows import flows as every_flow
from testbed.model.fluid import Mode
from testbed.model.scenario import LinkSpec, Scenario, WorkloadKind, WorkloadSpec
from testbed.model.topology import Topology

LOCKSTEP = (WorkloadKind.ALL_TO_ALL, WorkloadKind.RING_ALLREDUCE, WorkloadKind.TRAINING)
NS_PER_S = 10**9


def collective(spec: WorkloadSpec) -> WorkloadKind:
    """The collective of a job in lock step: its kind, or what it trains with."""
    return spec.collective if spec.kind is WorkloadKind.TRAINING and spec.collective is not None else spec.kind


def rounds(spec: WorkloadSpec) -> int:
    """How often in one step a rank waits for what its peers have sent: the latency steps."""
    return 2 * (len(spec.hosts) - 1) if collective(spec) is WorkloadKind.RING_ALLREDUCE else 1


def messages_per_step(spec: WorkloadSpec, qps: int) -> int:
    """Messages that one flow carries in one step: one on each of its `qps` QPs in each round."""
    return rounds(spec) * qps


def collective_ns(spec: WorkloadSpec, flow_rate_bps: float, links: LinkSpec) -> float:
    """The ideal time of one collective when each of its flows gets `flow_rate_bps` of payload; infinite for none.

    A ring's flow is all that its rank sends, an all-to-all's one of its n-1.
    """
    if flow_rate_bps <= 0:
        return float("inf")
    count = rounds(spec)
    size = spec.message / len(spec.hosts) if collective(spec) is WorkloadKind.RING_ALLREDUCE else spec.message
    sending_ns = max(0.0, size * 8 * NS_PER_S / flow_rate_bps - timing.head_start_ns(links))
    return count * (max(links.delay_ns) + sending_ns)


def bus_bytes(spec: WorkloadSpec) -> float:
    """What one collective counts for in bus bandwidth, per rank."""
    ranks = len(spec.hosts)
    if collective(spec) is WorkloadKind.RING_ALLREDUCE:
        return spec.message * 2 * (ranks - 1) / ranks
    return float(spec.message * (ranks - 1))


def ideal_rates(
    scenario: Scenario,
    topology: Topology,
    flows: Sequence[Flow],
    dead_links: Collection[str] = (),
    *,
    mode: Mode = "free",
    shares: Mapping[str, float] | None = None,
    allowed: Sequence[Collection[int] | None] | None = None,
) -> tuple[float, ...]:
    """The ideal mean rate of each flow in payload bit/s while `flows` are active: `fluid.ideal_rates`, at the pace of its job.

    A poisson flow takes no more than it offers. A job in lock step could have its fluid rates, but also waits for latency and
    computes; all of its flows go at the pace of the slowest.
    """
    rates = fluid.ideal_rates(
        topology,
        scenario.links,
        [(flow.source, flow.target) for flow in flows],
        dead_links,
        payload=scenario.transport.payload,
        header_bytes=framing.HEADER_BYTES,
        mode=mode,
        shares=shares,
        allowed=allowed,
        offers=_offers(scenario, flows),
    )
    slowest: dict[int, float] = {}
    for flow, rate in zip(flows, rates, strict=True):
        slowest[flow.workload] = min(rate, slowest.get(flow.workload, rate))
    pace = {index: _pace(scenario, scenario.workload[index], rate) for index, rate in slowest.items()}
    found = []
    for flow, rate in zip(flows, rates, strict=True):
        paced = pace[flow.workload]
        found.append(rate if paced is None else paced)
    return tuple(found)


def _pace(scenario: Scenario, spec: WorkloadSpec, flow_rate_bps: float) -> float | None:
    """The mean rate of each flow of a job in lock step; None for another job's."""
    if spec.kind not in LOCKSTEP or scenario.transport.kind.is_kernels:  # iperf3's flows stream, whatever the pattern
        return None
    step_ns = spec.compute_ns + collective_ns(spec, flow_rate_bps, scenario.links)
    qps = scenario.transport.qps
    return messages_per_step(spec, qps) * message_bytes(spec, qps) * 8 * NS_PER_S / step_ns


def alone_ns(scenario: Scenario, topology: Topology, index: int) -> float:
    """The ideal time of one collective of job `index` with the whole fabric, without faults, to itself."""
    mine = [flow for flow in every_flow(scenario, topology) if flow.workload == index]
    rates = fluid.ideal_rates(
        topology,
        scenario.links,
        [(flow.source, flow.target) for flow in mine],
        (),
        payload=scenario.transport.payload,
        header_bytes=framing.HEADER_BYTES,
    )
    return collective_ns(scenario.workload[index], min(rates), scenario.links)


def offered_bps(scenario: Scenario, spec: WorkloadSpec) -> float:
    """Payload that each flow of a poisson job offers on average: its share of its host's `load`."""
    links = scenario.links
    ceiling = framing.payload_ceiling(scenario.transport.payload, links.overhead_bytes)
    return spec.load * ceiling * links.rate_bps * scenario.topology.planes / (len(spec.hosts) - 1)


def _offers(scenario: Scenario, flows: Sequence[Flow]) -> list[float | None]:
    """What each flow has to send at most, in payload bit/s; None for one that takes what it gets."""
    specs = [scenario.workload[flow.workload] for flow in flows]
    return [offered_bps(scenario, spec) if spec.kind is WorkloadKind.POISSON else None for spec in specs]
