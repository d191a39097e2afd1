"""What only several sections together can say: links that do not exist, times outside the run, payloads the MTU cannot hold.

Each check looks at the sections that could be read and is left out when one of its own is broken, so that one mistake
does not hide another. `done` holds the sections by key as `load` read them; a list entry that was broken is None.
"""

from __future__ import annotations

from collections.abc import Sequence

from testbed.model import evs, fault_checks, faults, fields, flows, framing, paths, schema, tcp, units
from testbed.model import transport as transports
from testbed.model import tree as t
from testbed.model.fields import Problems, Values
from testbed.model.scenario import (
    DenySpec,
    LinkSpec,
    MeasureSpec,
    RoutingSpec,
    TransportKind,
    TransportSpec,
    WorkloadKind,
    WorkloadSpec,
)
from testbed.model.topology import INTERFACE_NAME_MAX, Topology, build, host_name, names_too_long


def check(root: t.Mapping, done: Values, problems: Problems) -> None:
    """Run every check whose sections are whole."""
    topology = build(done["topology"]) if "topology" in done else None
    if topology:
        _names(root, topology, problems)
    if "links" in done and "transport" in done:
        _payload(root, done["links"], done["transport"], problems)
    if topology and "transport" in done and done["transport"].kind is TransportKind.MRC:
        _evs(root, done, topology, problems)
    if "transport" in done and "routing" in done:
        _routing(root, done["transport"], done["routing"], problems)
    if "transport" in done and done["transport"].kind.is_kernels:
        _kernels(root, done, topology, problems)
    if "switch" in done and "transport" in done:
        _trim_size(root, done, problems)
    for index, spec in enumerate(done.get("workload", ())):
        if spec:
            _workload(root, index, spec, topology, done.get("measure"), problems)
    _flow_count(root, done.get("workload", ()), problems)
    fault_checks.check(root, done, topology, problems)
    if topology and not problems.found and done["transport"].kind is TransportKind.MRC:
        _paths_left(root, done, topology, problems)


def warnings(root: t.Mapping, done: Values) -> tuple[str, ...]:
    """What is allowed, but probably not meant. Only for sections without a problem."""
    found: list[str] = []
    switch = root.entries.get("switch")
    given = switch.entries if isinstance(switch, t.Mapping) else {}
    unused = [key for key in ("ecn_min", "ecn_max") if key in given and not done["switch"].ecn]
    unused += [key for key in ("trim_size",) if key in given and not done["switch"].trimming]
    for key in unused:
        off = "trimming" if key == "trim_size" else "ecn"
        found.append(f"{_where(root, f'switch.{key}')} switch.{key} is unused: switch.{off} is false")
    section = root.entries.get("transport")
    written = section.entries if isinstance(section, t.Mapping) else {}
    for key, why in transports.unused(done["transport"], written):
        found.append(f"{_where(root, f'transport.{key}')} transport.{key} is unused: {why}")
    section = root.entries.get("routing")
    written = section.entries if isinstance(section, t.Mapping) else {}
    for key, why in schema.unused_routing(done["routing"], written):
        found.append(f"{_where(root, f'routing.{key}')} routing.{key} is unused: {why}")
    measure: MeasureSpec = done["measure"]
    for index, spec in enumerate(done["faults"]):
        if spec.at_ns <= measure.warmup_ns:
            path = f"faults.{index}.at"
            found.append(f"{_where(root, path)} {path}: nothing is measured before this fault, so its stall cannot be judged")
        if spec.per_minute and not faults.times(index, spec, done["seed"], measure.duration_ns):
            path = f"faults.{index}.poisson_per_minute"
            found.append(f"{_where(root, path)} {path}: draws no event in this time with this seed")
    for index, job in enumerate(done["workload"]):
        if job.bystander is not None and job.bystander[0] in job.hosts:
            path = f"workload.{index}.bystander"
            message = f"h{job.bystander[0]} is also a sender: the bystander shares its ports with the incast"
            found.append(f"{_where(root, path)} {path}: {message}")
    return tuple(found)


def _where(root: t.Mapping, path: str) -> str:
    place = t.locate(root, path)
    return f"{place.file}:{place.line}:" if place.line else f"{place.file}:"


def _names(root: t.Mapping, topology: Topology, problems: Problems) -> None:
    long = names_too_long(topology)
    if long:
        others = f" and {len(long) - 1} more" if len(long) > 1 else ""
        message = f"interface name too long, the kernel takes {INTERFACE_NAME_MAX} characters: {long[0]}{others}"
        problems.at(root, "topology", message, "fewer planes, switches per plane or hosts per T0")


def _payload(root: t.Mapping, links: LinkSpec, transport: TransportSpec, problems: Problems) -> None:
    need, most = framing.packet_bytes(transport.payload), framing.payload_max(links.mtu)
    if need > links.mtu:
        message = f"a payload of {transport.payload} bytes makes packets of {need} bytes, links.mtu is {links.mtu}"
        hint = f"a payload of at most {most}B, or an MTU of at least {need}" if most >= 64 else f"an MTU of at least {need}"
        written = isinstance(tree := root.entries.get("transport"), t.Mapping) and "payload" in tree.entries
        problems.at(root, "transport.payload" if written else "links.mtu", message, hint)


def _routing(root: t.Mapping, transport: TransportSpec, routing: RoutingSpec, problems: Problems) -> None:
    if transport.kind is TransportKind.MRC and routing.hashes:
        message = f"mrc names its path in every packet; routing {routing.kind} lets the switches choose"
        problems.at(root, "routing", message, "routing: srv6, or another transport.kind")


