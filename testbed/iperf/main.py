"""The process of a host whose transport is the kernel's: starts iperf3 at its flows' ends, samples, ends what does not end.

Speaks on the runner's channel as a host does (`ready`, `start`, `progress`, `stop`, `drained`, `quit`, `bye`). Exit status: 0
after `quit`, 1 on an error or when the runner is gone. No iperf3 outlives it.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import time
from typing import Any

from testbed.host import privileges
from testbed.host.control import ChannelClosedError, Control
from testbed.host.records import FLUSH_NS, Table
from testbed.host.samples import Lag
from testbed.iperf.ends import End
from testbed.iperf.plan import HostPlan, read
from testbed.iperf.result import parse
from testbed.iperf.sampling import Sampler
from testbed.iperf.sockets import Sockets

PROGRESS_NS = 500_000_000
TICK_NS = 20_000_000  # how late an iperf3 that has ended is noticed
LISTEN_S = 20.0
LAST_WORDS_S = 0.5
NS_PER_TICK = 10**9 // os.sysconf("SC_CLK_TCK")


class Host:
    """Everything one host does. Times are CLOCK_MONOTONIC ns."""

    def __init__(self, plan: HostPlan, control: Control) -> None:
        self._plan = plan
        self._control = control
        self._rows = Table(plan.records, "connections")
        self._loop = Table(plan.records, "loop")
        self._sampler = Sampler(plan, self._rows, Sockets())
        self._lag = Lag()
        self._ends = {flow.flow: End(flow, plan.records, plan.congestion) for flow in plan.flows}
        self._t0: int | None = None
        self._limit: int | None = None
        self._drained = False
        self._cpu_ns = 0
        self._next_sample = self._next_progress = self._next_flush = 0

    def listen(self) -> None:
        """Start every server and wait until each has its port."""
        servers = [end for end in self._ends.values() if not end.flow.sends]
        for end in servers:
            end.start()
        deadline = time.monotonic() + LISTEN_S
        while not {end.flow.port for end in servers} <= listening():
            if time.monotonic() > deadline or any(end.ended for end in servers):
                said = "; ".join(filter(None, (parse(end.text()).failure for end in servers if end.ended)))
                raise RuntimeError(f"not every iperf3 server listens{': ' + said if said else ''}")
            time.sleep(0.01)
        self._control.send({"type": "ready", "compiled": False, "flows": []})

    def run(self) -> int:
        """Until `quit`."""
        while True:
            now = time.monotonic_ns()
            due = min(self._next_sample, now + TICK_NS) if self._t0 is not None else now + TICK_NS
            ready, _, _ = select.select(
                [self._control], [self._control] if self._control.waiting else [], [], max(0, due - now) / 1e9
            )
            now = time.monotonic_ns()
            if self._t0 is not None:
                self._on_time(now, self._t0)
            if self._control.waiting:
                self._control.flush()
            for message in self._control.receive() if ready else ():
                if message["type"] == "start":
                    self._start(message["t0_ns"])
                elif message["type"] == "stop":
                    self._limit = now + self._plan.limit_ns
                elif message["type"] == "quit":
                    self._leave()
                    return 0
                else:
                    raise RuntimeError(f"unknown message {message['type']!r}")

    def _start(self, t0_ns: int) -> None:
        self._t0 = self._next_progress = self._next_flush = t0_ns
        self._next_sample = t0_ns + self._plan.interval_ns

    def _on_time(self, now: int, t0: int) -> None:
        for end in self._ends.values():
            if end.flow.sends and not end.pid and now >= t0 + end.flow.start_ns:
                end.start()
        if now >= self._next_sample:
            self._lag.add(now - self._next_sample)
            self._sample(now)
            self._next_sample += self._plan.interval_ns * (1 + (now - self._next_sample) // self._plan.interval_ns)
        if now >= self._next_flush:
            self._rows.flush()
            self._loop.flush()
            self._next_flush = now + FLUSH_NS
        if now >= self._next_progress:
            self._progress(now)
            self._next_progress = now + PROGRESS_NS
        if self._limit is not None and not self._drained:
            self._drain(now, self._limit)

    def _sample(self, now: int) -> None:
        self._sampler.sample(now)
        largest, p99 = self._lag.take()
        cpu = time.process_time_ns() + NS_PER_TICK * sum(end.cpu_ticks() for end in self._ends.values())
        self._loop.row(now, largest, p99, max(0, min(cpu - self._cpu_ns, 2**32 - 1)), 1, 0)
        self._cpu_ns = cpu

    def _progress(self, now: int) -> None:
        seen = self._sampler.seen.values()
        self._control.send(
            {
                "type": "progress",
                "t_ns": now,
                "messages": 0,
                "retransmissions": sum(one.retransmissions for one in seen),
                "placed_bytes": sum(one.placed for one in seen),
                "lag_ns_max": self._lag.take_worst(),
            }
        )

    def _drain(self, now: int, limit: int) -> None:
        """A flow that has not come to its end when the others have had their time never will."""
        running = [end for end in self._ends.values() if not end.ended]
        if running and now >= limit:
            for end in running:
                end.end(
                    f"iperf3 did not end within {self._plan.limit_ns / 1e9:g} s of the stop" if end.pid else "never started"
                )
            running = [end for end in running if end.pid and not end.ended]
        if not running:
            self._drained = True
            self._control.send({"type": "drained"})

    def _leave(self) -> None:
        for end in self._ends.values():
            end.end("ended with the run")
        self._rows.close()
        self._loop.close()
        self._control.send({"type": "bye", "counters": {}, "flows": [self._report(end) for end in self._ends.values()]})
        self._control.finish(LAST_WORDS_S)

    def _report(self, end: End) -> dict[str, Any]:
        seen, result = self._sampler.seen[end.flow.flow], parse(end.text())
        failure = end.failure or result.failure
        if self._plan.mptcp and seen.connected and (seen.fell_back or not seen.mptcp):
            failure = "MPTCP fell back to TCP" if seen.fell_back else "it was TCP, not MPTCP"
        if not failure and end.flow.sends and seen.congestion != {self._plan.congestion}:
            failure = f"congestion control was {' and '.join(sorted(seen.congestion))}, not {self._plan.congestion}"
        return {
            "flow": end.flow.flow,
            "role": "sender" if end.flow.sends else "receiver",
            "failure": failure,
            "subflows": seen.subflows,
            "congestion": " and ".join(sorted(seen.congestion)),
            "segments": seen.segments,
            "retransmissions": seen.retransmissions,
            "placed_bytes": seen.placed,
            "iperf3": {
                "sent_bytes": result.sent_bytes,
                "received_bytes": result.received_bytes,
                "retransmits": result.retransmits,
                "cpu_percent": result.cpu_percent,
            },
        }


def listening() -> set[int]:
    """Ports of this namespace that somebody listens on, from /proc/net/tcp6 (state 0A)."""
    found = set()
    with open("/proc/self/net/tcp6") as table:  # noqa: PTH123 - as in the records
        next(table)
        for line in table:
            fields = line.split()
            if fields[3] == "0A":
                found.add(int(fields[1].rpartition(":")[2], 16))
    return found


def main(arguments: list[str]) -> int:
    """Run one host; returns the exit status."""
    options = dict(zip(arguments[::2], arguments[1::2], strict=True))
    control = Control(socket.socket(fileno=int(options["--control"])))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        # For congestion control that the machine allows not everyone, a socket bound to a port, and iperf3's files of results.
        privileges.keep(privileges.NET_ADMIN, privileges.NET_RAW, privileges.DAC_OVERRIDE)
        plan = read(options["--plan"])
        os.environ["TMPDIR"] = plan.records  # where iperf3 makes the nameless file that it sends
        host = Host(plan, control)
        host.listen()
        return host.run()
    except ChannelClosedError:
        return 1
    except Exception as error:  # noqa: BLE001 - whatever it is, the runner must hear of it
        import traceback

        traceback.print_exception(error, file=sys.stderr)
        control.send({"type": "error", "message": str(error)})
        control.finish(LAST_WORDS_S)
        return 1
