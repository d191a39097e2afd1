"""A scenario written out with every default filled in: `scenario.yaml` of a results folder. Reads back equal."""

from __future__ import annotations

from typing import Any

import yaml

from testbed.model import timing, units
from testbed.model.scenario import (
    DenySpec,
    EvField,
    FaultSpec,
    LinkSelector,
    Routing,
    RoutingSpec,
    Scenario,
    TransportKind,
    TransportSpec,
    WorkloadKind,
    WorkloadSpec,
)
from testbed.model.topology import host_name
from testbed.model.transport import EXPONENTIAL_FOREVER, default, timeout_ns, unused

WIDTH = 120


def dump(scenario: Scenario) -> str:
    """Fully resolved YAML. `load.load_text` of it gives an equal Scenario; queue thresholds are written in bytes."""
    window = scenario.transport.window_frames
    document: dict[str, Any] = {
        "name": scenario.name,
        "description": scenario.description,
        "source": scenario.source,
        "topology": {
            "planes": scenario.topology.planes,
            "t0_groups": scenario.topology.t0_groups,
            "t1_per_plane": scenario.topology.t1_per_plane,
            "hosts_per_t0": scenario.topology.hosts_per_t0,
        },
        "links": _links(scenario),
        "switch": _switch(scenario),
        "routing": _routing(scenario.routing),
        "transport": _transport(scenario.transport),
        "workload": [_workload(spec) for spec in scenario.workload],
        "faults": [_fault(spec) for spec in scenario.faults],
        "measure": {
            "warmup": units.format_time(scenario.measure.warmup_ns),
            "duration": units.format_time(scenario.measure.duration_ns),
            "interval": units.format_time(scenario.measure.interval_ns),
            "drain": units.format_time(scenario.measure.drain_ns),
            "trace": scenario.measure.trace,
        },
        "expect": [expectation.text for expectation in scenario.expect],
        "seed": scenario.seed,
    }
    if scenario.scale:
        document["scale"] = {
            "link": units.format_rate(scenario.scale.link_bps),
            "rtt": units.format_time(scenario.scale.rtt_ns),
        }
    header = "# Every key with the value in force.\n"
    if not window and scenario.transport.kind is TransportKind.MRC:
        frames, size = timing.window_frames(scenario), timing.window_bytes(scenario)
        header += f"# transport.window `auto` is {frames} frames per destination, {size} bytes of payload.\n"
    return header + "".join(_key(key, value) for key, value in document.items())


def _key(key: str, value: Any) -> str:
    """One top-level key: sections in braces, list entries one per line."""
    if isinstance(value, list) and value:
        return f"{key}:\n" + "".join(f"  - {_flow(entry, 10**6)}\n" for entry in value)
    if isinstance(value, (dict, list)):
        return f"{key}: {_flow(value, WIDTH)}\n"
    text: str = yaml.safe_dump({key: value}, width=WIDTH, allow_unicode=True, default_flow_style=False)
    return text


def _flow(value: Any, width: int) -> str:
    """Braces, on one line where `width` allows. A bare scalar ends in a document marker, which is cut off."""
    text: str = yaml.safe_dump(value, sort_keys=False, width=width, allow_unicode=True, default_flow_style=True)
    return text.removesuffix("...\n").rstrip("\n")


def _links(scenario: Scenario) -> dict[str, Any]:
    links = scenario.links
    delays = [units.format_time(delay) for delay in links.delay_ns]
    return {
        "rate": units.format_rate(links.rate_bps),
        "fabric_rate": units.format_rate(links.fabric_rate_bps),
        "delay": delays[0] if len(set(delays)) == 1 else delays,
        "mtu": links.mtu,
        "overhead": units.format_size(links.overhead_bytes),
    }


def _switch(scenario: Scenario) -> dict[str, Any]:
    switch = scenario.switch
    return {
        "trimming": switch.trimming,
        "ecn": switch.ecn,
        "ecn_min": units.format_size(switch.ecn_min_bytes),
        "ecn_max": units.format_size(switch.ecn_max_bytes),
        "ecn_last_hop": switch.ecn_last_hop,
        "trim": units.format_size(switch.trim_bytes),
        "trim_last_hop": units.format_size(switch.trim_last_hop_bytes),
        "trim_size": units.format_size(switch.trim_size),
    }


def _routing(spec: RoutingSpec) -> str | dict[str, Any]:
    if not spec.hashes:
        return spec.kind.value
    entry: dict[str, Any] = {"kind": spec.kind.value, "hash_policy": spec.hash_policy, "hash_seed": spec.hash_seed}
    if spec.kind is Routing.BGP:
        entry |= {"keepalive": units.format_time(spec.keepalive_ns), "hold": units.format_time(spec.hold_ns), "bfd": False}
        if spec.bfd is not None:
            entry["bfd"] = {"interval": units.format_time(spec.bfd.interval_ns), "multiplier": spec.bfd.multiplier}
    return entry


def _transport(spec: TransportSpec) -> dict[str, Any]:
    """Without the defaults of keys that are not in force: read again, they would be reported as unused."""
    entry, plain = _keys_of(spec), _keys_of(default())
    for key, _ in unused(spec, entry):
        if entry[key] == plain[key]:
            del entry[key]
    return entry


