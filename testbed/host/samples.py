"""What is measured per interval: bytes, window and round trip of each flow and plane, and how well this process keeps time.

Intervals end on multiples of the interval after the first; one that ends late is as long as it was, its row says when.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from testbed.host.flows import RECEIVER, SENDER
from testbed.host.recorder import Recorder
from testbed.host.records import U32_MAX
from testbed.host.workloads import Workloads


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
        "_endpoint",
        "_interval_ns",
        "_recorder",
        "_sent",
        "_workloads",
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
        self._workloads = workloads
        self._cpu = time.process_time_ns()
        self._sent = {qp: dict.fromkeys(recorder.planes, 0) for qp in workloads.senders}

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
        for qp, sender in self._workloads.senders.items():
            state = sender.pair.requester
            before = self._sent[qp]
            for plane in self._recorder.planes:
                sent = state.sent_bytes.get(plane, 0)
                row(
                    now,
                    sender.flow.flow,
                    plane,
                    SENDER,
                    _u32(sent - before[plane]),
                    _u32(state.window.limit),
                    _u32(state.window.inflight),
                    _u32(state.rtt_ns.get(plane, 0)),
                )
                before[plane] = sent

    def _receivers(self, now: int) -> None:
        row = self._recorder.files.samples.row
        arrivals = self._recorder.arrivals
        for qp, receiver in self._workloads.receivers.items():
            placed = arrivals[qp].placed
            for plane in self._recorder.planes:
                row(now, receiver.flow.flow, plane, RECEIVER, _u32(placed[plane]), 0, 0, 0)
                placed[plane] = 0


def _u32(value: int) -> int:
    return min(max(value, 0), U32_MAX)


def planes_of(planes: Iterable[int]) -> int:
    """How long a list indexed by plane must be."""
    return max(planes, default=-1) + 1
