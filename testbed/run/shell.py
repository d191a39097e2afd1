"""`shell` and `exec`: a scenario's fabric without traffic, for a person's hands."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence

from testbed.errors import ExitStatus
from testbed.fabric import cli
from testbed.fabric.network import Fabric
from testbed.model import tcp
from testbed.model.scenario import Scenario
from testbed.model.topology import Topology
from testbed.run.traffic import RUNTIME


def shell(scenario: Scenario, topology: Topology) -> int:
    """The sandbox's main: fabric up, CLI until `exit` or the end of the input, fabric down."""
    fabric = _up(scenario, topology)
    try:
        cli.interact(fabric.net, sys.stdin)
    finally:
        fabric.down()
    return int(ExitStatus.PASSED)


def execute(scenario: Scenario, topology: Topology, node: str, command: Sequence[str]) -> int:
    """The sandbox's main: one command in one node of the fabric. Returns the command's own status (127: not found)."""
    fabric = _up(scenario, topology)
    try:
        with fabric.namespaces.inside(node):
            try:
                return subprocess.run(list(command), check=False).returncode
            except OSError as error:
                print(f"{command[0]}: {error.strerror}", file=sys.stderr)
                return 127
    finally:
        fabric.down()


def _up(scenario: Scenario, topology: Topology) -> Fabric:
    began = time.monotonic()
    RUNTIME.mkdir()
    fabric = Fabric(topology, scenario.links, scenario.switch, RUNTIME, scenario.routing, stack=tcp.stack(scenario, topology))
    fabric.up()
    hosts, switches = len(topology.hosts), len(topology.switches)
    print(f"{scenario.name}: {hosts} hosts, {switches} switches, up in {time.monotonic() - began:.2f} s", file=sys.stderr)
    return fabric