def _keys_of(spec: TransportSpec) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "kind": spec.kind.value,
        "payload": f"{spec.payload}B",
        "qps": spec.qps,
        "evs": spec.evs,
        "active_evs": spec.active_evs or "all",
        "policy": spec.policy,
        "replacement": spec.replacement,
        "cc": spec.cc,
        "backpressure": spec.backpressure,
        "window": spec.window_frames or "auto",
        "sack_bytes": units.format_size(spec.sack_bytes),
        "probes": spec.probes,
        "reshuffle": spec.reshuffle,
        "mpr": spec.mpr,
        "mpr_dest": spec.mpr_dest,
        "dynamic_mpr": spec.dynamic_mpr,
        "max_wimm": spec.max_wimm,
        "max_wimm_dest": spec.max_wimm_dest,
        "timeout": "auto" if spec.timeout_n is None else units.format_time(timeout_ns(spec.timeout_n)),
        "timeout_linear": spec.timeout_linear,
        "timeout_exponential": "forever" if spec.timeout_exponential == EXPONENTIAL_FOREVER else spec.timeout_exponential,
    }
    if spec.probes:
        interval = units.format_time(spec.probe_interval_ns) if spec.probe_interval_ns else "auto"
        entry["probes"] = {"interval": interval, "count": spec.probe_count}
    if spec.ev_list:
        entry["ev_list"] = list(spec.ev_list)
    if spec.ev_fields:
        entry["ev_fields"] = [_ev_field(field) for field in spec.ev_fields]
    if spec.denylist:
        entry["denylist"] = [_deny(deny) for deny in spec.denylist]
    return entry


def _ev_field(field: EvField) -> dict[str, int]:
    return {"width": field.width, "mask": field.mask, "init": field.init, "min": field.minimum, "max": field.maximum}


def _deny(spec: DenySpec) -> str | dict[str, str]:
    link = ":".join(spec.ends)
    times = {"at": spec.at_ns, "for": spec.for_ns}
    given = {key: units.format_time(time) for key, time in times.items() if time}
    return {"link": link, **given} if given else link


def _workload(spec: WorkloadSpec) -> dict[str, Any]:
    entry: dict[str, Any] = {"kind": spec.kind.value, "job": spec.job, **_own_keys(spec)}
    if not isinstance(spec.sizes, tuple):
        entry["message"] = units.format_size(spec.message)
    entry |= {"depth": spec.depth, "start": units.format_time(spec.start_ns)}
    if spec.stop_ns is not None:
        entry["stop"] = units.format_time(spec.stop_ns)
    return entry


def _own_keys(spec: WorkloadSpec) -> dict[str, Any]:
    """The keys of the job's kind."""
    kind = spec.kind
    hosts: dict[str, Any] = {"hosts": _host_set(spec.hosts)} if spec.hosts else {}
    if kind is WorkloadKind.PERMUTATION:
        return hosts | {"cross_group": spec.cross_group}
    if kind is WorkloadKind.INCAST and spec.target is not None:
        aside = {"bystander": [host_name(host) for host in spec.bystander]} if spec.bystander is not None else {}
        return {"senders": hosts["hosts"], "receiver": host_name(spec.target)} | aside
    if kind is WorkloadKind.STREAM and spec.source is not None and spec.target is not None:
        return {"from": host_name(spec.source), "to": host_name(spec.target)}
    if kind is WorkloadKind.POISSON:
        named = [units.format_size(size) for size in spec.sizes] if isinstance(spec.sizes, tuple) else spec.sizes
        return hosts | {"load": spec.load, "sizes": named}
    if kind is WorkloadKind.TRAINING and spec.collective is not None:
        hosts |= {"compute": units.format_time(spec.compute_ns), "collective": spec.collective.value}
    if spec.steps is not None:
        hosts["iterations" if kind is WorkloadKind.RING_ALLREDUCE else "steps"] = spec.steps
    return hosts


def _host_set(hosts: tuple[int, ...]) -> str | list[str]:
    first, last = hosts[0], hosts[-1]
    in_a_row = hosts == tuple(range(first, last + 1))
    return f"{host_name(first)}-{host_name(last)}" if in_a_row else [host_name(host) for host in hosts]


def _fault(spec: FaultSpec) -> dict[str, Any]:
    entry: dict[str, Any] = {"at": units.format_time(spec.at_ns)}
    if spec.switch or spec.host:
        entry |= {"switch": spec.switch} if spec.switch else {"host": spec.host}
    else:
        entry |= {"plane": spec.plane} if spec.plane is not None else {"link": _selector(spec.link)}
    entry["action"] = spec.action.value
    for key, time_ns in (("for", spec.for_ns), ("until", spec.until_ns), ("period", spec.period_ns or None)):
        if time_ns is not None:
            entry[key] = units.format_time(time_ns)
    given = {"duty": spec.duty, "poisson_per_minute": spec.per_minute, "ratio": spec.ratio, "side": spec.side}
    entry |= {key: value for key, value in given.items() if value}
    if spec.to_bps:
        entry["to"] = units.format_rate(spec.to_bps)
    return entry if spec.switch or spec.host else entry | {"direction": spec.direction}


def _selector(selector: LinkSelector) -> str | dict[str, Any]:
    if selector.ends is not None:
        return ":".join(selector.ends)
    given = {"tier": selector.tier, "plane": selector.plane, "switch": selector.switch, "count": selector.count}
    return {key: value for key, value in given.items() if value is not None}
