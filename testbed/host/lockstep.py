"""A job in lock step: compute for a while, take part in a collective, again. Without compute time it is the collective alone.

Computing is a wait: the host spends no processor time on it, so that it does not disturb what is measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from testbed.host.collectives import Collective
from testbed.host.flows import CORRUPT, OK, ReceiverFlow, SenderFlow
from testbed.host.plan import Job
from testbed.host.records import Table


class Stage(Enum):
    """Where the rank is in its step."""

    WAITING = "waiting"  # for the job's start
    COMPUTING = "computing"
    COMMUNICATING = "communicating"
    OVER = "over"


class Lockstep:
    """One rank of a job. Each step it completes is a row of `steps`: start, end of computing, end, verdict."""

    def __init__(
        self,
        job: Job,
        collective: Collective,
        senders: Sequence[SenderFlow],
        receivers: Sequence[ReceiverFlow],
        steps: Table,
    ) -> None:
        self.senders = tuple(senders)
        self.receivers = tuple(receivers)
        self._job = job
        self._collective = collective
        self._row = steps.row
        self._stage = Stage.WAITING
        self._step = 0
        self._began = 0  # this step
        self._ready = 0  # its computing is over: the rank may send
        self._stop: int | None = None
        self._deadline: int | None = None

    @property
    def deadline(self) -> int | None:
        """The start of the job, or the end of computing."""
        return self._deadline

    @property
    def drained(self) -> bool:
        """Nothing is outstanding. A collective that others left stays unfinished; it is no step."""
        return all(sender.drained for sender in self.senders)

    def start(self, t0_ns: int) -> None:
        """Set the clock: the plan's times count from `t0_ns`."""
        self._deadline = t0_ns + self._job.start_ns
        self._stop = None if self._job.stop_ns is None else t0_ns + self._job.stop_ns

    def on_timer(self, now: int) -> None:
        """The job starts, or computing is over."""
        if self._deadline is None or now < self._deadline:
            return
        due, self._deadline = self._deadline, None
        if self._stage is Stage.WAITING:
            self._enter(due, now)
        elif self._stage is Stage.COMPUTING:
            self._communicate(now)
        self._advance(now)

    def on_sent(self, sender: SenderFlow, now: int) -> None:
        """Room for what waited."""
        del sender
        self._advance(now)

    def on_received(self, receiver: ReceiverFlow, number: int, right: bool, now: int) -> None:
        """A message of this step or, from a rank that is ahead, of the next."""
        if self._stage is Stage.OVER:
            return
        self._collective.on_received(receiver, number, right, now)
        self._advance(now)

    def stop(self) -> None:
        """Start no new message."""
        self._stage = Stage.OVER
        self._deadline = None
        for sender in self.senders:
            sender.forget_waiting()

    def _advance(self, now: int) -> None:
        while self._stage is Stage.COMMUNICATING and self._collective.done:
            verdict = OK if self._collective.right else CORRUPT
            self._row(self._job.index, self._step, self._began, self._ready, now, verdict)
            self._step += 1
            self._enter(now, now)

    def _enter(self, began: int, now: int) -> None:
        """The next step, unless there is none."""
        if self._step == self._job.steps or (self._stop is not None and now >= self._stop):
            self._stage = Stage.OVER
            return
        self._began = began
        if self._job.compute_ns:
            self._stage = Stage.COMPUTING
            self._deadline = began + self._job.compute_ns
        else:
            self._communicate(now)

    def _communicate(self, now: int) -> None:
        self._stage = Stage.COMMUNICATING
        self._ready = now
        self._collective.begin(self._step, now)
