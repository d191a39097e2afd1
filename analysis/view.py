"""A run made ready for questions: window, flows, confirmed faults, ideal, coverage and packet arrays, computed once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from analysis.arrays import Bools, Ints, ints
from analysis.arrivals import Arrivals, arrivals, kernels_paths
from analysis.confirmed import Fault, confirmed
from analysis.coverage import Coverage, coverage
from analysis.ideal import Ideal, ideal, tied_to
from analysis.packets import Packets, packets
from analysis.results import Run
from analysis.steps import over
from testbed.model import timing
from testbed.model.flows import Flow, flows
from testbed.model.framing import charged_bytes
from testbed.model.topology import Topology, build, host_name


@dataclass(frozen=True, slots=True)
class View:
    """What metrics and figures work from. Flow indices count `flows` in order; all times are absolute ns."""

    run: Run
    topology: Topology
    flows: tuple[Flow, ...]
    t0_ns: int
    start_ns: int  # of the measuring window
    end_ns: int
    rtt_base_ns: int
    frame_bytes: int  # a full data frame as the shapers charge it
    faults: tuple[Fault, ...]
    ideal: Ideal
    ideal_equal: Ideal
    ideal_transport: Ideal | None  # None: its path rule leaves no path out
    coverage: Coverage
    packets: Packets
    arrivals: Arrivals

    @property
    def in_window(self) -> Bools:
        """Packets sent in the window."""
        return (self.packets.sent_ns >= self.start_ns) & (self.packets.sent_ns < self.end_ns)

    def sender(self, flow: int) -> str:
        return host_name(self.flows[flow].source)

    def receiver(self, flow: int) -> str:
        return host_name(self.flows[flow].target)

    def label(self, flow: int) -> str:
        return f"{self.sender(flow)} \u2192 {self.receiver(flow)}"

    def seconds(self, times_ns: Ints) -> list[float]:
        """Seconds since t = 0."""
        return [float(value) for value in (times_ns - self.t0_ns) / 1e9]

    def spans(self, flow: int, start_ns: int, end_ns: int) -> Ints:
        """When the flow's receiver was recording, within [start, end)."""
        return self.coverage.clipped(self.receiver(flow), start_ns, end_ns)

    def receivers_covered(self, flow: Ints, times_ns: Ints) -> Bools:
        """For packets of flow index `flow` at `times_ns`: whether their receiver was recording then."""
        inside = np.zeros(flow.shape, np.bool_)
        for at in range(len(self.flows)):
            mine = flow == at
            inside[mine] = self.coverage.contains(self.receiver(at), times_ns[mine])
        return inside


def view(run: Run) -> View:
    """Join a run with its model. A run without a start time (nothing was ever measured) gets an empty window at zero."""
    scenario = run.scenario
    topology = build(scenario.topology)
    every = flows(scenario, topology)
    t0 = int(run.manifest.get("t0_ns") or _earliest(run))
    measure = scenario.measure
    window = run.manifest.get("window_ns") or [t0 + measure.warmup_ns, t0 + measure.duration_ns]
    start, end = int(window[0]), int(window[1])
    happened = confirmed(run, topology, t0)
    ended = over(run, scenario)
    sent = packets(run, topology, every)
    if scenario.transport.kind.is_kernels:
        sent = replace(sent, paths=kernels_paths(run, topology, every))
    done = _done(run, every, end)
    tied = tied_to(scenario, topology, every, [{p.ev for p in sent.paths if p.flow == at} for at in range(len(every))])
    return View(
        run=run,
        topology=topology,
        flows=tuple(every),
        t0_ns=t0,
        start_ns=start,
        end_ns=end,
        rtt_base_ns=int(run.manifest.get("rtt_base_ns") or timing.rtt_base_ns(scenario)),
        frame_bytes=charged_bytes(scenario.transport.payload, scenario.links.overhead_bytes),
        faults=happened,
        ideal=ideal(scenario, topology, every, happened, t0, end, "free", ended, done_ns=done),
        ideal_equal=ideal(scenario, topology, every, happened, t0, end, "equal_planes", ended, done_ns=done),
        ideal_transport=ideal(scenario, topology, every, happened, t0, end, "free", ended, tied, done) if tied else None,
        coverage=coverage(run, topology.hosts),
        packets=sent,
        arrivals=arrivals(run, sent, every),
    )


def _done(run: Run, every: Sequence[Flow], end_ns: int) -> list[int]:
    """When each flow's last message was complete; `end_ns` where one never was. Sender's rows, by flow id."""
    table = run.messages
    flow, completed = ints(table, "flow"), ints(table, "complete_ns")
    found = []
    for one in every:
        mine = completed[flow == one.id]
        found.append(end_ns if np.any(mine <= 0) else int(mine.max(initial=0)))
    return found


def _earliest(run: Run) -> int:
    """The first recorded moment: the best stand-in for t = 0 where the manifest was lost."""
    moments = [ints(frame, column) for frame, column in ((run.packets, "sent_ns"), (run.samples, "t_ns"), (run.cpu, "t_ns"))]
    return min((int(values.min()) for values in moments if len(values)), default=0)
