"""`verify`: the fabric of a scenario built, every static route read back, a probe along every path, everything gone again."""

from __future__ import annotations

import sys
import time

from testbed.errors import ExitStatus
from testbed.fabric.network import Fabric
from testbed.fabric.verify import verify
from testbed.model import tcp
from testbed.model.scenario import Scenario
from testbed.model.topology import Topology
from testbed.run.traffic import RUNTIME


def run(scenario: Scenario, topology: Topology) -> int:
    """The sandbox's main. BROKEN when the fabric is not what was planned."""
    began = time.monotonic()
    RUNTIME.mkdir()
    fabric = Fabric(topology, scenario.links, scenario.switch, RUNTIME, scenario.routing, stack=tcp.stack(scenario, topology))
    fabric.up()
    up_s = time.monotonic() - began
    wraps = fabric.stack is not None and bool(fabric.stack.tunnels)
    report = verify(fabric, topology, () if wraps else None)  # hosts that unwrap what comes would swallow the probes
    began = time.monotonic()
    fabric.down()
    down_s = time.monotonic() - began
    print(
        f"{scenario.name}: up in {up_s:.2f} s, {report.routes_checked} routes read back,"
        f" {report.paths_probed} paths probed, {len(report.problems)} problems, down in {down_s:.2f} s"
    )
    for problem in report.problems:
        print(problem, file=sys.stderr)
    return int(ExitStatus.BROKEN if report.problems else ExitStatus.PASSED)
