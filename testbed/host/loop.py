"""The loop: waits for packets, control messages and timers, and does everything that became due in one wake-up.

A wake-up costs more than a packet (DESIGN section 2), so each one takes all there is: a batch of arrivals, the events
they caused, the timers that are due, and every packet that may then leave. Nothing here blocks.
"""

from __future__ import annotations

import os
import select
import signal
import time
from types import FrameType

from testbed.host.control import Control
from testbed.host.rawsocket import RawSocket
from testbed.host.session import Phase, Session

NS_PER_S = 1e-9
EXIT_QUIT = 0
EXIT_TERMINATED = 128 + signal.SIGTERM


class Wakeup:
    """SIGTERM as something to wait on. SIGINT is ignored: the terminal sends it to everyone, and the runner decides."""

    __slots__ = ("_read", "_write")

    def __init__(self) -> None:
        self._read, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, _noted)
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)

    def fileno(self) -> int:
        """Readable once SIGTERM came."""
        return self._read


def _noted(_number: int, _frame: FrameType | None) -> None:
    """Replaces death at once; `Wakeup` tells the loop."""


class Loop:
    """Drives one session over one raw socket."""

    def __init__(self, session: Session, wire: RawSocket, control: Control, wakeup: Wakeup) -> None:
        self._session = session
        self._wire = wire
        self._control = control
        self._descriptors = [wire.fileno(), control.fileno(), wakeup.fileno()]
        self._control_out = [control.fileno()]

    def run(self) -> int:
        """Run until told to quit or SIGTERM; returns the exit status. Raises what the session and the channel raise."""
        session, control = self._session, self._control
        endpoint, sampler = session.endpoint, session.sampler
        descriptors, control_out = self._descriptors, self._control_out
        wire_fd, control_fd, wakeup_fd = descriptors
        wait, now_ns = select.select, time.monotonic_ns
        next_timer, on_timer, late = endpoint.next_timer, endpoint.on_timer, sampler.lag.add
        receive, take, send, on_events = self._wire.receive, endpoint.receive, self._send, session.on_events
        while True:
            timer = next_timer()
            deadline = session.deadline if timer is None or session.deadline < timer else timer
            left = deadline - now_ns()
            # select, not epoll: its timeout is in microseconds, epoll's in whole milliseconds rounded up, and pacing
            # frames that take a few milliseconds should not be that late. It costs a microsecond more per wake-up.
            ready, _, _ = wait(descriptors, control_out if control.waiting else (), (), left * NS_PER_S if left > 0 else 0)
            sampler.wakeups += 1
            if wire_fd in ready:
                sampler.packets += receive(take)
            now = now_ns()
            if now >= deadline:
                late(now - deadline)
                if timer is not None and now >= timer:
                    on_timer(now)
                if now >= session.deadline:
                    session.on_timer(now)
            if control.waiting:
                control.flush()
            if control_fd in ready:
                for message in control.receive():
                    session.on_message(message, now)
                if session.phase is Phase.DONE:
                    return EXIT_QUIT
            if wakeup_fd in ready:
                return EXIT_TERMINATED
            on_events(now)
            send(now)

    def _send(self, now: int) -> None:
        """Send what the endpoint has for the wire."""
        put = self._wire.send
        count = 0
        for destination, tclass, buffers in self._session.endpoint.transmit(now):
            put(destination, tclass, buffers)
            count += 1
        self._session.sampler.packets += count
