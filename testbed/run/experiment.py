"""One run from a loaded scenario to its results folder: the order of things.

check the machine -> results folder -> sandbox (testbed.run.traffic) -> tables -> judge -> figures and report -> summary.
Whatever happens after the folder exists, the folder says so: its manifest and summary carry the status and the error.
"""

from __future__ import annotations

import json
import signal
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from testbed.errors import ExitStatus, MissingCapability, Problem, RunError, ScenarioError, TestbedError
from testbed.fabric import doctor, sandbox
from testbed.model import timing
from testbed.model.load import dump
from testbed.model.scenario import Scenario
from testbed.model.topology import build
from testbed.run import captures, judging, provenance, results, traffic
from testbed.run.display import Display
from testbed.run.judging import Summary
from testbed.run.results import Manifest, ResultsFolder
from testbed.run.status import WORDS, combine, of_word
from testbed.run.traffic import Outcome

HIDDEN = sandbox.RUN  # the sandbox has its own: what is written there inside is not seen outside


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line says beyond the scenario."""

    out: Path
    figures: bool = True
    pcap: tuple[str, ...] = ()
    cli: bool = False


@dataclass(frozen=True, slots=True)
class Result:
    """A finished run. `summary` is what summary.json holds; `error` what broke, for the person at the terminal."""

    folder: ResultsFolder
    status: ExitStatus
    summary: Summary
    error: str | None


def run(scenario: Scenario, options: Options, display: Display) -> Result:
    """Run once. Raises only before anything exists; later trouble is in the result."""
    missing = doctor.missing(scenario, cli=options.cli)
    if missing:
        raise MissingCapability(list(missing))
    topology = build(scenario.topology)
    wanted = captures.parse(options.pcap, topology)
    if options.out.resolve().is_relative_to(HIDDEN):
        raise ScenarioError([Problem("--out", 0, "", f"results cannot go under {HIDDEN}", "a run has a private one")])
    text = dump(scenario)
    manifest = _first_manifest(scenario, text)
    folder = results.create(options.out, scenario.name, scenario.seed)
    manifest["run_id"] = folder.run_id
    try:
        results.write_scenario(folder.path, text, scenario.transport.policy_file, scenario.transport.policy_text)
        folder.write_manifest(manifest)
    except OSError as trouble:
        folder.discard()
        raise results.refused(folder.path, trouble) from trouble
    job = traffic.Job(scenario, topology, folder, display, wanted, options.cli)
    status, error = _how_it_ended(sandbox.run_in_sandbox(lambda: traffic.run(job)), folder)
    try:
        outcome = traffic.read_outcome(folder.outcome) or Outcome()
        error = outcome.error or error
        manifest |= _measured(scenario, outcome) | {"ended": _now(), "status": WORDS[status], "error": error}
        return _conclude(job, manifest, outcome, options, status, error)
    except KeyboardInterrupt:  # the traffic's own end stays in the manifest: the report can still be made
        error = "\n".join(filter(None, [error, f"interrupted while the results were being worked out; {_go_on(folder)}"]))
        return _close(folder, manifest, judging.bare(scenario, folder, ExitStatus.INTERRUPTED, error), status, error)


def _conclude(
    job: traffic.Job, manifest: Manifest, outcome: Outcome, options: Options, status: ExitStatus, error: str | None
) -> Result:
    """From the end of the traffic to the verdict."""
    folder, scenario = job.folder, job.scenario
    if status is ExitStatus.INTERRUPTED and not outcome.ended:
        error = f"ended at once; {_go_on(folder)}"
        summary = judging.bare(scenario, folder, status, error)
    else:
        job.display.say("working out the results")
        status, error, summary = _judge(scenario, folder, manifest, outcome, options, status, error)
    summary["status"] = WORDS[status]
    return _close(folder, manifest | {"error": error}, summary, status, error)


def _close(folder: ResultsFolder, manifest: Manifest, summary: Summary, ended: ExitStatus, error: str | None) -> Result:
    """The last files. The manifest says how the traffic `ended`, the summary how all of it did."""
    status = of_word(summary["status"])
    try:
        results.write_atomically(folder.path / "summary.json", json.dumps(summary, indent=2) + "\n")
        folder.write_manifest(manifest | {"status": WORDS[ended]})
        results.give_to_caller(folder)
    except OSError as trouble:
        status, said = combine([status, ExitStatus.BROKEN]), str(results.broken(folder, trouble))
        error = error if error and said in error else "\n".join(filter(None, [error, said]))
    return Result(folder, status, summary, error)


def _go_on(folder: ResultsFolder) -> str:
    """How a person gets the results that were not worked out."""
    if folder.live.is_dir():
        return f"what was recorded can be read with: python3 -m testbed collect {folder.path}"
    if any(folder.path.glob("*.parquet")):
        return f"the tables are complete; the report is made by: python3 -m analysis report {folder.path}"
    return "nothing was recorded"


def _first_manifest(scenario: Scenario, text: str) -> Manifest:
    """What is known before anything is built, written first: a run that is killed still says what it was."""
    return {
        "schema": results.SCHEMA,
        "scenario": scenario.name,
        "seed": scenario.seed,
        "status": "running",
        "started": _now(),
        "command": provenance.command(),
        "git": provenance.git(),
        "versions": provenance.versions(),
        "kernel": provenance.kernel(),
        "cpu": provenance.cpu(),
        "scenario_sha256": provenance.digest(text),
        "rtt_base_ns": timing.rtt_base_ns(scenario),
        "wall_offset_ns": time.time_ns() - time.monotonic_ns(),
    }


def _measured(scenario: Scenario, outcome: Outcome) -> Manifest:
    """What the sandbox reported. Absolute times are CLOCK_MONOTONIC; the first manifest has the offset to wall-clock time."""
    found: Manifest = {
        "bringup_s": outcome.bringup_s,
        "teardown_s": outcome.teardown_s,
        "delay_method": outcome.delay_method,
        "transport_build": outcome.transport_build,
        "kernel_flows": outcome.kernel_flows,
        "bgp_converged_s": outcome.bgp_converged_s,
        "bgp_missing": outcome.bgp_missing,
        "kernel_parameters": outcome.kernel_parameters,
        "rtt_measured": outcome.rtt_measured,
        "counters": outcome.counters,
        "socket_drops": {host: counters["receive_buffer_drops"] for host, counters in outcome.counters.items() if counters},
        "fabric_failures": outcome.fabric_failures,
        "stop_ns": outcome.stop_ns,
        "drained_ns": outcome.drained_ns,
    }
    if outcome.t0_ns is not None:
        measure = scenario.measure
        found["t0_ns"] = outcome.t0_ns
        found["window_ns"] = [outcome.t0_ns + measure.warmup_ns, outcome.t0_ns + measure.duration_ns]
    return found


def _how_it_ended(ended: int, folder: ResultsFolder) -> tuple[ExitStatus, str | None]:
    """The sandbox's exit status, with an error where it is not one of ours or carries none."""
    try:
        status = ExitStatus(ended)
    except ValueError:
        known = {int(number): number.name for number in signal.Signals}
        return ExitStatus.BROKEN, f"the run's process was ended from outside ({known.get(ended - 128, f'status {ended}')})"
    places = "above and logs/" if folder.logs.is_dir() else "above"
    return status, f"the run broke; see {places}" if status is ExitStatus.BROKEN else None


