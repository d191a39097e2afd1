"""All of a host's traffic behind one interface: what the session starts, times, feeds with events and stops.

A workload owns some QPs. The plain one here is a flow; workloads whose messages depend on each other (collectives,
steps of a training job) implement the same `Workload` and register the QPs they own.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from testbed.host.flows import ReceiverFlow, SenderFlow


class Workload(Protocol):
    """Something that posts messages. Times are absolute ns."""

    @property
    def deadline(self) -> int | None:
        """When `on_timer` next has something to do; None while only events move it."""

    @property
    def drained(self) -> bool:
        """Whether nothing posted is still under way."""

    def start(self, t0_ns: int) -> None:
        """The run's clock is set."""

    def on_timer(self, now: int) -> None:
        """`deadline` has come."""

    def stop(self) -> None:
        """Start no new message."""

    def finish(self) -> None:
        """Record what is incomplete; called once, last."""


class Workloads:
    """Everything this host sends and receives; routes the endpoint's events to it by QP."""

    def __init__(self, senders: Iterable[SenderFlow], receivers: Iterable[ReceiverFlow]) -> None:
        self.senders = {sender.qp: sender for sender in senders}
        self.receivers = {receiver.qp: receiver for receiver in receivers}
        self.qp_errors = 0
        self._active: tuple[Workload, ...] = tuple(self.senders.values())
        self._deadline: int | None = None
        self._stopped = False

    @property
    def deadline(self) -> int | None:
        """The earliest deadline, kept up to date by `start` and `on_timer`: only they move it."""
        return self._deadline

    @property
    def drained(self) -> bool:
        """Stopped, and every send complete or failed."""
        return self._stopped and all(workload.drained for workload in self._active)

    @property
    def messages(self) -> int:
        """Messages completed by this host's senders."""
        return sum(sender.completed for sender in self.senders.values())

    @property
    def acked_bytes(self) -> int:
        """Bytes of the messages completed by this host's senders."""
        return sum(sender.completed * sender.flow.message for sender in self.senders.values())

    def start(self, t0_ns: int) -> None:
        """Set everyone's clock."""
        for receiver in self.receivers.values():
            receiver.start()
        for workload in self._active:
            workload.start(t0_ns)
        self._update()

    def on_timer(self, now: int) -> None:
        """Wake the workloads whose time has come."""
        for workload in self._active:
            deadline = workload.deadline
            if deadline is not None and deadline <= now:
                workload.on_timer(now)
        self._update()

    def stop(self) -> None:
        """Start no new message."""
        self._stopped = True
        for workload in self._active:
            workload.stop()
        self._update()

    def finish(self) -> None:
        """Record what is incomplete."""
        for workload in self._active:
            workload.finish()
        for receiver in self.receivers.values():
            receiver.finish()

    def failed(self, qp: int) -> None:
        """A QP is in error; its flow ends here, the others go on."""
        self.qp_errors += 1
        sender = self.senders.get(qp)
        if sender is not None:
            sender.fail()

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
        deadlines = [deadline for workload in self._active if (deadline := workload.deadline) is not None]
        self._deadline = min(deadlines, default=None)
