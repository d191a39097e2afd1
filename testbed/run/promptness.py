"""Real-time priority for the moment of a fault: a busy machine's hosts would else hold it up for milliseconds."""

from __future__ import annotations

import os
from contextlib import suppress

AHEAD_NS = 5_000_000
PRIORITY = 1  # below the delay line's: packets under way are on time too


class Promptness:
    """SCHED_FIFO from shortly before a punctual action until it is over. Without the right to it, nothing changes."""

    def __init__(self) -> None:
        self._on = False

    def next_is(self, at_ns: int | None, now_ns: int) -> None:
        """`at_ns`: when the next punctual action is due, None: never."""
        near = at_ns is not None and at_ns - now_ns <= AHEAD_NS
        if near and not self._on:
            self._set(os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, PRIORITY)
        elif self._on and not near:
            self.end()

    def end(self) -> None:
        if self._on:
            self._set(os.SCHED_OTHER, 0)

    def _set(self, policy: int, priority: int) -> None:
        with suppress(PermissionError):
            os.sched_setscheduler(0, policy, os.sched_param(priority))
            self._on = policy != os.SCHED_OTHER
