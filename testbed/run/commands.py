"""The commands of `python3 -m testbed`. Each imports what it needs when it is asked for."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from ipaddress import AddressValueError, IPv6Address
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.errors import ExitStatus, MissingCapability, Problem, ScenarioError, TestbedError
from testbed.run import arguments
from testbed.venv import ROOT

if TYPE_CHECKING:
    from testbed.model.scenario import Scenario
    from testbed.model.topology import Topology

EXAMPLES = """\
examples:
  python3 -m testbed doctor                       what this machine has and lacks
  python3 -m testbed plan quickstart              sizes, rates, round trip, frames in flight, expected load
  python3 -m testbed paths quickstart h0 h5       every EV of a pair: its hops and its uSID address
  python3 -m testbed paths --decode 5f00:2:1000:2003:1001:4005::
  python3 -m testbed verify quickstart            build the fabric, read every route back, probe every path
  python3 -m testbed shell quickstart             the fabric without traffic, under Mininet's CLI
  python3 -m testbed exec quickstart h0 ip -6 route
  python3 -m testbed collect results/NAME/RUN     tables and report of a run that was killed
  python3 -m testbed nightly --suite=nightly      a suite, its regression, the history, and old results deleted
  python3 -m testbed prune results --days 30      old results deleted
"""


def main(argv: Sequence[str]) -> int:
    """Run one command and return its exit status (DESIGN 4.1)."""
    options = _parser().parse_args(argv)
    command: Callable[[argparse.Namespace], int] = options.run
    try:
        return int(command(options))
    except TestbedError as error:
        print(error, file=sys.stderr)
        return int(error.exit_status)
    except KeyboardInterrupt:
        return int(ExitStatus.INTERRUPTED)


def _parser() -> arguments.Parser:
    parser = arguments.Parser(
        prog="python3 -m testbed",
        description="Look at the machine, a scenario and its fabric.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_subparsers(required=True, metavar="COMMAND").add_parser
    add("doctor", help="what this machine has and lacks").set_defaults(run=_doctor)
    plan = add("plan", help="what a scenario amounts to, before it runs")
    plan.set_defaults(run=_plan)
    _scenario_arguments(plan)
    paths = add("paths", help="EVs, hops and addresses of a host pair; or decode an address")
    paths.set_defaults(run=_paths)
    _scenario_arguments(paths, optional=True)
    paths.add_argument("source", nargs="?", metavar="FROM", help="a host, e.g. h0")
    paths.add_argument("target", nargs="?", metavar="TO", help="another host")
    paths.add_argument("--decode", metavar="ADDRESS", help="name the nodes of a uSID address in order of travel")
    verify = add("verify", help="build the fabric, read every route back, probe every path")
    verify.set_defaults(run=_verify)
    _scenario_arguments(verify)
    collect = add("collect", help="tables and report of a run that was killed before it could write them")
    collect.set_defaults(run=_collect)
    collect.add_argument("folder", type=Path)
    from testbed.run import night_commands

    night_commands.add_to(add)
    shell = add("shell", help="build the fabric and open Mininet's CLI in it; no traffic")
    shell.set_defaults(run=_shell)
    _scenario_arguments(shell)
    execute = add("exec", help="build the fabric and run one command in one of its nodes")
    execute.set_defaults(run=_exec)
    _scenario_arguments(execute)
    execute.add_argument("node", metavar="NODE", help="a host or a switch, e.g. h0 or p0t1-2")
    execute.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND ...")
    return parser


def _scenario_arguments(parser: argparse.ArgumentParser, *, optional: bool = False) -> None:
    parser.add_argument("scenario", nargs="?" if optional else None, metavar="NAME|FILE")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="override one key (repeatable)")
    parser.add_argument("--seed", type=arguments.whole(0), metavar="N")


def _load(options: argparse.Namespace) -> tuple[Scenario, Topology]:
    from testbed.model import load
    from testbed.model.topology import build

    scenario = load.load(load.find(options.scenario, ROOT), options.set, options.seed)
    for warning in scenario.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    return scenario, build(scenario.topology)


def _doctor(_: argparse.Namespace) -> ExitStatus:
    from testbed.fabric import doctor

    print(doctor.report())
    return ExitStatus.MISSING_CAPABILITY if doctor.missing(None) else ExitStatus.PASSED


def _plan(options: argparse.Namespace) -> ExitStatus:
    from testbed.model import plan

    print(plan.summary(*_load(options), cores=os.cpu_count() or 1))
    return ExitStatus.PASSED


def _paths(options: argparse.Namespace) -> ExitStatus:
    if options.decode is not None:
        print(_decoded(options.decode))
        return ExitStatus.PASSED
    if options.target is None:
        raise _wrong("", "needs a scenario and two hosts, or --decode ADDRESS", "python3 -m testbed paths quickstart h0 h5")
    from testbed.model import evs

    scenario, topology = _load(options)
    ends = []
    for name in (options.source, options.target):
        if name not in topology.hosts:
            raise _wrong(name, "is not a host of this scenario", f"hosts are {topology.hosts[0]} to {topology.hosts[-1]}")
        ends.append(topology.hosts.index(name))
    if ends[0] == ends[1]:
        raise _wrong(options.source, "has no path to itself", "")
    print(f"{'EV':>8}  {'plane':>5}  {'address':<40}  hops")
    found = evs.given(scenario.transport, scenario.seed, topology, *ends)
    denied = evs.denied_at_start(scenario.transport, found, *ends)
    active = evs.active(scenario.transport, found)
    for path in sorted(found, key=lambda path: path.ev):
        hops = " ".join((options.source, *path.hops, options.target))
        note = "  denied" if path in denied else "" if path in active else "  backup"
        print(f"{path.ev:>8}  {path.plane:>5}  {path.address!s:<40}  {hops}{note}")
    return ExitStatus.PASSED


def _decoded(text: str) -> str:
    from testbed.model import usid

    try:
        plane, nodes = usid.decode(IPv6Address(text))
    except AddressValueError:
        raise _wrong(text, "is not an IPv6 address", "for example 5f00:2:1000:2003:1001:4005::") from None
    except ValueError as error:
        raise _wrong(text, str(error), "the plan is in testbed/model/usid.py") from None
    return f"plane {plane}: {' '.join(nodes) or 'no node'}"


def _verify(options: argparse.Namespace) -> ExitStatus:
    from testbed.fabric import doctor, sandbox
    from testbed.run import verification

    scenario, topology = _load(options)
    missing = doctor.missing(scenario)
    if missing:
        raise MissingCapability(list(missing))
    ended = sandbox.run_in_sandbox(lambda: verification.run(scenario, topology))
    return ExitStatus(ended) if ended in set(ExitStatus) else ExitStatus.BROKEN


def _collect(options: argparse.Namespace) -> ExitStatus:
    from testbed.model import load
    from testbed.run import experiment
    from testbed.run.results import ResultsFolder

    folder = ResultsFolder(options.folder.resolve())
    if not folder.live.is_dir():
        raise _wrong(str(options.folder), "holds no raw records", "a run that ended in order has its tables already")
    experiment.recollect(folder, load.load(folder.path / "scenario.yaml"))
    print(folder.path / "report.html")
    return ExitStatus.PASSED


def _shell(options: argparse.Namespace) -> ExitStatus:
    from testbed.fabric import doctor, sandbox
    from testbed.run import shell

    scenario, topology = _load(options)
    missing = doctor.missing(scenario, cli=True)
    if missing:
        raise MissingCapability(list(missing))
    ended = sandbox.run_in_sandbox(lambda: shell.shell(scenario, topology))
    return ExitStatus(ended) if ended in set(ExitStatus) else ExitStatus.BROKEN


def _exec(options: argparse.Namespace) -> int:
    """The command's own exit status."""
    from testbed.fabric import doctor, sandbox
    from testbed.model import fields
    from testbed.run import shell

    scenario, topology = _load(options)
    nodes = (*topology.hosts, *topology.switches)
    if options.node not in nodes:
        raise _wrong(options.node, "is not a node of this scenario", fields.close(options.node, nodes))
    if not options.command:
        raise _wrong("exec", "needs a command", "python3 -m testbed exec quickstart h0 ip -6 route")
    missing = doctor.missing(scenario)
    if missing:
        raise MissingCapability(list(missing))
    return sandbox.run_in_sandbox(lambda: shell.execute(scenario, topology, options.node, options.command))


def _wrong(what: str, message: str, hint: str) -> ScenarioError:
    return ScenarioError([Problem(what or "paths", 0, "", message, hint)])
