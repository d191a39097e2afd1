"""From a host's plan to its workloads: each job takes its flows, every other sending flow is a stream of its own."""

from __future__ import annotations

from collections.abc import Mapping

from testbed.host.flows import ReceiverFlow, SenderFlow
from testbed.host.memory import Content
from testbed.host.plan import HostPlan
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
    if plan.jobs:
        from testbed.host import jobs  # streams do not need them, and a host's size counts

        for job in plan.jobs:
            sending = [senders[flow] for flow in job.flows if flow in senders]
            receiving = [receivers[flow] for flow in job.flows if flow in receivers]
            taken.update(job.flows)
            found.append(jobs.workload(plan, job, sending, receiving, content, steps))
    found += [Stream(sender, content) for flow, sender in senders.items() if flow not in taken]
    return found
