"""The loop: waits for packets, carriers, control messages and timers, and does everything that became due in one wake-up.

A wake-up costs more than a packet (DESIGN section 2), so each one takes all there is: a batch of arrivals, the events
they caused, the timers that are due, and every packet that may then leave. Nothing here blocks.
"""

from __future__ import annotations

import os
import select
import signal
import time
from types import FrameType

from testbed.host.carrier import Carriers
from testbed.host.control import Control
from testbed.host.rawsocket import RawSocket
from testbed.host.session import Phase, Session

S_PER_NS = 1e-9
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

    def __init__(self, session: Session, wire: RawSocket, carriers: Carriers, control: Control, wakeup: Wakeup) -> None:
        self._session = session
        self._wire = wire
        self._carriers = carriers
        self._control = control
        self._wakeup = wakeup

    def run(self) -> int:
        """Run until told to quit or SIGTERM; returns the exit status. Raises what the session and the channel raise."""
        session, control, sampler = self._session, self._control, self._session.sampler
        endpoint = session.endpoint
        next_timer, on_timer, transmit, take = endpoint.next_timer, endpoint.on_timer, endpoint.transmit, endpoint.receive
        receive, send, on_events, late = self._wire.receive, self._wire.send, session.on_events, sampler.lag.add
        now_ns, wait = time.monotonic_ns, select.select
        control_fd, wakeup_fd, carrier_fd = control.fileno(), self._wakeup.fileno(), self._carriers.fileno()
        everything, outgoing = [self._wire.fileno(), control_fd, wakeup_fd, carrier_fd], [control_fd]
        while True:
            timer = next_timer()
            deadline = session.deadline if timer is None or session.deadline < timer else timer
            left = deadline - now_ns()
            # select, not epoll: its timeout is in microseconds, epoll's in whole milliseconds rounded up, and pacing
            # frames that take a few milliseconds should not be that late. It costs a microsecond more per wake-up.
            ready, _, _ = wait(everything, outgoing if control.waiting else (), (), left * S_PER_NS if left > 0 else 0)
            sampler.wakeups += 1
            sampler.packets += receive(take)  # whatever woke us: a receive that finds nothing is cheaper than a wake-up
            now = now_ns()
            if now >= deadline:
                late(now - deadline)
                if timer is not None and now >= timer:
                    on_timer(now)
                if now >= session.deadline:
                    session.on_timer(now)
            if carrier_fd in ready:
                for plane, up in self._carriers.changes():
                    endpoint.port_state(plane, up, now)
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
            sampler.packets += send(transmit(now))
