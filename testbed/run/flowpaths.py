"""Which way the switches' hash sends each flow, found out before traffic starts, where routing lets switches choose."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from testbed.fabric.network import Fabric
from testbed.fabric.tracing import Tracer
from testbed.model import tcp
from testbed.model.codepoints import ROCE_PORT
from testbed.model.paths import ev_of
from testbed.model.scenario import Scenario, TransportKind
from testbed.model.topology import Topology

Connection = dict[str, Any]


def of_tcp(fabric: Fabric, scenario: Scenario, found: Sequence[tcp.Connection]) -> dict[int, list[int]]:
    """The EVs of each TCP or MPTCP flow, by its id; empty where they cannot be known before: of MPTCP's further subflows, which
    take ports of their own, and of anything that is hashed by its flow label.
    """
    if not scenario.routing.hashes:
        return {one.flow.id: [path.ev for path in one.paths] for one in found}
    if scenario.transport.kind is TransportKind.MPTCP or scenario.routing.hash_policy == 0:
        return {one.flow.id: [] for one in found}
    tracer = Tracer(fabric)
    try:
        return {one.flow.id: [tracer.tcp(one.flow.source, one.flow.target, _ends(one))] for one in found}
    finally:
        tracer.close()


def _ends(one: tcp.Connection) -> tuple[tuple[str, int], tuple[str, int]]:
    return (str(one.source), one.client_port), (str(one.target), one.port)


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
