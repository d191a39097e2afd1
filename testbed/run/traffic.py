"""The part of a run that happens inside the sandbox: fabric up, hosts, faults, samples, stop, drain, fabric down.

One thread and one loop. Nothing here imports pandas or analysis: the runner shares its two cores with what it measures.
"""

from __future__ import annotations

import json
import os
import selectors
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from testbed.errors import ExitStatus, KernelError, RunError, TestbedError
from testbed.fabric.network import Fabric
from testbed.fabric.sandbox import RUN
from testbed.fabric.verify import verify
from testbed.model import faults as model_faults
from testbed.model import jobs, tcp, timing
from testbed.model.flows import Flow, flows
from testbed.model.scenario import Scenario, WorkloadSpec
from testbed.model.topology import Topology, host_name
from testbed.run import denylist, flowpaths, iperf, results
from testbed.run.captures import Capture, Captures
from testbed.run.display import Display, View
from testbed.run.faults import ACTION as FAULT
from testbed.run.faults import Faults
from testbed.run.hosts import HostProcess, Hosts
from testbed.run.interrupts import Interrupted, Interrupts
from testbed.run.plan import host_plans
from testbed.run.promptness import Promptness
from testbed.run.results import ResultsFolder, write_atomically
from testbed.run.telemetry import EventLog, Telemetry
from testbed.run.timeline import Timeline
from testbed.venv import ROOT

RUNTIME = RUN / "fabric"  # the sandbox's own /run: gone with it
LEAD_NS = 200_000_000  # t0 is this far ahead when it is announced: every host has read it by then
READY_S = 30.0
CALIBRATE_S = 10.0  # and twice the round trips it takes
CALIBRATION_PACKETS = 3  # per plane, one at a time: the median passes over one that met a busy moment
QUIT_S = 10.0
QUIT_HURRIED_S = 3.0
CHECK_NS = 100_000_000
LAST_NS = 2_000_000
PRIORITY = -10  # nice value of the runner while traffic runs: it needs little, and that at once
LIMIT_SLACK_S = 60.0
Ends = dict[tuple[str, int], list[dict[str, Any]]]  # what a host told of each flow's QPs, by (host, flow), in order
SETTLE_NS = 300_000_000  # after the last host has drained: packets under way (duplicates, SACKs) still reach the counters


@dataclass(slots=True)
class Outcome:
    """What the sandbox tells the outside. Times CLOCK_MONOTONIC ns; None where the run did not get that far."""

    t0_ns: int | None = None
    stop_ns: int | None = None
    drained_ns: int | None = None
    bringup_s: float | None = None
    teardown_s: float | None = None
    rtt_measured: list[dict[str, int]] = field(default_factory=list)
    delay_method: str | None = None
    bgp_converged_s: float | None = None
    bgp_missing: list[str] = field(default_factory=list)  # routes that were not back when the traffic had drained
    kernel_flows: list[dict[str, Any]] = field(default_factory=list)  # what became of each flow of tcp and mptcp
    transport_build: str | None = None  # compiled, or pure Python
    kernel_parameters: dict[str, dict[str, str]] = field(default_factory=dict)  # of one host and one switch
    fabric_failures: dict[str, int] = field(default_factory=dict)
    connections: list[dict[str, Any]] = field(default_factory=list)
    counters: dict[str, dict[str, int]] = field(default_factory=dict)
    error: str | None = None
    ended: bool = False  # written in order, not left behind by a kill

    def write(self, folder: ResultsFolder) -> None:
        write_atomically(folder.outcome, json.dumps(asdict(self)))


@dataclass(frozen=True, slots=True)
class Job:
    """One run, ready to start."""

    scenario: Scenario
    topology: Topology
    folder: ResultsFolder
    display: Display
    captures: tuple[Capture, ...] = ()
    cli: bool = False  # Mininet's, once the traffic has ended


