"""What is measured per interval: bytes, window and round trip of each flow and plane, and how well this process keeps time.

A flow of several QPs has one row per plane like any other: bytes and windows are summed (a window that QPs share counts once),
the round trip is the mean of those that have one.

Intervals end on multiples of the interval after the first; one that ends late is as long as it was, its row says when.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TypeVar

from testbed.host.flows import RECEIVER, SENDER, ReceiverFlow, SenderFlow
from testbed.host.recorder import Recorder
from testbed.host.records import U32_MAX
from testbed.host.workloads import Workloads

End = TypeVar("End", SenderFlow, ReceiverFlow)


class Lag:
    """How late timers fired since the last interval. A list, not buckets: an interval holds some hundred timers."""

    __slots__ = ("_late", "add", "worst")

    def __init__(self) -> None:
        self._late: list[int] = []
        self.add = self._late.append
        self.worst = 0  # since `take_worst`

    def take(self) -> tuple[int, int]:
        """(largest, 99th percentile) in ns since the last call; zeros when no timer fired."""
        late = self._late
        if not late:
            return 0, 0
        late.sort()
        largest, p99 = late[-1], late[len(late) * 99 // 100]
        late.clear()
        self.worst = max(self.worst, largest)
        return largest, p99

    def take_worst(self) -> int:
        """The largest since the last call, over all intervals that have ended."""
        worst, self.worst = self.worst, 0
        return worst


class Sampler:
    """Writes the `samples` and `loop` rows. `wakeups` and `packets` are counted by the loop."""

    __slots__ = (
        "_cpu",
        "_interval_ns",
        "_receiving",
        "_recorder",
        "_sending",
        "_sent",
        "deadline",
        "lag",
        "packets",
        "wakeups",
    )

    def __init__(self, interval_ns: int, recorder: Recorder, workloads: Workloads, now: int) -> None:
        self.lag = Lag()
        self.wakeups = 0
        self.packets = 0
        self.deadline = now + interval_ns
        self._interval_ns = interval_ns
        self._recorder = recorder
        self._cpu = time.process_time_ns()
        self._sending = _by_flow(workloads.senders.values())
        self._receiving = _by_flow(workloads.receivers.values())
        self._sent = {flow: dict.fromkeys(recorder.planes, 0) for flow in self._sending}

    def on_timer(self, now: int) -> None:
        """An interval has ended."""
        largest, p99 = self.lag.take()
        cpu = time.process_time_ns()
        self._recorder.files.loop.row(now, _u32(largest), _u32(p99), _u32(cpu - self._cpu), self.wakeups, self.packets)
        self._cpu = cpu
        self.wakeups = self.packets = 0
        self._senders(now)
        self._receivers(now)
        self.deadline += self._interval_ns
        if self.deadline <= now:  # the process stood still for longer than an interval
            self.deadline = now + self._interval_ns

    def _senders(self, now: int) -> None:
        row = self._recorder.files.samples.row
        for flow, senders in self._sending.items():
            states = [sender.pair.requester for sender in senders]
            windows = {id(state.window): state.window for state in states}.values()
            limit, inflight = sum(window.limit for window in windows), sum(window.inflight for window in windows)
            before = self._sent[flow]
            for plane in self._recorder.planes:
                sent = sum(state.sent_bytes.get(plane, 0) for state in states)
                rtts = [rtt for state in states if (rtt := state.rtt_ns.get(plane, 0))]
                rtt_ns = sum(rtts) // len(rtts) if rtts else 0
                row(now, flow, plane, SENDER, _u32(sent - before[plane]), _u32(limit), _u32(inflight), _u32(rtt_ns))
                before[plane] = sent

    def _receivers(self, now: int) -> None:
        row = self._recorder.files.samples.row
        arrivals = self._recorder.arrivals
        for flow, receivers in self._receiving.items():
            placed = [arrivals[receiver.qp].placed for receiver in receivers]
            for plane in self._recorder.planes:
                row(now, flow, plane, RECEIVER, _u32(sum(of_qp[plane] for of_qp in placed)), 0, 0, 0)
                for of_qp in placed:
                    of_qp[plane] = 0


def _by_flow(ends: Iterable[End]) -> dict[int, list[End]]:
    """The QPs' ends of each flow."""
    found: dict[int, list[End]] = {}
    for end in ends:
        found.setdefault(end.flow.flow, []).append(end)
    return found


def _u32(value: int) -> int:
    return min(max(value, 0), U32_MAX)


def planes_of(planes: Iterable[int]) -> int:
    """How long a list indexed by plane must be."""
    return max(planes, default=-1) + 1
