"""`--suite` and `--sweep` on the command line of run_experiment.py."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path

from testbed.errors import ExitStatus, Problem, ScenarioError
from testbed.model import load, suite, sweep
from testbed.run import suites
from testbed.run.batch import Engine, Local
from testbed.run.display import Display
from testbed.venv import ROOT

ONE_RUN = (("cli", "--cli"), ("pcap", "--pcap"))  # what belongs to a single run


def command(options: argparse.Namespace) -> ExitStatus:
    """Load the suite or the sweep, run it and print what it came to."""
    for name, option in ONE_RUN:
        if getattr(options, name):
            raise _refused(option, "belongs to a single run", "leave out --suite and --sweep")
    wanted = _wanted(options)
    for warning in wanted.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    if options.validate:
        if not options.quiet:
            print(f"{wanted.name}: valid, {len(wanted.members)} members", file=sys.stderr if options.json else sys.stdout)
        return ExitStatus.PASSED
    display = Display(sys.stderr, quiet=options.quiet)
    engine, figures = _engine(options, wanted), not options.no_figures
    done = suites.run(wanted, options.out, display, engine, resume=options.resume, figures=figures)
    for line in done.lines:
        display.say(line)
    if options.json:
        print(json.dumps(done.claims, indent=2))
    return done.status


def _wanted(options: argparse.Namespace) -> suite.Suite:
    if options.suite is None:
        if options.scenario is None:
            raise _refused("--sweep", "which scenario?", "./run_experiment.py NAME --sweep KEY=a,b,c")
        base = load.find(options.scenario, ROOT)
        return sweep.load_sweep(base, options.sweep, suite.Given(tuple(options.set), options.seed, options.repeat))
    if options.scenario is not None or options.sweep:
        raise _refused("--suite", "a suite names its own scenarios", "leave out the scenario and --sweep")
    file = load.find(options.suite, ROOT)
    if not suite.is_suite(file):
        raise ScenarioError([suite.no_suite(file)])
    return suite.load_suite(file, ROOT, suite.Given(tuple(options.set), options.seed, options.repeat))


def _engine(options: argparse.Namespace, wanted: suite.Suite) -> Callable[[Path], Engine]:
    figures = not options.no_figures
    if options.engine == "local":
        if options.scheduler:
            raise _refused("--scheduler", "belongs to --engine dask", "")
        return lambda folder: Local(folder, figures=figures)
    if not options.scheduler:
        raise _refused("--engine", "dask needs a scheduler", "--scheduler tcp://HOST:8786")
    from testbed.run.daskengine import Dask

    return lambda folder: Dask(folder, options.scheduler, wanted, figures=figures)


def _refused(what: str, message: str, hint: str) -> ScenarioError:
    return ScenarioError([Problem(what, 0, "", message, hint)])
