"""All of a host's traffic behind one interface: what the session starts, times, feeds with events and stops.

A workload owns the sending and receiving ends of some flows. The plain one is a stream; workloads whose messages depend on
each other (collectives, steps of a training job) implement the same `Workload`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from testbed.host.flows import ReceiverFlow, SenderFlow


class Workload(Protocol):
    """Something that sends messages. Times are absolute ns."""

    @property
    def senders(self) -> Sequence[SenderFlow]:
        """The flows it sends on."""

    @property
    def receivers(self) -> Sequence[ReceiverFlow]:
        """The flows whose messages it wants to see; one that only sends leaves them out."""

    @property
    def deadline(self) -> int | None:
        """When `on_timer` next has something to do; None while only events move it."""

    @property
    def drained(self) -> bool:
        """Whether nothing is under way; asked once stopped."""

    def start(self, t0_ns: int) -> None:
        """The run's clock is set."""

    def on_timer(self, now: int) -> None:
        """`deadline` has come."""

    def on_sent(self, sender: SenderFlow, now: int) -> None:
        """A message of `sender` has completed."""

    def on_received(self, receiver: ReceiverFlow, number: int, right: bool, now: int) -> None:
        """Message `number` of `receiver` is in its slot and has been checked; `right` says with what result."""

    def stop(self) -> None:
        """Start no new message."""


class Workloads:
    """Everything this host sends and receives; routes the endpoint's events to it by QP."""

    def __init__(self, active: Iterable[Workload], receivers: Iterable[ReceiverFlow]) -> None:
        self.active: tuple[Workload, ...] = tuple(active)
        self.senders = {sender.qp: sender for workload in self.active for sender in workload.senders}
        self.receivers = {receiver.qp: receiver for receiver in receivers}
        self.qp_errors = 0
        self._sending = {sender.qp: workload for workload in self.active for sender in workload.senders}
        self._receiving = {receiver.qp: workload for workload in self.active for receiver in workload.receivers}
        self._deadline: int | None = None
        self._stopped = False

    @property
    def deadline(self) -> int | None:
        """The earliest deadline, kept up to date by whatever may move it."""
        return self._deadline

    @property
    def drained(self) -> bool:
        """Stopped, and every send complete or failed."""
        return self._stopped and all(workload.drained for workload in self.active)

    @property
    def messages(self) -> int:
        """Messages completed by this host's senders."""
        return sum(sender.completed for sender in self.senders.values())

    @property
    def acked_bytes(self) -> int:
        """Bytes of the messages completed by this host's senders."""
        return sum(sender.completed_bytes for sender in self.senders.values())

    def start(self, t0_ns: int) -> None:
        """Set everyone's clock."""
        for receiver in self.receivers.values():
            receiver.start()
        for workload in self.active:
            workload.start(t0_ns)
        self._update()

    def on_timer(self, now: int) -> None:
        """Wake the workloads whose time has come."""
        for workload in self.active:
            deadline = workload.deadline
            if deadline is not None and deadline <= now:
                workload.on_timer(now)
        self._update()

    def on_complete(self, qp: int, wr_id: int, now: int) -> None:
        """A message sent on `qp` has completed."""
        sender = self.senders[qp]
        sender.on_complete(wr_id, now)
        self._sending[qp].on_sent(sender, now)
        self._update()

    def on_immediate(self, qp: int, value: int, now: int) -> ReceiverFlow:
        """A message has arrived on `qp`."""
        receiver = self.receivers[qp]
        number = receiver.checked
        right = receiver.on_immediate(value, now)
        workload = self._receiving.get(qp)
        if workload is not None:
            workload.on_received(receiver, number, right, now)
            self._update()
        return receiver

    def stop(self) -> None:
        """Start no new message."""
        self._stopped = True
        for workload in self.active:
            workload.stop()
        self._update()

    def finish(self) -> None:
        """Record what is incomplete."""
        for sender in self.senders.values():
            sender.finish()
        for receiver in self.receivers.values():
            receiver.finish()

    def failed(self, qp: int) -> None:
        """A QP is in error; its flow ends here, the others go on."""
        self.qp_errors += 1
        sender = self.senders.get(qp)
        if sender is not None:
            sender.fail()
            self._update()

    def counters(self) -> dict[str, int]:
        """Messages by outcome and QPs in error."""
        receivers = self.receivers.values()
        return {
            "messages_completed": self.messages,
            "messages_checked": sum(receiver.checked for receiver in receivers),
            "messages_corrupt": sum(receiver.corrupt for receiver in receivers),
            "qp_errors": self.qp_errors,
        }

    def _update(self) -> None:
        deadlines = [deadline for workload in self.active if (deadline := workload.deadline) is not None]
        self._deadline = min(deadlines, default=None)
