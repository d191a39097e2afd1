"""Which way the switches' hash sends each flow, found out before traffic starts, where routing lets switches choose."""

from __future__ import annotations

from typing import Any

from testbed.fabric.network import Fabric
from testbed.fabric.tracing import Tracer
from testbed.model.codepoints import ROCE_PORT
from testbed.model.paths import ev_of
from testbed.model.topology import Topology

Connection = dict[str, Any]


def trace_queue_pairs(fabric: Fabric, topology: Topology, connections: list[Connection]) -> None:
    """Give every connection its `evs`: one per plane, the T1 in it that its 5-tuple takes.

    A QP is hashed onto one plane by its host; onto another only while that port has no carrier.
    """
    tracer = Tracer(fabric)
    try:
        for connection in connections:
            source, target = (topology.hosts.index(connection[end]) for end in ("host", "peer"))
            if topology.group_of(source) != topology.group_of(target):
                connection["evs"] = [
                    ev_of(plane, tracer.tunnelled(source, target, plane, connection["host_port"], ROCE_PORT))
                    for plane in range(topology.spec.planes)
                ]
    finally:
        tracer.close()
