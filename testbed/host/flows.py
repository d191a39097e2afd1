"""The two ends of one QP of a flow: the sender keeps at most `depth` messages outstanding, the receiver checks each on arrival.

A QP's message k is one WRITE_WITH_IMM into slot k mod depth of its receiver's region; its immediate is k modulo 2**32. Message
k + depth is posted when message k has completed. The receiver checks message k, and its owner takes it, when its
immediate comes, before any acknowledgement of that same arrival leaves the host, so no slot changes under either.
A flow of q QPs is striped by message: what its QP i numbers k is the flow's message k * q + i, in content and in tables.
What is sent and when is the business of the workload that owns the flow (`workloads.py`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from testbed.host.memory import Content, Region
from testbed.host.nic import Endpoint, QueuePair
from testbed.host.plan import Flow
from testbed.host.recorder import Arrivals
from testbed.host.records import RecordFiles, Table

SENDER = 0
RECEIVER = 1
INCOMPLETE = 0
OK = 1
CORRUPT = 2

IMMEDIATE_MASK = 0xFFFFFFFF

Expected = Callable[[int], memoryview]  # the content of the QP's message k


class Stripe(NamedTuple):
    """Which of a flow's QPs this one is, from 0."""

    place: int
    of: int

    def number(self, message: int) -> int:
        """What the flow calls the QP's message `message`."""
        return message * self.of + self.place


WHOLE = Stripe(0, 1)


class Remote(NamedTuple):
    """Where a sender writes: the receiver's region."""

    rkey: int
    address: int
    length: int


class FlowError(Exception):
    """The endpoint did something its contract excludes; results would be wrong."""


class SenderFlow:
    """Posts messages in order; what finds `depth` of them outstanding waits here. Times are absolute ns."""

    def __init__(self, flow: Flow, pair: QueuePair, endpoint: Endpoint, files: RecordFiles, stripe: Stripe = WHOLE) -> None:
        self.flow = flow
        self.stripe = stripe
        self.pair = pair
        self.qp = pair.number
        self.failed = False
        self.completed = 0
        self.completed_bytes = 0
        self._post = endpoint.post_write
        self._row = files.messages.row
        self._posts = files.posts
        self._flush = files.flush_messages
        self._remote: Remote | None = None
        self._posted: deque[tuple[int, int]] = deque()  # (since, size) of the messages outstanding, oldest first
        self._waiting: deque[tuple[int, memoryview]] = deque()
        self._next = 0

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

    @property
    def next_message(self) -> int:
        """What the flow calls the next message given to `send`."""
        return self.stripe.number(self._next + len(self._waiting))

    @property
    def began(self) -> bool:
        """Whether a message has been given to `send`."""
        return bool(self._next or self._waiting)

    @property
    def room(self) -> bool:
        """Whether a message given to `send` now would be posted at once."""
        return not self.failed and not self._waiting and len(self._posted) < self.flow.depth

    @property
    def all_posted(self) -> bool:
        """Nothing waits for room."""
        return not self._waiting

    @property
    def drained(self) -> bool:
        """Nothing waits, and nothing is outstanding that could still complete."""
        return self.failed or not (self._posted or self._waiting)

    def send(self, data: memoryview, now: int) -> None:
        """Post the next message, or keep it until there is room. `data` must not change until it has completed."""
        if self.failed:
            return
        if self.room:
            self._post_next(data, now, now)
        else:
            self._waiting.append((now, data))

    def on_complete(self, wr_id: int, now: int) -> None:
        """Message `wr_id` has completed; one that waits may go."""
        if wr_id != self.completed:
            raise FlowError(f"flow {self.flow.flow}: message {wr_id} completed, {self.completed} was next")
        since, size = self._posted.popleft()
        self._row(self.flow.flow, self.stripe.number(wr_id), SENDER, size, since, now, OK)
        self.completed += 1
        self.completed_bytes += size
        if self._waiting and not self.failed:
            since, data = self._waiting.popleft()
            self._post_next(data, since, now)

    def forget_waiting(self) -> None:
        """Post nothing of what waits for room."""
        self._waiting.clear()

    def fail(self) -> None:
        """The QP is in error: what is outstanding stays incomplete."""
        self.failed = True
        self._waiting.clear()

    def finish(self) -> None:
        """Record what never completed."""
        for index, (since, size) in enumerate(self._posted):
            number = self.stripe.number(self.completed + index)
            self._row(self.flow.flow, number, SENDER, size, since, 0, INCOMPLETE)
        self._posted.clear()

    def _post_next(self, data: memoryview, since: int, now: int) -> None:
        number, remote = self._next, self.remote
        address = remote.address + number % self.flow.depth * self.flow.message
        self._post(self.qp, number, data, address, remote.rkey, number & IMMEDIATE_MASK, now)
        self._next = number + 1
        self._posts.row(self.flow.flow, self.stripe.number(number), len(data), since)
        self._flush()
        self._posted.append((since, len(data)))


class ReceiverFlow:
    """Checks messages against `expected`, until a job says otherwise the content of this flow. `problem`: of the first corrupt
    one, for the log.
    """

    def __init__(
        self,
        flow: Flow,
        qp: int,
        region: Region,
        content: Content,
        arrivals: Arrivals,
        messages: Table,
        stripe: Stripe = WHOLE,
    ) -> None:
        self.flow = flow
        self.stripe = stripe
        self.qp = qp
        self.expected: Expected = lambda number: content.slice(flow.flow, stripe.number(number), flow.message)
        self.checked = 0
        self.corrupt = 0
        self.problem = ""
        self._region = region
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

    def on_immediate(self, value: int, now: int) -> bool:
        """A message is said to be in memory: check that it is the next one and every byte of it; whether all is right."""
        number = self.checked
        expected = self.expected(number)
        verdict = OK
        if value != number & IMMEDIATE_MASK:
            verdict = CORRUPT
            self._remark(f"immediate {value} came, {number & IMMEDIATE_MASK} was next")
        elif not self._region.holds(number, expected):
            verdict = CORRUPT
            what = f"message {self.stripe.number(number)} differs"
            self._remark(f"{what} from byte {self._region.first_difference(number, expected)} on")
        began = self._arrivals.delivered()
        self._row(self.flow.flow, self.stripe.number(number), RECEIVER, len(expected), began, now, verdict)
        self.checked += 1
        return verdict == OK

    def content(self, number: int) -> bytes:
        """A copy of message `number`, whole; for its owner, while the events of its arrival are being handled."""
        return self._region.content(number)

    def finish(self) -> None:
        """Record the messages that began to arrive and were never delivered."""
        for index, began in enumerate(self._arrivals.under_way()):
            if began:
                size = len(self.expected(self.checked + index))
                number = self.stripe.number(self.checked + index)
                self._row(self.flow.flow, number, RECEIVER, size, began, 0, INCOMPLETE)

    def _remark(self, what: str) -> None:
        self.corrupt += 1
        if not self.problem:
            self.problem = f"flow {self.flow.flow}: {what}"
