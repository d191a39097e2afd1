"""Workloads whose messages depend on each other, one per job of the plan. Loaded only by hosts that have a job."""

from __future__ import annotations

from testbed.host.collectives import AllToAll, Collective, Numbers, RingAllReduce, Rings
from testbed.host.flows import ReceiverFlow, SenderFlow
from testbed.host.lockstep import Lockstep
from testbed.host.memory import Content
from testbed.host.plan import HostPlan, Job, PlanError
from testbed.host.poisson import Poisson
from testbed.host.records import Table
from testbed.host.workloads import Workload


def workload(
    plan: HostPlan, job: Job, sending: list[SenderFlow], receiving: list[ReceiverFlow], content: Content, steps: Table
) -> Workload:
    """This host's part of `job`, over the ends of its flows. Raises PlanError."""
    if job.kind == "poisson":
        return Poisson(job, sending, receiving, content, str(plan.seed))
    return Lockstep(job, _collective(plan, job, sending, receiving, content), sending, receiving, steps)


def _collective(
    plan: HostPlan, job: Job, sending: list[SenderFlow], receiving: list[ReceiverFlow], content: Content
) -> Collective:
    rank, ranks = job.hosts.index(plan.host), len(job.hosts)
    if job.kind == "all_to_all":
        order = {host: (place - rank) % ranks for place, host in enumerate(job.hosts)}  # the successor first
        return AllToAll(sorted(sending, key=lambda sender: order[sender.flow.target]), receiving, content)
    if job.kind == "ring_allreduce":
        numbers = Numbers(f"{plan.seed} {job.index}", rank, ranks, sending[0].flow.message)
        rings = [RingAllReduce(sender, numbers, rank, ranks) for sender in sending]
        for ring, receiver in zip(rings, receiving, strict=True):
            receiver.expected = ring.expected
        return rings[0] if len(rings) == 1 else Rings(rings)
    raise PlanError(f"job {job.job}: there is no workload {job.kind!r}")
