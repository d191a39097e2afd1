"""The multi-plane Clos as a Mininet topology, also for Mininet's own runner:

    PYTHONPATH=. mn --custom testbed/fabric/topo.py --topo multiplane,PLANES,T0_GROUPS,T1_PER_PLANE,HOSTS_PER_T0

Stock Mininet then brings up nodes and links only: no SIDs, no shaping, no port program; `python -m testbed shell` gives all.
Mind that `mn` works in the namespaces it is started in and, when it fails, cleans up the whole machine by name pattern
(also /tmp/*.log): start it in a sandbox.
"""

from __future__ import annotations

from typing import Any

from mininet.topo import Topo

from testbed.model.scenario import TopologySpec
from testbed.model.topology import Topology, build
from testbed.model.usid import inner_address


class MultiPlaneTopo(Topo):  # type: ignore[misc]
    """`planes`, `t0_groups`, `t1_per_plane`, `hosts_per_t0` as in a scenario, or a `topology` built already."""

    def build(
        self,
        planes: int = 2,
        t0_groups: int = 2,
        t1_per_plane: int = 2,
        hosts_per_t0: int = 2,
        topology: Topology | None = None,
        **_params: Any,
    ) -> None:
        plan = topology or build(TopologySpec(int(planes), int(t0_groups), int(t1_per_plane), int(hosts_per_t0)))
        for index, host in enumerate(plan.hosts):
            self.addHost(host, inner=str(inner_address(index)))
        for number, switch in enumerate(plan.switches):
            # Given explicitly: Mininet derives it from the first number in the name, which would not be unique.
            self.addSwitch(switch, dpid=f"{number + 1:016x}")
        for link in plan.links:
            self.addLink(link.lower.node, link.upper.node, port1=link.lower.number, port2=link.upper.number)


topos = {"multiplane": MultiPlaneTopo}  # what `mn --custom` looks for