def _judge(
    scenario: Scenario,
    folder: ResultsFolder,
    manifest: Manifest,
    outcome: Outcome,
    options: Options,
    status: ExitStatus,
    error: str | None,
) -> tuple[ExitStatus, str | None, Summary]:
    """Tables, verdict, figures and report. Trouble here joins what went wrong before instead of hiding it."""
    try:
        folder.write_manifest(manifest)
        if outcome.t0_ns is None:
            folder.drop_raw()
            return status, error, judging.bare(scenario, folder, status, error)
        summary = judging.judge(scenario, folder, outcome, figures=options.figures)
        return combine([status, of_word(summary["status"])]), error, summary
    except OSError as failure:
        status, trouble = combine([status, ExitStatus.BROKEN]), f"{results.broken(folder, failure)}; {_go_on(folder)}"
    except TestbedError as failure:
        status, trouble = combine([status, ExitStatus.BROKEN]), f"{failure}; {_go_on(folder)}"
    error = "\n".join(filter(None, [error, trouble]))
    return status, error, judging.bare(scenario, folder, status, error)


def recollect(folder: ResultsFolder, scenario: Scenario) -> Summary:
    """Work out the results of a run that was killed before it could. RunError when it recorded nothing."""
    outcome = traffic.read_outcome(folder.outcome)
    if outcome is None or outcome.t0_ns is None:
        raise RunError(f"{folder.path}: no traffic was recorded there")
    manifest = folder.read_manifest() | _measured(scenario, outcome)
    manifest |= {"status": WORDS[ExitStatus.INTERRUPTED], "error": "killed; collected afterwards"}
    folder.write_manifest(manifest)
    return judging.judge(scenario, folder, outcome, figures=True)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
