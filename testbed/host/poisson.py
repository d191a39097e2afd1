"""Messages that arrive at random, whatever the network does: exponential gaps, sizes from a list, per flow.

An open loop: a message that finds `depth` outstanding on its QP waits, and its time counts from its arrival. The QPs of a flow
take turns. Both ends draw the sizes from the same seed, so that the receiver knows what to expect.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from testbed.host.flows import ReceiverFlow, SenderFlow
from testbed.host.memory import Content
from testbed.host.plan import Job

NS_PER_S = 10**9


class Sizes:
    """The size of each message of one flow, drawn as they are asked for."""

    __slots__ = ("_choices", "_drawn", "_rng")

    def __init__(self, seed: str, flow: int, choices: Sequence[int]) -> None:
        self._rng = random.Random(f"mrc testbed sizes {seed} {flow}")
        self._choices = choices
        self._drawn: list[int] = []

    def of(self, number: int) -> int:
        """Bytes of message `number`."""
        while len(self._drawn) <= number:
            self._drawn.append(self._rng.choice(self._choices))
        return self._drawn[number]


class Poisson:
    """All flows of one job that start at this host, each its own Poisson process of `rate_per_s`."""

    def __init__(
        self, job: Job, senders: Sequence[SenderFlow], receivers: Sequence[ReceiverFlow], content: Content, seed: str
    ) -> None:
        self.senders = tuple(senders)
        self.receivers: tuple[ReceiverFlow, ...] = ()
        self._job = job
        self._content = content
        self._stripes: dict[int, list[SenderFlow]] = {}  # by flow, the one whose turn it is first
        for sender in senders:
            self._stripes.setdefault(sender.flow.flow, []).append(sender)
        mine = {*self._stripes, *(receiver.flow.flow for receiver in receivers)}
        self._sizes = {flow: Sizes(seed, flow, job.sizes) for flow in mine}
        self._gaps = {flow: random.Random(f"mrc testbed gaps {seed} {flow}") for flow in self._stripes}
        self._next: dict[int, int] = {}  # arrival of the next message of each flow
        self._stop: int | None = None
        for receiver in receivers:
            self._tell(receiver)

    @property
    def deadline(self) -> int | None:
        """The next arrival."""
        return min(self._next.values(), default=None)

    @property
    def drained(self) -> bool:
        """What has arrived by the stop is sent all the same: its time would be missing otherwise."""
        return all(sender.drained for sender in self.senders)

    def start(self, t0_ns: int) -> None:
        """Set the clock: the plan's times count from `t0_ns`."""
        begin = t0_ns + self._job.start_ns
        self._stop = None if self._job.stop_ns is None else t0_ns + self._job.stop_ns
        self._next = {flow: begin + self._gap(flow) for flow in self._stripes}

    def on_timer(self, now: int) -> None:
        """Send what has arrived."""
        for flow, arrival in list(self._next.items()):
            stripes, due = self._stripes[flow], arrival
            while due <= now and (self._stop is None or due < self._stop):
                sender = stripes.pop(0)
                stripes.append(sender)
                number = sender.next_message
                sender.send(self._content.slice(flow, number, self._sizes[flow].of(number)), now)
                due += self._gap(flow)
            self._next[flow] = due
        if self._stop is not None and now >= self._stop:
            self._next.clear()

    def on_sent(self, sender: SenderFlow, now: int) -> None:
        """Completions move nothing here: the sender posts what waits by itself."""

    def on_received(self, receiver: ReceiverFlow, number: int, right: bool, now: int) -> None:
        """Nothing depends on what arrives."""

    def stop(self) -> None:
        """No further arrivals."""
        self._next.clear()

    def _gap(self, flow: int) -> int:
        return max(1, round(self._gaps[flow].expovariate(self._job.rate_per_s) * NS_PER_S))

    def _tell(self, receiver: ReceiverFlow) -> None:
        flow, stripe = receiver.flow.flow, receiver.stripe

        def expected(number: int) -> memoryview:
            message = stripe.number(number)
            return self._content.slice(flow, message, self._sizes[flow].of(message))

        receiver.expected = expected
