"""One rank's part in a collective: what it sends when, what it makes of what arrives, and when it is done.

A collective is run again and again, once per step of its job. Messages of the next step may arrive before this rank is there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Protocol

from testbed.host.flows import ReceiverFlow, SenderFlow
from testbed.host.lanes import Inputs, Pattern, add
from testbed.host.memory import Content


class Collective(Protocol):
    """Times are absolute ns."""

    def begin(self, step: int, now: int) -> None:
        """This rank enters step `step`; the one before is done."""

    def on_received(self, receiver: ReceiverFlow, number: int, right: bool, now: int) -> None:
        """Message `number` of `receiver` is in its slot."""

    @property
    def done(self) -> bool:
        """Whether everything of this step has arrived and everything has been posted."""

    @property
    def right(self) -> bool:
        """Once done: whether the result is bit for bit what it must be."""


class Numbers:
    """What one rank puts into a reduction, and what must come out: of its predecessor's sums, and of all ranks'."""

    __slots__ = ("own", "partial", "total")

    def __init__(self, seed: str, rank: int, ranks: int, chunk: int) -> None:
        """`chunk`: the longest slice that is asked for, in bytes."""
        inputs = Inputs(seed, ranks)
        sums = inputs.sums((rank - 1) % ranks, ranks)  # what the predecessor sends: its own, with its predecessor's, ...
        self.partial = [Pattern(period, chunk) for period in sums[:-1]]
        self.total = Pattern(sums[-1], chunk)
        self.own = Pattern(inputs.period(rank), chunk)


class RingAllReduce:
    """Reduce-scatter and all-gather on a ring (Patarasuk and Yuan 2009; what NCCL calls Ring).

    The buffer is cut into one chunk per rank. Message m of a step, m < n - 1, carries chunk (r - m) of rank r as summed up so
    far; the receiver adds its own and passes it on. Then n - 1 messages carry finished chunks round. All of n ranks send to
    their successor only. A chunk is what the flows call a message: a whole number of lanes.
    """

    def __init__(self, sender: SenderFlow, numbers: Numbers, rank: int, ranks: int) -> None:
        self._sender = sender
        self._rank = rank
        self._ranks = ranks
        self._chunk = sender.flow.message
        self._first = sender.stripe.place * ranks * self._chunk  # of the whole buffer, this ring's part from this byte on
        self._partial, self._total, self._own = numbers.partial, numbers.total, numbers.own
        self._early: deque[tuple[bytes, bool]] = deque()  # of a step that this rank has not entered
        self._result: list[bytes | None] = [None] * ranks
        self._step = -1
        self._arrived = self.messages
        self._all_right = True

    @property
    def messages(self) -> int:
        """Messages of one step on each flow."""
        return 2 * (self._ranks - 1)

    def expected(self, number: int) -> memoryview:
        """What message `number` of the receiving flow must hold."""
        step, message = divmod(number, self.messages)
        if message < self._ranks - 1:
            at = self._place(self._rank - 1 - message)
            return self._partial[message].slice(step, at, self._chunk)
        return self._total.slice(step, self._place(self._rank - (message - self._ranks + 1)), self._chunk)

    def begin(self, step: int, now: int) -> None:
        self._step = step
        self._arrived = 0
        self._all_right = True
        self._result = [None] * self._ranks
        self._sender.send(self._own.slice(step, self._place(self._rank), self._chunk), now)
        while self._early and self._arrived < self.messages:
            data, right = self._early.popleft()
            self._take(data, right, now)

    def on_received(self, receiver: ReceiverFlow, number: int, right: bool, now: int) -> None:
        self.take(receiver.content(number), right, now)

    def take(self, data: bytes, right: bool, now: int) -> None:
        """The next message, as it came."""
        if self._arrived == self.messages:  # of the next step
            self._early.append((data, right))
        else:
            self._take(data, right, now)

    @property
    def done(self) -> bool:
        return self._arrived == self.messages and self._sender.all_posted

    @property
    def right(self) -> bool:
        """Every chunk of the result equals the sum of what all ranks put in."""
        return self._all_right and all(
            self._result[chunk] == bytes(self._total.slice(self._step, self._place(chunk), self._chunk))
            for chunk in range(self._ranks)
        )

    def _take(self, data: bytes, right: bool, now: int) -> None:
        message, ranks = self._arrived, self._ranks
        self._all_right &= right
        if message < ranks - 1:
            chunk = (self._rank - 1 - message) % ranks
            data = add(data, self._own.slice(self._step, self._place(chunk), self._chunk))
            if message == ranks - 2:
                self._result[chunk] = data
        else:
            self._result[(self._rank - (message - ranks + 1)) % ranks] = data
        self._arrived = message + 1
        if self._arrived < self.messages:
            self._sender.send(memoryview(data), now)

    def _place(self, chunk: int) -> int:
        return self._first + chunk % self._ranks * self._chunk


class Rings:
    """One ring whose chunks are cut over the QPs of a connection (as NCCL does with NCCL_IB_SPLIT_DATA_ON_QPS).

    Each QP carries its part of the buffer. What a rank sends next waits for the parts of all: were each QP's ring to go its own
    way, some would transfer while others wait out their latency, which no ring of one QP can, whatever the transport.
    """

    def __init__(self, rings: Sequence[RingAllReduce]) -> None:
        """`rings` by stripe."""
        self._rings = rings
        self._parts: list[deque[tuple[bytes, bool]]] = [deque() for _ in rings]

    def begin(self, step: int, now: int) -> None:
        for ring in self._rings:
            ring.begin(step, now)

    def on_received(self, receiver: ReceiverFlow, number: int, right: bool, now: int) -> None:
        self._parts[receiver.stripe.place].append((receiver.content(number), right))
        while all(self._parts):
            for ring, parts in zip(self._rings, self._parts, strict=True):
                ring.take(*parts.popleft(), now)

    @property
    def done(self) -> bool:
        return all(ring.done for ring in self._rings)

    @property
    def right(self) -> bool:
        return all(ring.right for ring in self._rings)


class AllToAll:
    """Every rank sends a part to every other, all of them at once, its successor's first. Parts are content like a stream's.

    With several QPs each part is cut into one message for each of them.

    One peer after the other would need less room in the fabric as long as all ranks keep step; as soon as two of them send to
    the same third its ports get twice what they can carry. All at once, every port has its rate on average at any skew.
    """

    def __init__(self, senders: Sequence[SenderFlow], receivers: Sequence[ReceiverFlow], content: Content) -> None:
        """`senders` in the order in which their parts are posted."""
        self._senders = senders
        self._receivers = receivers
        self._content = content
        self._step = -1
        self._arrived: dict[int, int] = {}  # parts of each step that is not over
        self._wrong: set[int] = set()  # steps with a wrong part

    def begin(self, step: int, now: int) -> None:
        self._arrived.pop(self._step, None)
        self._wrong.discard(self._step)
        self._step = step
        for sender in self._senders:
            sender.send(self._content.slice(sender.flow.flow, sender.stripe.number(step), sender.flow.message), now)

    def on_received(self, receiver: ReceiverFlow, number: int, right: bool, now: int) -> None:
        del receiver, now
        self._arrived[number] = self._arrived.get(number, 0) + 1
        if not right:
            self._wrong.add(number)

    @property
    def done(self) -> bool:
        arrived = self._arrived.get(self._step, 0) == len(self._receivers)
        return arrived and all(sender.all_posted for sender in self._senders)

    @property
    def right(self) -> bool:
        return self._step not in self._wrong
