"""Ctrl-C, SIGTERM, a closed terminal (SIGHUP): the first one asks the run to end in order, a second one ends it at once."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from testbed.errors import ExitStatus, RunError

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
SAME_PRESS_S = 0.3  # a terminal sends Ctrl-C to the whole process group and the parent forwards it too: that is one press


class Interrupted(Exception):
    """The person at the terminal, or a supervisor, wants the run to end."""


class Interrupts:
    """Installed once per process. `raising`: interrupt whatever is going on (building); otherwise note it and wake the loop."""

    def __init__(self) -> None:
        self.raising = True
        self.limit_s = 0.0
        self._asked_at: float | None = None
        self._wake_reader, self._wake_writer = socket.socketpair()
        for end in (self._wake_reader, self._wake_writer):
            end.setblocking(False)

    def install(self, limit_s: float) -> None:
        """Take over the signals and end the run with a RunError after `limit_s`, whatever it is waiting for."""
        for number in SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:  # nohup's wish
                signal.signal(number, self._on_signal)
        self.limit_s = limit_s
        signal.signal(signal.SIGALRM, self._on_alarm)
        signal.setitimer(signal.ITIMER_REAL, limit_s)
        signal.set_wakeup_fd(self._wake_writer.fileno(), warn_on_full_buffer=False)

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """Someone else handles Ctrl-C and takes all the time it wants; the overall limit is off from here on."""
        signal.setitimer(signal.ITIMER_REAL, 0)
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    @property
    def asked(self) -> bool:
        return self._asked_at is not None

    def fileno(self) -> int:
        """Readable when a signal came, so that a select ends."""
        return self._wake_reader.fileno()

    def drain(self) -> None:
        try:
            while self._wake_reader.recv(64):
                pass
        except BlockingIOError:
            return

    def check(self) -> None:
        """Raise when somebody asked."""
        if self.asked:
            raise Interrupted

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        now = time.monotonic()
        if self._asked_at is not None:
            if now - self._asked_at > SAME_PRESS_S:
                os._exit(ExitStatus.INTERRUPTED)
            return
        self._asked_at = now
        if self.raising:
            raise Interrupted

    def _on_alarm(self, _number: int, _frame: FrameType | None) -> None:
        raise RunError(f"the run took more than {self.limit_s:g} s, its overall limit (duration + drain + 60 s)")
