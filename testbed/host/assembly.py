"""From a host's plan to its workloads: each job takes its flows, every other sending flow is a stream of its own."""

from __future__ import annotations

from collections.abc import Mapping

from testbed.host.collectives import AllToAll, Collective, RingAllReduce
from testbed.host.flows import ReceiverFlow, SenderFlow
from testbed.host.lockstep import Lockstep
from testbed.host.memory import Content
from testbed.host.plan import HostPlan, Job, PlanError
from testbed.host.poisson import Poisson
from testbed.host.records import Table
from testbed.host.streams import Stream
from testbed.host.workloads import Workload


def assemble(
    plan: HostPlan,
    senders: Mapping[int, SenderFlow],
    receivers: Mapping[int, ReceiverFlow],
    content: Content,
    steps: Table,
) -> list[Workload]:
    """Every workload of this host; `senders` and `receivers` are its flows' ends by flow. Raises PlanError."""
    found: list[Workload] = []
    taken: set[int] = set()
    for job in plan.jobs:
        sending = [senders[flow] for flow in job.flows if flow in senders]
        receiving = [receivers[flow] for flow in job.flows if flow in receivers]
        taken.update(job.flows)
        if job.kind == "poisson":
            found.append(Poisson(job, sending, receiving, content, str(plan.seed)))
        else:
            found.append(Lockstep(job, _collective(plan, job, sending, receiving, content), sending, receiving, steps))
    found += [Stream(sender, content) for flow, sender in senders.items() if flow not in taken]
    return found


def _collective(
    plan: HostPlan, job: Job, sending: list[SenderFlow], receiving: list[ReceiverFlow], content: Content
) -> Collective:
    rank, ranks = job.hosts.index(plan.host), len(job.hosts)
    if job.kind == "all_to_all":
        order = {host: (place - rank) % ranks for place, host in enumerate(job.hosts)}  # the successor first
        return AllToAll(sorted(sending, key=lambda sender: order[sender.flow.target]), receiving, content)
    if job.kind == "ring_allreduce":
        (sender,), (receiver,) = sending, receiving
        ring = RingAllReduce(sender, f"{plan.seed} {job.index}", rank, ranks)
        receiver.expected = ring.expected
        return ring
    raise PlanError(f"job {job.job}: there is no workload {job.kind!r}")
