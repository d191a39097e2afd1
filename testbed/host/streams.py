"""The plain workload: one QP of a flow keeps `depth` messages outstanding from its start to its stop."""

from __future__ import annotations

from testbed.host.flows import ReceiverFlow, SenderFlow
from testbed.host.memory import Content


class Stream:
    """Streams, permutations and incasts are made of these, one per sending QP: none waits for another of its flow."""

    def __init__(self, sender: SenderFlow, content: Content) -> None:
        self.senders = (sender,)
        self.receivers: tuple[ReceiverFlow, ...] = ()
        self._sender = sender
        self._content = content
        self._start: int | None = None
        self._stop: int | None = None
        self._stopped = False

    @property
    def deadline(self) -> int | None:
        """The first post; afterwards completions move it."""
        return None if self._sender.began or self._sender.failed or self._stopped else self._start

    @property
    def drained(self) -> bool:
        """Nothing is outstanding."""
        return self._sender.drained

    def start(self, t0_ns: int) -> None:
        """Set the clock: the plan's times count from `t0_ns`."""
        flow = self._sender.flow
        self._start = t0_ns + flow.start_ns
        self._stop = None if flow.stop_ns is None else t0_ns + flow.stop_ns

    def on_timer(self, now: int) -> None:
        """Post what may be posted."""
        sender, flow = self._sender, self._sender.flow
        if self._start is None or now < self._start:
            return
        if self._stop is not None and now >= self._stop:
            self._stopped = True
        while not self._stopped and sender.room:
            sender.send(self._content.slice(flow.flow, sender.next_message, flow.message), now)

    def on_sent(self, sender: SenderFlow, now: int) -> None:
        """A message has completed: the next may go."""
        del sender
        self.on_timer(now)

    def on_received(self, receiver: ReceiverFlow, number: int, right: bool, now: int) -> None:
        """A stream receives nothing."""

    def stop(self) -> None:
        """Start no new message."""
        self._stopped = True
