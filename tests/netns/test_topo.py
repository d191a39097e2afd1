"""The Mininet topology is the model's, whoever builds it."""

from __future__ import annotations

import runpy

from testbed.model.scenario import TopologySpec
from testbed.model.topology import build


def test_the_custom_file_gives_mn_the_models_nodes_links_and_ports() -> None:
    """As `mn --custom FILE --topo multiplane,3,2,2,2` does it: run the file, look up `topos`, pass strings."""
    defined = runpy.run_path("testbed/fabric/topo.py")
    topo = defined["topos"]["multiplane"]("3", "2", "2", "2")
    model = build(TopologySpec(3, 2, 2, 2))
    assert sorted(topo.hosts()) == sorted(model.hosts)
    assert sorted(topo.switches()) == sorted(model.switches)
    dpids = [topo.nodeInfo(switch)["dpid"] for switch in topo.switches()]
    assert len(set(dpids)) == len(dpids)
    ends = {
        frozenset([(info["node1"], info["port1"]), (info["node2"], info["port2"])]) for _, _, info in topo.links(withInfo=True)
    }
    assert ends == {
        frozenset([(link.lower.node, link.lower.number), (link.upper.node, link.upper.number)]) for link in model.links
    }
