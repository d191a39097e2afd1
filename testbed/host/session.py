"""One host's life as the runner steers it: ready, connect, calibrate, start, stop, quit (the messages on the channel).

Holds what the host consists of and decides; moving packets is the loop's business.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from enum import Enum
from itertools import chain
from typing import Any

from testbed.host.assembly import assemble
from testbed.host.calibration import Calibration
from testbed.host.control import Control, ControlError
from testbed.host.flows import ReceiverFlow, Remote, SenderFlow, Stripe
from testbed.host.memory import Content, Region
from testbed.host.nic import MakeNic, QueuePair
from testbed.host.plan import Flow, HostPlan
from testbed.host.recorder import Arrivals, Recorder
from testbed.host.records import FLUSH_NS, RecordFiles
from testbed.host.samples import Sampler, planes_of
from testbed.host.workloads import Workloads

PROGRESS_NS = 500_000_000
TOLD = (
    "flow",
    "stripe",
    "qpn",
    "psn",
    "port",
    "rkey",
    "va",
    "length",
)  # of each QP, to the runner; the last three by receivers only


class Phase(Enum):
    """Where the host stands. Each message is allowed in some phases only."""

    READY = "ready"
    CONNECTED = "connected"
    RUNNING = "running"
    STOPPED = "stopped"
    DONE = "done"


ALLOWED: dict[str, frozenset[Phase]] = {
    "connect": frozenset({Phase.READY}),
    "calibrate": frozenset({Phase.CONNECTED}),
    "start": frozenset({Phase.CONNECTED}),
    "deny": frozenset({Phase.CONNECTED, Phase.RUNNING, Phase.STOPPED}),
    "allow": frozenset({Phase.CONNECTED, Phase.RUNNING, Phase.STOPPED}),
    "stop": frozenset({Phase.CONNECTED, Phase.RUNNING}),
    "quit": frozenset({Phase.READY, Phase.CONNECTED, Phase.RUNNING, Phase.STOPPED}),
}


class Session:
    """Everything one host is made of. `deadline` is the session's next timer, absolute ns."""

    def __init__(self, plan: HostPlan, control: Control, make_nic: MakeNic, now: int) -> None:
        self.plan = plan
        self.control = control
        self.phase = Phase.READY
        self.files = RecordFiles(plan.records, trace=plan.trace)
        planes = [port.plane for port in plan.ports]
        self.recorder = Recorder(self.files, planes)
        self.nic = make_nic(plan, self.recorder)
        self.endpoint = self.nic.endpoint
        for peer in plan.peers:
            for ev in peer.denied:
                self.endpoint.deny(peer.index, ev, now)
        self.extra_counters: Callable[[], dict[str, int]] = dict  # the loop adds the socket's
        self._plane_of = {ev: plane for peer in plan.peers for ev, plane, _ in peer.paths}
        longest = max((flow.message for flow in plan.flows), default=0)
        self._content = Content(plan.seed, max(longest, plan.payload))
        self._ready: list[dict[str, int | None]] = []
        stripes = [Stripe(index, plan.qps) for index in range(plan.qps)]
        self._senders = {
            flow.flow: [self._sender(flow, stripe) for stripe in stripes] for flow in plan.flows if flow.source == plan.host
        }
        self._receivers = {
            flow.flow: [self._receiver(flow, stripe, planes_of(planes)) for stripe in stripes]
            for flow in plan.flows
            if flow.source != plan.host
        }
        active = assemble(plan, self._senders, self._receivers, self._content, self.files.steps)
        self.workloads = Workloads(active, chain.from_iterable(self._receivers.values()))
        self.sampler = Sampler(plan.interval_ns, self.recorder, self.workloads, now)
        self._calibration: Calibration | None = None
        self._drained_told = False
        self._flush_at = now + FLUSH_NS
        self._progress_at = now + PROGRESS_NS
        self.deadline = 0
        self._update_deadline()

    def announce(self, compiled: bool = False) -> None:
        """Tell the runner that this host is ready, where its flows end, and whether its transport runs compiled."""
        self.control.send({"type": "ready", "compiled": compiled, "flows": self._ready})

    def _queue_pair(self, flow: Flow, stripe: Stripe, region: Region | None) -> QueuePair:
        """One QP of a flow, and what the other end must know of it."""
        qp = self.endpoint.create_qp(self.plan.peer_of(flow).index)
        key = None if region is None else self.endpoint.register(region.view)
        memory = (None, None, None) if key is None else (key.rkey, key.address, key.length)
        port = getattr(qp, "source_port", None)  # a QP of a transport that sprays has none: each packet has its path's
        values = (flow.flow, stripe.place, qp.number, qp.psn, port, *memory)
        self._ready.append(dict(zip(TOLD, values, strict=True)))
        return qp

    def _sender(self, flow: Flow, stripe: Stripe) -> SenderFlow:
        return SenderFlow(flow, self._queue_pair(flow, stripe, None), self.endpoint, self.files, stripe)

    def _receiver(self, flow: Flow, stripe: Stripe, planes: int) -> ReceiverFlow:
        region = Region(flow.depth, flow.message)
        qp = self._queue_pair(flow, stripe, region)
        payload = self.plan.payload
        arrivals = Arrivals(planes, flow.depth, lambda number: -(-len(receiver.expected(number)) // payload))
        self.recorder.arrivals[qp.number] = arrivals
        receiver = ReceiverFlow(flow, qp.number, region, self._content, arrivals, self.files.messages, stripe)
        return receiver

    # The runner's messages

    def on_message(self, message: dict[str, Any], now: int) -> None:
        """Obey one message. Raises ControlError when it is unknown, malformed or out of turn."""
        kind = message["type"]
        allowed = ALLOWED.get(kind)
        if allowed is None:
            raise ControlError(f"unknown message {kind!r}")
        if self.phase not in allowed or (self._calibration is not None and kind != "quit"):
            raise ControlError(f"message {kind!r} while {'calibrating' if self._calibration else self.phase.value}")
        try:
            if kind == "connect":
                self._connect(message["flows"])
            elif kind == "calibrate":
                self._calibrate(message["flow"], message["count"], now)
            elif kind == "start":
                self._start(message["t0_ns"], now)
            elif kind == "stop":
                self._stop()
            elif kind in ("deny", "allow"):
                self._change_denylist(kind == "deny", message["evs"], now)
            else:
                self.phase = Phase.DONE
        except (KeyError, TypeError) as error:
            raise ControlError(f"malformed {kind!r}: {type(error).__name__} {error}") from error
        self._update_deadline()

    def _connect(self, flows: list[dict[str, Any]]) -> None:
        waiting = {(flow, place) for flow in (*self._senders, *self._receivers) for place in range(self.plan.qps)}
        for entry in flows:
            flow, stripe = entry["flow"], entry["stripe"]
            waiting.discard((flow, stripe))
            end: SenderFlow | ReceiverFlow
            if flow in self._senders:
                sender = end = self._senders[flow][stripe]
                sender.connect(Remote(entry["rkey"], entry["va"], entry["length"]))
            else:
                receiver = end = self._receivers[flow][stripe]
                receiver.connect(entry["psn"])
            self.endpoint.connect_qp(end.qp, entry["qpn"], entry["psn"])
        if waiting:
            raise ControlError(f"'connect' leaves out flows {sorted({flow for flow, _ in waiting})}")
        self.phase = Phase.CONNECTED
        self.control.send({"type": "connected"})

    def _calibrate(self, flow: int, count: int, now: int) -> None:
        sender = self._senders[flow][0]
        self._calibration = Calibration(
            sender,
            count,
            payload=self.plan.payload,
            endpoint=self.endpoint,
            content=self._content,
            packets=self.files.packets,
            plane_of=self._plane_of,
        )
        self._calibration.post(now)
        self._report_calibration()

    def _report_calibration(self) -> None:
        if self._calibration is not None and self._calibration.done:
            self.control.send({"type": "calibrated", "rtts": self._calibration.rtts})
            self._calibration = None

    def _start(self, t0_ns: int, now: int) -> None:
        self.workloads.start(t0_ns)
        self.phase = Phase.RUNNING
        self._progress_at = now + PROGRESS_NS

    def _change_denylist(self, deny: bool, evs: list[tuple[int, int]], now: int) -> None:
        """`evs`: [peer index, EV] of each. The last path that still works is kept, and the log says so."""
        for peer, ev in evs:
            try:
                (self.endpoint.deny if deny else self.endpoint.allow)(peer, ev, now)
            except ValueError as error:
                self._log(f"EV {ev:#x} towards peer {peer} stays in use: {error}")

    def _stop(self) -> None:
        self.workloads.stop()
        self.phase = Phase.STOPPED
        self._report_drained()

    def _report_drained(self) -> None:
        if self.phase is Phase.STOPPED and not self._drained_told and self.workloads.drained:
            self._drained_told = True
            self.control.send({"type": "drained"})

    # The endpoint's events and time

    def on_events(self, now: int) -> None:
        """Take what the endpoint reports."""
        nic, workloads = self.nic, self.workloads
        events = self.endpoint.events()
        finished = False
        # Errors first: a completion just before one must not post on a QP that is already in error.
        for event in events:
            kind = type(event)
            if kind is nic.queue_pair_error:
                self._log(f"QP {event.qp} is in error: {event.reason}")
                workloads.failed(event.qp)
                finished = True
        for event in events:
            kind = type(event)
            if kind is nic.immediate_received:
                receiver = workloads.on_immediate(event.qp, event.value, now)
                if receiver.corrupt == 1 and receiver.problem:
                    self._log(receiver.problem)
                    receiver.problem = ""
            elif kind is nic.write_complete:
                if self._calibration is not None:
                    self._calibration.on_complete(now)
                    self._report_calibration()
                else:
                    workloads.on_complete(event.qp, event.wr_id, now)
                    finished = True
        if finished:
            self._report_drained()
        if events:
            self._update_deadline()

    def on_timer(self, now: int) -> None:
        """`deadline` has come: sample, flush, report, wake the workloads."""
        start = self.workloads.deadline
        if start is not None and start <= now:
            self.workloads.on_timer(now)
        if self.sampler.deadline <= now:
            self.sampler.on_timer(now)
        if self._flush_at <= now:
            self.files.flush()
            self._flush_at = now + FLUSH_NS
        if self._progress_at <= now:
            self._progress(now)
            self._progress_at = now + PROGRESS_NS
        self._update_deadline()

    def _update_deadline(self) -> None:
        deadline = min(self.sampler.deadline, self._flush_at, self._progress_at)
        start = self.workloads.deadline
        self.deadline = deadline if start is None else min(deadline, start)

    def _progress(self, now: int) -> None:
        if self.phase not in (Phase.RUNNING, Phase.STOPPED):
            return
        counters = self._counters()
        self.control.send(
            {
                "type": "progress",
                "t_ns": now,
                "placed_bytes": counters["placed_bytes"],
                "acked_bytes": self.workloads.acked_bytes,
                "packets_sent": counters["packets_sent"],
                "retransmissions": counters["retransmissions"],
                "messages": self.workloads.messages,
                "lag_ns_max": self.sampler.lag.take_worst(),
                "counters": counters,
            }
        )

    def _counters(self) -> dict[str, int]:
        return self.endpoint.statistics() | self.workloads.counters() | self.extra_counters()

    def close(self) -> None:
        """Write down what is incomplete and close the records. Once."""
        self.endpoint.flush()
        self.workloads.finish()
        self.files.close()

    def farewell(self) -> None:
        """The last message: all counters."""
        self.control.send({"type": "bye", "counters": self._counters()})

    def _log(self, what: str) -> None:
        print(f"{self.plan.host}: {what}", file=sys.stderr, flush=True)