def _kernels(root: t.Mapping, done: Values, topology: Topology | None, problems: Problems) -> None:
    """What iperf3's flows, and MPTCP, ask of the other sections."""
    kind = done["transport"].kind
    for index, spec in enumerate(done.get("workload", ())):
        if spec is not None and spec.kind not in tcp.WORKLOADS:
            message = f"{spec.kind} posts messages that wait for each other; {kind} flows are iperf3's, which only stream"
            hint = f"with {kind}: {', '.join(tcp.WORKLOADS)}"
            problems.at(root, f"workload.{index}.kind", message, hint)
    if kind is not TransportKind.MPTCP:
        return
    if "measure" in done and done["measure"].warmup_ns < tcp.MPTCP_WARMUP_NS:
        message = f"mptcp has not settled after {units.format_time(done['measure'].warmup_ns)}: measured, it takes up to 11 s"
        problems.at(root, "measure.warmup", message, f"at least {units.format_time(tcp.MPTCP_WARMUP_NS)}")
    if topology and topology.spec.planes > 1 + tcp.MAX_SUBFLOWS:
        message = f"mptcp cannot use {topology.spec.planes} planes: the kernel allows {1 + tcp.MAX_SUBFLOWS} subflows"
        problems.at(root, "topology.planes", message, f"at most {1 + tcp.MAX_SUBFLOWS}")


def _evs(root: t.Mapping, done: Values, topology: Topology, problems: Problems) -> None:
    """Every plane has an EV, and every name in the lists exists."""
    spec: TransportSpec = done["transport"]
    planes = topology.spec.planes
    for key, count in (("evs", spec.evs), ("active_evs", spec.active_evs)):
        if 0 < count < planes and not (spec.ev_list or spec.ev_fields):
            message = f"{count} EVs cannot cover {planes} planes equally"
            problems.at(root, f"transport.{key}", message, "at least one per plane")
    for index, name in enumerate(spec.ev_list):
        if name not in topology.switches:
            message = f"there is no path {units.shown(name)}: a path is named after its T1, or its T0 inside a group"
            problems.at(root, f"transport.ev_list.{index}", message, fields.close(name, topology.switches))
    for index, deny in enumerate(spec.denylist):
        path = f"transport.denylist.{index}"
        if not topology.has_link(*deny.ends):
            message = f"there is no link {units.shown(':'.join(deny.ends))}"
            problems.at(root, path, message, fault_checks.nearest_link(deny.ends, topology))
        if "measure" in done:
            _deny_times(root, path, deny, done["measure"], problems)


def _deny_times(root: t.Mapping, path: str, deny: DenySpec, measure: MeasureSpec, problems: Problems) -> None:
    for key, time in (("at", deny.at_ns), ("for", deny.at_ns + (deny.for_ns or 0))):
        if time > measure.duration_ns:
            message = f"{units.format_time(time)} is after the end of the run"
            problems.at(root, f"{path}.{key}", message, f"the run lasts {units.format_time(measure.duration_ns)}")
            return


def _paths_left(root: t.Mapping, done: Values, topology: Topology, problems: Problems) -> None:
    """Every pair that talks has a path. For a scenario that is right in all else: it takes the longest."""
    spec, seed = done["transport"], done["seed"]
    if not (spec.ev_list or spec.ev_fields or spec.denylist):
        return
    for source, target in evs.pairs(tuple(done["workload"]), seed, topology):
        found = evs.given(spec, seed, topology, source, target)
        ends = f"{host_name(source)} to {host_name(target)}"
        if not found:
            names = ", ".join(path.name for path in paths.paths(topology, source, target)[:8])
            key, what = ("ev_fields", "is generated") if spec.ev_fields else ("ev_list", "is in the list")
            problems.at(root, f"transport.{key}", f"no path from {ends} {what}", f"paths of this pair: {names}")
            return
        denied = {path for deny in spec.denylist for path in evs.crossing(deny, found, source, target)}
        if len(denied) == len(found):
            message = f"every EV from {ends} crosses a link of the list"
            problems.at(root, "transport.denylist", message, "at least one path must be left")
            return


def _flow_count(root: t.Mapping, workload: Sequence[WorkloadSpec | None], problems: Problems) -> None:
    total = 0
    for index, spec in enumerate(workload):
        total += flows.count(spec) if spec else 0
        if total > flows.FLOWS_MAX:
            problems.at(root, f"workload.{index}", f"{total} flows; at most {flows.FLOWS_MAX} fit on one machine")
            return


def _trim_size(root: t.Mapping, done: Values, problems: Problems) -> None:
    switch, frame = done["switch"], done["transport"].payload + framing.HEADER_BYTES
    if switch.trimming and switch.trim_size >= frame:
        message = f"trimming to {switch.trim_size} bytes cuts nothing off a full packet of {frame} bytes"
        problems.at(root, "switch.trim_size", message)


def _workload(
    root: t.Mapping, index: int, spec: WorkloadSpec, topology: Topology | None, measure: MeasureSpec | None, problems: Problems
) -> None:
    path = f"workload.{index}"
    if measure and spec.start_ns >= measure.duration_ns:
        message = f"starts at {units.format_time(spec.start_ns)}, the run lasts {units.format_time(measure.duration_ns)}"
        problems.at(root, f"{path}.start", message)
    if topology and spec.kind is WorkloadKind.PERMUTATION:
        if len(spec.hosts) < 2:
            problems.at(root, f"{path}.hosts", f"a permutation needs at least two hosts, it has {len(spec.hosts)}")
        elif spec.cross_group and not flows.can_permute(spec.hosts, topology.group_of):
            groups = len({topology.group_of(host) for host in spec.hosts})
            message = f"these {len(spec.hosts)} hosts in {groups} T0 group(s) cannot all send to another group"
            hint = "no group may hold more than half of them; or cross_group: false"
            problems.at(root, f"{path}.hosts", message, hint)
