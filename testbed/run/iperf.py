"""Runs whose flows are the kernel's: what each host's iperf3 process is told, and what became of every flow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from testbed.model import tcp
from testbed.model.scenario import Scenario, TransportKind
from testbed.model.tcp import Connection
from testbed.model.topology import Topology, host_name
from testbed.run.hosts import PYTHON

COMMAND = (*PYTHON, "testbed.iperf")
OF_MPTCP = ("mptcpize", "run", *COMMAND)  # every TCP socket that is opened becomes MPTCP's
LIMIT_SHARE = 0.8  # of the drain: a flow that has not ended by then is ended, and the rest is for telling
LIMIT_MIN_NS = 2_000_000_000  # iperf3 ends on whole seconds

Report = dict[str, Any]


def command(scenario: Scenario) -> tuple[str, ...]:
    """What a host process is started with."""
    return OF_MPTCP if scenario.transport.kind is TransportKind.MPTCP else COMMAND


def plans(
    scenario: Scenario, topology: Topology, connections: Sequence[Connection], evs: Mapping[int, list[int]], records: Path
) -> list[dict[str, Any]]:
    """One plan per host that takes part in a flow, in host order. `evs`: of each flow, as `flowpaths.trace_tcp` gives them."""
    hosts = sorted({host for one in connections for host in (one.flow.source, one.flow.target)})
    return [_plan(scenario, topology, [one for one in connections if host in _ends(one)], evs, records, host) for host in hosts]


def _ends(one: Connection) -> tuple[int, int]:
    return one.flow.source, one.flow.target


def _plan(
    scenario: Scenario,
    topology: Topology,
    mine: Sequence[Connection],
    evs: Mapping[int, list[int]],
    records: Path,
    host: int,
) -> dict[str, Any]:
    name = host_name(host)
    mptcp = scenario.transport.kind is TransportKind.MPTCP
    peers = sorted({end for one in mine for end in _ends(one)})
    every = range(topology.spec.planes) if mptcp else ()
    planes = {str(tcp.address(scenario, plane, peer)): plane for peer in peers for plane in every}
    device = next((port.name for port, link in topology.ports_of(name) if link.plane == 0), "") if mptcp else ""
    return {
        "host": name,
        "records": str(records / name),
        "interval_ns": scenario.measure.interval_ns,
        "limit_ns": max(LIMIT_MIN_NS, int(LIMIT_SHARE * scenario.measure.drain_ns)),
        "mptcp": mptcp,
        "congestion": scenario.transport.cc,
        "planes": planes,
        "plane_of_flow": {} if mptcp else {str(flow): found[0] >> 16 for flow, found in evs.items() if found},
        "flows": [
            {
                "flow": one.flow.id,
                "sends": one.flow.source == host,
                "address": str(one.target),
                "source": str(one.source),
                "device": device,
                "port": one.port,
                "client_port": one.client_port,
                "start_ns": one.flow.start_ns,
                "seconds": tcp.seconds(one.flow, scenario.measure.duration_ns),
            }
            for one in mine
        ],
    }


def described(one: Connection, evs: Sequence[int]) -> dict[str, Any]:
    """A flow for connections.json. `evs`: paths that it takes; empty where they are not known."""
    return {
        "flow": one.flow.id,
        "job": one.flow.job,
        "workload": one.flow.workload,
        "host": host_name(one.flow.source),
        "peer": host_name(one.flow.target),
        "source": str(one.source),
        "target": str(one.target),
        "port": one.port,
        "client_port": one.client_port,
        "evs": list(evs),
    }


def outcome(
    scenario: Scenario,
    connections: Sequence[Connection],
    evs: Mapping[int, list[int]],
    byes: Mapping[str, Mapping[str, Any]],
) -> list[Report]:
    """What the manifest says of every flow, from what its two hosts said on leaving. `failure` is empty for a sound one."""
    told = {(host, one["flow"]): one for host, bye in byes.items() for one in bye.get("flows", ())}
    wanted = scenario.topology.planes if scenario.transport.kind is TransportKind.MPTCP else 0
    return [_outcome(one, told, wanted) | {"evs": evs[one.flow.id]} for one in connections]


def _outcome(one: Connection, told: Mapping[tuple[str, int], Mapping[str, Any]], wanted: int) -> Report:
    names = host_name(one.flow.source), host_name(one.flow.target)
    ends = [told.get((name, one.flow.id)) for name in names]
    report: Report = {"flow": one.flow.id, "host": names[0], "peer": names[1]}
    failures = []
    for name, end in zip(names, ends, strict=True):
        if end is None:
            failures.append(f"{name} did not live to tell")
        elif end["failure"]:
            failures.append(f"{name}: {end['failure']}")
        elif wanted and (len(end["subflows"]) != wanted or sum(end["subflows"].values()) != wanted):
            failures.append(f"{name} had {sum(end['subflows'].values())} subflows on {len(end['subflows'])} of {wanted} planes")
    report["failure"] = "; ".join(failures)
    sender, receiver = ends
    if sender is not None:
        report |= {
            "subflows_at_sender": sum(sender["subflows"].values()),
            "congestion_control": sender["congestion"],
            "segments": sender["segments"],
            "retransmissions": sender["retransmissions"],
            "iperf3_sender": sender["iperf3"],
        }
    if receiver is not None:
        report |= {
            "subflows_at_receiver": sum(receiver["subflows"].values()),
            "placed_bytes": receiver["placed_bytes"],
            "iperf3_receiver": receiver["iperf3"],
        }
    return report
