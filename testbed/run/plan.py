"""Scenario and topology -> the plan each host process is given. Pure: the same scenario and seed give the same plans."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from testbed.fabric.queues import shaper
from testbed.model import evs, hashed, jobs, sizes, timing, usid
from testbed.model.flows import Flow
from testbed.model.scenario import Scenario, TransportKind, WorkloadKind, WorkloadSpec
from testbed.model.topology import Tier, Topology, host_name

HostPlan = dict[str, Any]


def host_plans(scenario: Scenario, topology: Topology, flows: Sequence[Flow], records: Path) -> list[HostPlan]:
    """One plan per host that takes part in a flow, in host order. `records` is where each gets its own folder."""
    hosts = sorted({host for flow in flows for host in (flow.source, flow.target)})
    return [_host_plan(scenario, topology, flows, records, host) for host in hosts]


def _host_plan(scenario: Scenario, topology: Topology, flows: Sequence[Flow], records: Path, host: int) -> HostPlan:
    name = host_name(host)
    mine = [flow for flow in flows if host in (flow.source, flow.target)]
    peers = sorted({flow.target if flow.source == host else flow.source for flow in mine})
    return {
        "host": name,
        "index": host,
        "seed": scenario.seed,
        "records": str(records / name),
        "inner": str(usid.inner_address(host)),
        "ports": _ports(scenario, topology, host),
        "overhead_bytes": scenario.links.overhead_bytes,
        "interval_ns": scenario.measure.interval_ns,
        "trace": scenario.measure.trace,
        "qps": scenario.transport.qps,
        "transport": _transport(scenario),
        "peers": [_peer(scenario, topology, host, peer) for peer in peers],
        "flows": [_flow(flow) for flow in mine],
        "jobs": [
            _job(scenario, index, spec, [flow.id for flow in mine if flow.workload == index])
            for index, spec in enumerate(scenario.workload)
            if host in spec.hosts and spec.kind in (*jobs.LOCKSTEP, WorkloadKind.POISSON)
        ],
    }


def _ports(scenario: Scenario, topology: Topology, host: int) -> list[dict[str, Any]]:
    links = [link for link in topology.links if link.tier is Tier.NIC_T0 and link.lower.node == host_name(host)]
    return [
        {
            "plane": link.plane,
            "interface": link.lower.name,
            "rate_bps": scenario.links.rate_bps,
            "bucket_bytes": shaper(link, scenario.links).burst,
            "sid": str(usid.host_sid(link.plane, host)),
        }
        for link in links
    ]


def _transport(scenario: Scenario) -> dict[str, Any]:
    spec = scenario.transport
    timers = {"timeout_n": spec.timeout_n, "linear": spec.timeout_linear, "exponential": spec.timeout_exponential}
    if spec.kind is TransportKind.RC:
        return {
            "kind": spec.kind.value,
            "payload": spec.payload,
            "cc": spec.cc,
            "window_bytes": spec.window_frames * spec.payload,
            "ack_bytes": spec.sack_bytes,
            "rtt_base_ns": timing.rtt_base_ns(scenario),
            "limits": timers,
        }
    own = {"policy_text": spec.policy_text} if spec.policy_text else {}
    return own | {
        "kind": spec.kind.value,
        "payload": spec.payload,
        "policy": spec.policy,
        "cc": spec.cc,
        "backpressure": spec.backpressure,
        "window_bytes": timing.window_bytes(scenario),
        "bdp_bytes": timing.bdp_bytes(scenario),
        "sack_bytes": spec.sack_bytes,
        "probes": spec.probes,
        "reshuffle": spec.reshuffle,
        "active_evs": spec.active_evs,
        "replacement": spec.replacement,
        "probe_interval_ns": spec.probe_interval_ns,
        "probe_answers": spec.probe_count,
        "rtt_base_ns": timing.rtt_base_ns(scenario),
        "limits": {
            "mpr": spec.mpr,
            "mpr_dest": spec.mpr_dest,
            "dynamic_mpr": spec.dynamic_mpr,
            "max_wimm": spec.max_wimm,
            "max_wimm_dest": spec.max_wimm_dest,
            **timers,
        },
    }


def _peer(scenario: Scenario, topology: Topology, host: int, peer: int) -> dict[str, Any]:
    if scenario.routing.hashes:
        found = hashed.plane_paths(topology, host, peer)
    else:
        found = evs.given(scenario.transport, scenario.seed, topology, host, peer)
    return {
        "host": host_name(peer),
        "index": peer,
        "inner": str(usid.inner_address(peer)),
        "paths": [{"ev": path.ev, "plane": path.plane, "address": str(path.address)} for path in found],
        "denied": [path.ev for path in evs.denied_at_start(scenario.transport, found, host, peer)],
    }


def _flow(flow: Flow) -> dict[str, Any]:
    return {
        "flow": flow.id,
        "source": host_name(flow.source),
        "target": host_name(flow.target),
        "message": flow.message,
        "depth": flow.depth,
        "start_ns": flow.start_ns,
        "stop_ns": flow.stop_ns,
        "job": flow.job,
    }


def _job(scenario: Scenario, index: int, spec: WorkloadSpec, touching: list[int]) -> dict[str, Any]:
    """A job whose messages depend on each other or on a clock; the flows of all others are streams."""
    job: dict[str, Any] = {
        "index": index,
        "kind": jobs.collective(spec).value,
        "job": spec.job,
        "hosts": [host_name(host) for host in spec.hosts],
        "flows": touching,
        "start_ns": spec.start_ns,
        "stop_ns": spec.stop_ns,
    }
    if spec.kind is WorkloadKind.POISSON:
        choices = sizes.equally_likely(spec.sizes, spec.message)
        mean_bits = 8 * sum(choices) / len(choices)
        return job | {"rate_per_s": jobs.offered_bps(scenario, spec) / mean_bits, "sizes": list(choices)}
    return job | {"compute_ns": spec.compute_ns, "steps": spec.steps}
