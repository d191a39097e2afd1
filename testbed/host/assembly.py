"""From a host's plan to its workloads: each job takes its flows, every other sending flow is a stream of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from testbed.host.flows import ReceiverFlow, SenderFlow
from testbed.host.memory import Content
from testbed.host.plan import HostPlan
from testbed.host.records import Table
from testbed.host.streams import Stream
from testbed.host.workloads import Workload


def assemble(
    plan: HostPlan,
    senders: Mapping[int, Sequence[SenderFlow]],
    receivers: Mapping[int, Sequence[ReceiverFlow]],
    content: Content,
    steps: Table,
) -> list[Workload]:
    """Every workload of this host; `senders` and `receivers` are its flows' ends, one per QP, by flow. Raises PlanError."""
    found: list[Workload] = []
    taken: set[int] = set()
    if plan.jobs:
        from testbed.host import jobs  # streams do not need them, and a host's size counts

        for job in plan.jobs:
            sending = [sender for flow in job.flows for sender in senders.get(flow, ())]
            receiving = [receiver for flow in job.flows for receiver in receivers.get(flow, ())]
            taken.update(job.flows)
            found.append(jobs.workload(plan, job, sending, receiving, content, steps))
    found += [Stream(sender, content) for flow, stripes in senders.items() if flow not in taken for sender in stripes]
    return found
