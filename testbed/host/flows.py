"""The two ends of a flow of messages: the sender keeps `depth` of them outstanding, the receiver checks each on arrival.

Message k is one WRITE_WITH_IMM of `message` bytes into slot k mod depth of the receiver's region; its immediate is k
modulo 2**32. Message k + depth is posted when message k has completed. The receiver checks message k when its
immediate comes, before any acknowledgement of that same arrival leaves the host, so no slot changes under the check.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from testbed.host.memory import Content, Region
from testbed.host.nic import Endpoint, QueuePair
from testbed.host.plan import Flow
from testbed.host.recorder import Arrivals
from testbed.host.records import Table

SENDER = 0
RECEIVER = 1
INCOMPLETE = 0
OK = 1
CORRUPT = 2

IMMEDIATE_MASK = 0xFFFFFFFF


class Remote(NamedTuple):
    """Where a sender writes: the receiver's region."""

    rkey: int
    address: int
    length: int


class FlowError(Exception):
    """The endpoint did something its contract excludes; results would be wrong."""


class SenderFlow:
    """Posts messages. Times are absolute ns; nothing is posted before `start`."""

    def __init__(self, flow: Flow, pair: QueuePair, content: Content, endpoint: Endpoint, messages: Table) -> None:
        self.flow = flow
        self.pair = pair
        self.qp = pair.number
        self.failed = False
        self.completed = 0
        self._content = content
        self._post = endpoint.post_write
        self._row = messages.row
        self._remote: Remote | None = None
        self._posted_at: deque[int] = deque()  # of the messages outstanding, oldest first
        self._next = 0
        self._start: int | None = None
        self._stop: int | None = None
        self._stopped = False

    @property
    def remote(self) -> Remote:
        """The receiver's region."""
        if self._remote is None:
            raise FlowError(f"flow {self.flow.flow} is not connected")
        return self._remote

    def connect(self, remote: Remote) -> None:
        """The receiver's region is known. Raises FlowError when it cannot hold what this flow sends."""
        if remote.length < self.flow.message * self.flow.depth:
            raise FlowError(f"flow {self.flow.flow}: the receiver's region of {remote.length} bytes is too short")
        self._remote = remote

    def start(self, t0_ns: int) -> None:
        """Set the clock: the plan's times count from `t0_ns`."""
        self._start = t0_ns + self.flow.start_ns
        self._stop = None if self.flow.stop_ns is None else t0_ns + self.flow.stop_ns

    @property
    def deadline(self) -> int | None:
        """When `on_timer` has something to do: the first post."""
        return self._start if self._next == 0 and not self._stopped else None

    @property
    def drained(self) -> bool:
        """Nothing is outstanding that could still complete, and no more will come once stopped."""
        return self.failed or not self._posted_at

    def on_timer(self, now: int) -> None:
        """Post what may be posted."""
        if self._start is None or now < self._start or self.failed:
            return
        if self._stop is not None and now >= self._stop:
            self._stopped = True
        while not self._stopped and len(self._posted_at) < self.flow.depth:
            self._post_next(now)

    def on_complete(self, wr_id: int, now: int) -> None:
        """Message `wr_id` has completed; the next may go."""
        if wr_id != self.completed:
            raise FlowError(f"flow {self.flow.flow}: message {wr_id} completed, {self.completed} was next")
        self._row(self.flow.flow, wr_id, SENDER, self.flow.message, self._posted_at.popleft(), now, OK)
        self.completed += 1
        self.on_timer(now)

    def stop(self) -> None:
        """Start no new message."""
        self._stopped = True

    def fail(self) -> None:
        """The QP is in error: what is outstanding stays incomplete."""
        self.failed = True
        self._stopped = True

    def finish(self) -> None:
        """Record what never completed."""
        for index, posted in enumerate(self._posted_at):
            self._row(self.flow.flow, self.completed + index, SENDER, self.flow.message, posted, 0, INCOMPLETE)
        self._posted_at.clear()

    def _post_next(self, now: int) -> None:
        number, size = self._next, self.flow.message
        remote = self.remote
        self._post(
            self.qp,
            number,
            self._content.slice(self.flow.flow, number, size),
            remote.address + number % self.flow.depth * size,
            remote.rkey,
            number & IMMEDIATE_MASK,
            now,
        )
        self._next = number + 1
        self._posted_at.append(now)


class ReceiverFlow:
    """Checks messages. `problem` describes the first corrupt one, for the log."""

    def __init__(self, flow: Flow, qp: int, region: Region, content: Content, arrivals: Arrivals, messages: Table) -> None:
        self.flow = flow
        self.qp = qp
        self.checked = 0
        self.corrupt = 0
        self.problem = ""
        self._region = region
        self._content = content
        self._arrivals = arrivals
        self._row = messages.row
        self._remote_psn = 0

    def connect(self, remote_psn: int) -> None:
        """The sender's first PSN is known."""
        self._remote_psn = remote_psn
        self._arrivals.anchor(remote_psn)

    def start(self) -> None:
        """Traffic may begin: what arrived until now was calibration, one packet each, and message 0 follows it."""
        self._arrivals.anchor(self._remote_psn + self._arrivals.packets)

    def on_immediate(self, value: int, now: int) -> None:
        """A message is said to be in memory: check that it is the next one and that every byte is right."""
        number, size = self.checked, self.flow.message
        expected = self._content.slice(self.flow.flow, number, size)
        verdict = OK
        if value != number & IMMEDIATE_MASK:
            verdict = CORRUPT
            self._remark(f"immediate {value} came, {number & IMMEDIATE_MASK} was next")
        elif not self._region.holds(number, expected):
            verdict = CORRUPT
            self._remark(f"message {number} differs from byte {self._region.first_difference(number, expected)} on")
        self._row(self.flow.flow, number, RECEIVER, size, self._arrivals.delivered(), now, verdict)
        self.checked += 1

    def finish(self) -> None:
        """Record the messages that began to arrive and were never delivered."""
        for index, began in enumerate(self._arrivals.under_way()):
            if began:
                self._row(self.flow.flow, self.checked + index, RECEIVER, self.flow.message, began, 0, INCOMPLETE)

    def _remark(self, what: str) -> None:
        self.corrupt += 1
        if not self.problem:
            self.problem = f"flow {self.flow.flow}: {what}"