def run(job: Job) -> int:
    """The sandbox's main. Returns the exit status; everything else is in the outcome file, written whatever happens."""
    os.chdir(ROOT)  # host processes are `python -m testbed.host`
    measure = job.scenario.measure
    interrupts = Interrupts()
    interrupts.install((measure.duration_ns + measure.drain_ns) / 1e9 + LIMIT_SLACK_S)
    outcome = Outcome()
    status = ExitStatus.PASSED
    try:
        _Traffic(job, interrupts, outcome).run()
    except Interrupted:
        status = ExitStatus.INTERRUPTED
    except TestbedError as error:
        outcome.error = str(error)
        status = error.exit_status
    except OSError as error:  # a full disk, a vanished /proc entry: the run broke, and says how
        full = error.errno in results.FULL
        outcome.error = (
            str(results.broken(job.folder, error))
            if full
            else f"{error.filename or 'the operating system'}: {error.strerror or error}"
        )
        status = ExitStatus.BROKEN
    outcome.ended = True
    job.folder.free_room()
    try:
        outcome.write(job.folder)
    except OSError as error:  # the room that was kept was not enough; what t = 0 wrote is still there
        print(results.broken(job.folder, error), file=sys.stderr)
        return int(ExitStatus.BROKEN)
    return int(status)


