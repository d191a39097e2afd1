"""The command line of run_experiment.py. Imports what a command needs when it needs it: `--help` answers at once."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.errors import ExitStatus, TestbedError
from testbed.run import arguments
from testbed.venv import ROOT

if TYPE_CHECKING:
    from testbed.model.scenario import Scenario
    from testbed.run.display import Display
    from testbed.run.experiment import Result

EXAMPLES = """\
examples:
  ./run_experiment.py quickstart                                the first one to try
  ./run_experiment.py quickstart --seed 7 --set measure.duration=10s
  ./run_experiment.py my-scenario.yaml --repeat 3 --json        three seeds, summaries on standard output
  ./run_experiment.py quickstart --pcap h0:0 --pcap p0t1-2:1    capture two ports while it runs
  ./run_experiment.py quickstart --cli                          Mininet's CLI in the fabric after the traffic
  ./run_experiment.py --suite=quick                             several scenarios, one table, one verdict
  ./run_experiment.py quickstart --sweep transport.evs=8,24,128 --sweep links.delay=5ms,20ms --repeat 3
  ./run_experiment.py --list
  ./run_experiment.py --validate my-scenario.yaml

exit status: 0 every expectation holds, 1 one failed, 2 scenario or command line wrong, 3 the machine lacks something,
4 the machine was too slow (invalid), 5 the run broke, 130 interrupted
"""


def main(argv: Sequence[str]) -> int:
    """Do what the command line says and return the exit status."""
    for number in (signal.SIGTERM, signal.SIGHUP):  # a supervisor's wish, or a closed terminal, is as good as Ctrl-C
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler)
    try:
        return int(_command(_parser().parse_args(argv)))
    except TestbedError as error:
        print(error, file=sys.stderr)
        return int(error.exit_status)
    except KeyboardInterrupt:
        return int(ExitStatus.INTERRUPTED)


def _parser() -> arguments.Parser:
    parser = arguments.Parser(
        prog="run_experiment.py",
        description="Run one scenario in a fabric of its own and leave a results folder. Needs root.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("scenario", nargs="?", metavar="NAME|FILE", help="a scenario of scenarios/ by name, or a YAML file")
    add("--set", action="append", default=[], metavar="KEY=VALUE", help="override one key, e.g. links.delay=5ms (repeatable)")
    add("--seed", type=arguments.whole(0), metavar="N", help="replaces the scenario's seed")
    add("--repeat", type=arguments.whole(1), metavar="N", help="run N times, with seeds counting up from the first")
    add("--out", type=Path, default=ROOT / "results", metavar="DIR", help="where results go (default: results/)")
    add("--pcap", action="append", default=[], metavar="NODE:PORT", help="capture a port, by number or name (repeatable)")
    add("--cli", action="store_true", help="open Mininet's CLI in the fabric when the traffic has ended, before it goes down")
    add("--no-figures", action="store_true", help="tables, summary and report only")
    add("--quiet", action="store_true", help="no progress, no closing lines; errors still show")
    add("--json", action="store_true", help="print summary.json on standard output and nothing else there")
    add("--list", action="store_true", help="name the scenarios there are")
    add("--validate", action="store_true", help="check the scenario and stop")
    add("--suite", metavar="NAME|FILE", help="run the members of a suite one after another, with one table and one verdict")
    add(
        "--sweep",
        action="append",
        default=[],
        metavar="KEY=VALUES",
        help="run the scenario for every value, a,b,c or 1..8 (repeatable: every combination), with one table",
    )
    add(
        "--engine",
        choices=("local", "dask"),
        default="local",
        help="where a suite or sweep runs: here (default), or on Dask workers",
    )
    add("--scheduler", metavar="ADDRESS", help="of the Dask scheduler, tcp://HOST:8786")
    add("--resume", action="store_true", help="go on with the newest suite or sweep of that name where it was interrupted")
    return parser


def _command(options: argparse.Namespace) -> ExitStatus:
    if options.list:
        return _list(as_json=options.json)
    if options.suite is not None or options.sweep:
        from testbed.run import many

        return many.command(options)
    if options.resume:
        return _refuse("--resume goes on with a suite or a sweep: give --suite=NAME, or the scenario with its --sweep")
    if options.scenario is None:
        return _refuse("which scenario? A name or a file; --list names those there are, --help shows examples")
    if options.cli and options.json:
        return _refuse("--cli and --json both want standard output: give one of them")
    scenario = _load(options, options.seed)
    for warning in scenario.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    if options.validate:
        if not options.quiet:
            print(f"{scenario.name}: valid", file=sys.stderr if options.json else sys.stdout)
        return ExitStatus.PASSED
    return _run(options, scenario)


def _load(options: argparse.Namespace, seed: int | None) -> Scenario:
    from testbed.model import load

    return load.load(load.find(options.scenario, ROOT), options.set, seed)


def _run(options: argparse.Namespace, scenario: Scenario) -> ExitStatus:
    from testbed.model import plan
    from testbed.run import closing, experiment
    from testbed.run.display import Display
    from testbed.run.status import combine

    display = Display(sys.stderr, quiet=options.quiet)
    for warning in plan.few_frames(scenario):
        display.say(f"warning: {warning}")
    wanted = experiment.Options(options.out, figures=not options.no_figures, pcap=tuple(options.pcap), cli=options.cli)
    done: list[Result] = []
    for number in range(options.repeat or 1):
        if number:
            scenario = _load(options, scenario.seed + 1)
        result = experiment.run(scenario, wanted, display)
        done.append(result)
        _report(result, display, closing.lines(result))
        if result.status is ExitStatus.INTERRUPTED:
            break
    if options.json:
        summaries: list[dict[str, Any]] = [result.summary for result in done]
        print(json.dumps(summaries if options.repeat is not None else summaries[0], indent=2))
    return combine(result.status for result in done)


def _report(result: Result, display: Display, lines: list[str]) -> None:
    if result.error:
        print(result.error, file=sys.stderr)
    for line in lines:
        display.say(line)


def _list(*, as_json: bool) -> ExitStatus:
    from testbed.model import load

    found = load.available(ROOT)
    if as_json:
        print(json.dumps([{"name": name, "description": description} for name, description in found], indent=2))
        return ExitStatus.PASSED
    width = max((len(name) for name, _ in found), default=0)
    for name, description in found:
        print(f"{name:<{width}}  {' '.join(description.split())}")
    return ExitStatus.PASSED


def _refuse(message: str) -> ExitStatus:
    print(message, file=sys.stderr)
    return ExitStatus.BAD_INPUT