class _Traffic:
    """The steps, in order. Held together by the selector, the timeline and the hosts."""

    def __init__(self, job: Job, interrupts: Interrupts, outcome: Outcome) -> None:
        self._job = job
        self._scenario = job.scenario
        self._topology = job.topology
        self._folder = job.folder
        self._display = job.display
        self._interrupts = interrupts
        self._outcome = outcome
        self._timeline = Timeline()
        self._flows = flows(job.scenario, job.topology)
        self._selector = selectors.DefaultSelector()
        self._selector.register(interrupts, selectors.EVENT_READ, interrupts.drain)
        self._hosts = Hosts(self._selector)
        self._kernels: tuple[tcp.Connection, ...] = ()  # flows that iperf3 carries
        self._evs: dict[int, list[int]] = {}  # theirs
        self._promptness = Promptness()
        self._events = EventLog(job.folder.live / "events.jsonl")

    def run(self) -> None:
        links = self._topology.links
        self._display.say(
            f"building {len(self._topology.hosts)} hosts, {len(self._topology.switches)} switches, {len(links)} links"
        )
        began = time.monotonic()
        RUNTIME.mkdir()
        scenario, topology = self._scenario, self._topology
        stack = tcp.stack(scenario, topology)
        fabric = Fabric(topology, scenario.links, scenario.switch, RUNTIME, scenario.routing, self._folder.logs, stack)
        fabric.up()
        self._outcome.bringup_s = round(time.monotonic() - began, 3)
        self._outcome.delay_method = fabric.delay_method
        self._outcome.bgp_converged_s = fabric.converged_s
        self._outcome.kernel_parameters = fabric.parameters()
        self._interrupts.raising = False
        try:
            self._check_routes(fabric)
            with Captures(fabric, self._job.captures, self._folder) as captures:
                self._with_hosts(fabric)
                captures.stop()
            if self._job.cli:
                self._open_cli(fabric)
        finally:
            began = time.monotonic()
            fabric.down()
            self._outcome.teardown_s = round(time.monotonic() - began, 3)
            self._events.close()

    def _open_cli(self, fabric: Fabric) -> None:
        """Hosts have left and all records are written: nothing done by hand gets into them. Ctrl-C then ends a command."""
        from testbed.fabric import cli

        self._display.say("the traffic has ended; `exit` goes on to the results")
        with self._interrupts.suspended():
            cli.interact(fabric.net, sys.stdin)

    def _check_routes(self, fabric: Fabric) -> None:
        report = verify(fabric, self._topology, pairs=())
        if report.problems:
            raise KernelError("fabric", "verify", "; ".join(report.problems[:10]))
        self._interrupts.check()

    def _with_hosts(self, fabric: Fabric) -> None:
        try:
            if self._scenario.transport.kind.is_kernels:
                self._listen(fabric)
            else:
                self._connect(fabric)
                self._calibrate()
            self._drive(fabric)
        except BaseException:
            self._hosts.quit(QUIT_HURRIED_S)
            raise
        stuck = self._hosts.quit(QUIT_S)
        if stuck:
            raise RunError(f"did not leave within {QUIT_S:g} s and was ended: {', '.join(stuck)}")
        for host in self._hosts:
            last = host.messages.get("bye", host.progress)  # a host that was killed has no last word
            self._outcome.counters[host.name] = last.get("counters", {})
        byes = {host.name: host.messages.get("bye", {}) for host in self._hosts}
        self._outcome.kernel_flows = iperf.outcome(self._scenario, self._kernels, self._evs, byes)
        for flow in self._outcome.kernel_flows:
            if flow["failure"]:
                self._display.say(f"flow {flow['host']} to {flow['peer']} failed: {flow['failure']}")
        failed = self._hosts.ended_badly()
        if failed:
            raise RunError(f"did not end well: {', '.join(failed)}; see logs/")

    def _listen(self, fabric: Fabric) -> None:
        """Hosts whose flows are the kernel's: iperf3 connects when a flow starts."""
        scenario, topology = self._scenario, self._topology
        found = tcp.connections(scenario, topology, self._flows)
        evs = flowpaths.of_tcp(fabric, scenario, found)
        plans = iperf.plans(scenario, topology, found, evs, self._folder.raw)
        self._hosts.start(fabric, plans, self._folder.logs, iperf.command(scenario))
        self._wait("ready", READY_S)
        self._outcome.connections = [iperf.described(one, evs[one.flow.id]) for one in found]
        self._kernels, self._evs = found, evs
        write_atomically(self._folder.path / "connections.json", json.dumps(self._outcome.connections, indent=1) + "\n")

    def _connect(self, fabric: Fabric) -> None:
        plans = host_plans(self._scenario, self._topology, self._flows, self._folder.raw)
        self._hosts.start(fabric, plans, self._folder.logs)
        self._wait("ready", READY_S)
        ends: Ends = {}
        for host in self._hosts:
            for end in host.messages["ready"]["flows"]:
                ends.setdefault((host.name, end["flow"]), []).append(end)
        compiled = all(host.messages["ready"]["compiled"] for host in self._hosts)
        self._outcome.transport_build = "compiled" if compiled else "pure Python"
        workload = self._scenario.workload
        qps = self._scenario.transport.qps
        self._outcome.connections = [
            _connection(flow, workload[flow.workload], qps, source, target)
            for flow in self._flows
            for source, target in zip(ends[host_name(flow.source), flow.id], ends[host_name(flow.target), flow.id], strict=True)
        ]
        for host in self._hosts:
            peers = []
            for flow in self._flows:
                source, target = host_name(flow.source), host_name(flow.target)
                if host.name in (source, target):
                    peers.extend(ends[target if host.name == source else source, flow.id])
            host.channel.send({"type": "connect", "flows": peers})
        self._wait("connected", READY_S)
        if self._scenario.routing.hashes:
            flowpaths.trace_queue_pairs(fabric, self._topology, self._outcome.connections)
        write_atomically(self._folder.path / "connections.json", json.dumps(self._outcome.connections, indent=1) + "\n")

    def _calibrate(self) -> None:
        """One WRITE at a time on the idle fabric, so that the unit of every `_rtts` figure is confirmed (DESIGN 4.4)."""
        group = self._topology.group_of
        flow = next((flow for flow in self._flows if group(flow.source) != group(flow.target)), self._flows[0])
        source = self._hosts[host_name(flow.source)]
        count = CALIBRATION_PACKETS * self._scenario.topology.planes
        source.channel.send({"type": "calibrate", "flow": flow.id, "count": count})
        limit_s = CALIBRATE_S + 2 * count * timing.rtt_base_ns(self._scenario) / 1e9
        self._wait("calibrated", limit_s, source)
        rtts: dict[int, list[int]] = {}
        for entry in source.messages["calibrated"]["rtts"]:
            rtts.setdefault(entry["plane"], []).append(entry["rtt_ns"])
        self._outcome.rtt_measured = [
            {"plane": plane, "rtt_ns": round(median(measured))} for plane, measured in sorted(rtts.items())
        ]

    def _drive(self, fabric: Fabric) -> None:
        measure = self._scenario.measure
        t0_ns = time.monotonic_ns() + LEAD_NS
        self._outcome.t0_ns = t0_ns
        self._outcome.write(self._folder)  # a run that is killed from here on can still be read
        self._hosts.begin(t0_ns)
        telemetry = Telemetry(fabric, self._folder.live, os.cpu_count() or 1)
        faults = Faults(fabric, self._hosts, self._events)
        faults.schedule(self._timeline, model_faults.resolve(self._scenario, self._topology), t0_ns)
        timeline = self._timeline
        denylist.schedule(timeline, self._hosts, self._scenario, self._topology, t0_ns)
        timeline.every(
            t0_ns, measure.interval_ns, "sample", lambda _: telemetry.sample(time.monotonic_ns(), timeline.take_lags_ns())
        )
        timeline.every(t0_ns + CHECK_NS, CHECK_NS, "check", lambda _: self._check(fabric))
        every_ns = int(self._display.every_s * 1e9)
        timeline.every(t0_ns + every_ns, every_ns, "display", lambda at: self._show(at - t0_ns, telemetry, faults))
        stop_ns = t0_ns + measure.duration_ns
        stopped: list[int] = []
        timeline.at(stop_ns, "stop", stopped.append)
        os.setpriority(os.PRIO_PROCESS, 0, PRIORITY)  # faults and samples come when they are due; hosts run already
        try:
            self._until(lambda: bool(stopped))
            timeline.clear(FAULT)
            self._hosts.broadcast({"type": "stop"})
            self._outcome.stop_ns = stop_ns
            self._drain(stop_ns + measure.drain_ns)
            self._outcome.bgp_missing = fabric.routes_missing()
            if self._scenario.faults and not faults.in_fabric:
                self._check_routes(fabric)  # every fault of it has been undone: nothing is left
        finally:
            os.setpriority(os.PRIO_PROCESS, 0, 0)
            self._promptness.end()
            self._outcome.fabric_failures = telemetry.failures()
            telemetry.close()

    def _check(self, fabric: Fabric) -> None:
        self._hosts.check()
        fabric.check_routing()

    def _drain(self, limit_ns: int) -> None:
        """Until every host says drained, or the limit; what is then unfinished is incomplete (DESIGN 4.2)."""
        timeline = self._timeline
        over: list[int] = []
        timeline.at(limit_ns, "drain limit", over.append)
        self._until(lambda: bool(over) or self._hosts.all_said("drained"))
        if not over:
            self._outcome.drained_ns = time.monotonic_ns()
            timeline.at(self._outcome.drained_ns + SETTLE_NS, "settled", over.append)
            self._until(lambda: bool(over))

    def _until(self, done: Callable[[], bool]) -> None:
        """The loop: fire what is due, then serve the hosts until the next thing is."""
        while not done():
            now = time.monotonic_ns()
            self._timeline.fire(now)
            self._serve_until(self._timeline.next_ns() or 0)
            self._interrupts.check()

    def _serve_until(self, following_ns: int) -> None:
        """Serve the hosts until something is due. The last moment before a fault is slept: a selector has milliseconds."""
        now, punctual_ns = time.monotonic_ns(), self._timeline.punctual_ns
        self._promptness.next_is(punctual_ns, now)
        wait_ns = max(0, following_ns - now)
        if following_ns != punctual_ns:
            self._hosts.serve(wait_ns / 1e9)
        else:
            self._hosts.serve(max(0, wait_ns - LAST_NS) / 1e9)
            if wait_ns < LAST_NS:
                time.sleep(max(0, following_ns - time.monotonic_ns()) / 1e9)

    def _wait(self, kind: str, limit_s: float, *hosts: HostProcess) -> None:
        self._hosts.wait(kind, limit_s, of=hosts or None, unless=lambda: self._interrupts.asked)
        self._interrupts.check()

    def _show(self, elapsed_ns: int, telemetry: Telemetry, faults: Faults) -> None:
        busy, plane_bps = telemetry.shown()
        progress = [host.progress for host in self._hosts if host.progress]
        self._display.show(
            View(
                elapsed_s=elapsed_ns / 1e9,
                duration_s=self._scenario.measure.duration_ns / 1e9,
                goodput_bps=sum(host.goodput_bps for host in self._hosts),
                plane_bps=plane_bps,
                faults=faults.active,
                messages=sum(message["messages"] for message in progress),
                retransmissions=sum(message["retransmissions"] for message in progress),
                busy=busy,
                lag_ms=max((message["lag_ns_max"] for message in progress), default=0) / 1e6,
            )
        )


def _connection(flow: Flow, spec: WorkloadSpec, qps: int, sender: dict[str, Any], receiver: dict[str, Any]) -> dict[str, Any]:
    """One QP of a flow, by what its two ends said of it."""
    return {
        "flow": flow.id,
        "stripe": sender["stripe"],
        "job": flow.job,
        "workload": flow.workload,
        "messages_per_step": jobs.messages_per_step(spec, qps) if spec.kind in jobs.LOCKSTEP else None,
        "host": host_name(flow.source),
        "peer": host_name(flow.target),
        "host_qp": sender["qpn"],
        "peer_qp": receiver["qpn"],
        "host_port": sender["port"],
        "host_psn": sender["psn"],
        "peer_psn": receiver["psn"],
    }


def read_outcome(path: Path) -> Outcome | None:
    """The outcome file, or None when the run was ended before it wrote one."""
    try:
        return Outcome(**json.loads(path.read_text()))
    except FileNotFoundError:
        return None
