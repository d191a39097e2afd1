"""What a scenario will ask of the machine, before anything is created: sizes, packets per second, frames in flight."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from testbed.model import evs, framing, jobs, timing, units
from testbed.model.faults import PlannedFault, resolve
from testbed.model.flows import Flow, flows
from testbed.model.paths import Path
from testbed.model.scenario import DenySpec, Routing, Scenario, TransportKind
from testbed.model.topology import Tier, Topology
from testbed.model.transport import EXPONENTIAL_FOREVER, MPR_UNIT, timeout_ns

MIN_BDP_FRAMES = timing.MIN_WINDOW_FRAMES  # DESIGN 7: below it windows, marks and recovery times mean little
# DESIGN 2, a crude endpoint on the reference machine: 130 us of host CPU per data packet at 9,500 packets/s in all, 73 us at
# saturation. The larger: rates that a run can hold are far from saturation.
CPU_US_PER_PACKET = 130.0
PROBE_RTTS = 2  # docs/protocol.md, "EV states": the endpoint's own default interval
CPU_WARNING = 0.8  # of all cores; DESIGN 2 measured 0.63 to 0.80 busy at rates that still held


@dataclass(frozen=True, slots=True)
class Prediction:
    """What to expect of a run without faults. Rates are of the whole fabric."""

    goodput_bps: float
    data_packets_per_s: float
    sack_packets_per_s: float  # at least: marks, trims and retransmissions are acknowledged at once
    cpu_cores: float
    bdp_frames: float
    window_frames: int


def predict(scenario: Scenario, topology: Topology) -> Prediction:
    """The fluid ideal of all flows at once, as packets."""
    transport = scenario.transport
    rates = jobs.ideal_rates(scenario, topology, flows(scenario, topology))
    bytes_per_s = sum(rates) / 8
    data = bytes_per_s / transport.payload
    return Prediction(
        goodput_bps=sum(rates),
        data_packets_per_s=data,
        sack_packets_per_s=bytes_per_s / max(transport.sack_bytes, transport.payload),
        cpu_cores=data * CPU_US_PER_PACKET / 1e6,
        bdp_frames=timing.bdp_frames(scenario),
        window_frames=timing.window_frames(scenario),
    )


def warnings(scenario: Scenario, prediction: Prediction, cores: int) -> list[str]:
    """What makes the result doubtful before it is measured; empty when nothing does."""
    found = [*scenario.warnings, *few_frames(scenario)]
    if prediction.cpu_cores > CPU_WARNING * cores:
        found.append(
            f"about {prediction.cpu_cores:.1f} of {cores} cores are needed for the hosts alone: "
            "the machine may decide the result; lower links.rate"
        )
    scaled = _scale_frames(scenario)
    if scaled is not None:
        emulated, real = scaled
        if abs(emulated / real - 1) > 0.25:
            found.append(f"{emulated:.1f} frames in flight per plane, {real:.1f} in what `scale` says it stands for")
    return found


def few_frames(scenario: Scenario) -> list[str]:
    """A warning when a host, or one of its planes, has few frames in flight (DESIGN 7)."""
    in_all, fewest = timing.bdp_frames(scenario), float(min(timing.bdp_frames_per_plane(scenario)))
    cure = "raise links.delay or links.rate, or lower transport.payload"
    if in_all < MIN_BDP_FRAMES:
        what = f"only {in_all:.1f} frames are in flight per host, less than {MIN_BDP_FRAMES}"
        return [f"{what}: windows, marks and recovery times mean little; {cure}"]
    if fewest < MIN_BDP_FRAMES:
        return [f"only {fewest:.1f} frames fill a plane's round trip, less than {MIN_BDP_FRAMES}: windows and marks are coarse"]
    return []


def summary(scenario: Scenario, topology: Topology, cores: int) -> str:
    """The text of `python -m testbed plan`: a few aligned lines, then warnings. `cores`: of the machine meant."""
    links, transport = scenario.links, scenario.transport
    prediction = predict(scenario, topology)
    tiers = [link.tier for link in topology.links]
    t0s, t1s = topology.spec.planes * topology.spec.t0_groups, topology.spec.planes * topology.spec.t1_per_plane
    ceiling = framing.payload_ceiling(transport.payload, links.overhead_bytes)
    per_host = ceiling * links.rate_bps * topology.spec.planes
    planes = ", ".join(f"{float(frames):.1f}" for frames in timing.bdp_frames_per_plane(scenario))
    plan_flows, planned = flows(scenario, topology), resolve(scenario, topology)
    lines = [
        ("scenario", f"{scenario.name}, seed {scenario.seed}"),
        ("fabric", f"{len(topology.hosts)} hosts, {t0s} T0 and {t1s} T1 on {topology.spec.planes} planes"),
        ("links", f"{len(tiers)}: {tiers.count(Tier.NIC_T0)} nic-t0, {tiers.count(Tier.T0_T1)} t0-t1; {_rates(scenario)}"),
        *([("routing", _routing(scenario))] if scenario.routing.hashes else []),
        ("round trip", f"{timing.rtt_base_ns(scenario) / 1e6:g} ms base"),
        ("in flight", f"{prediction.bdp_frames:.1f} frames per host ({planes} per plane), {_window(scenario, prediction)}"),
        ("payload ceiling", f"{ceiling:.1%} of the rate: {per_host / 1e6:.2f} Mbit/s per host"),
        ("flows", f"{len(plan_flows)}: {_jobs(plan_flows)}"),
        ("ideal goodput", f"{prediction.goodput_bps / 1e6:.2f} Mbit/s in all, without faults"),
        ("packets", f"{prediction.data_packets_per_s:.0f} data/s and {prediction.sack_packets_per_s:.0f} SACKs/s or more"),
        ("host CPU", f"about {prediction.cpu_cores:.1f} of {cores} cores, at {CPU_US_PER_PACKET:.0f} us per data packet"),
        *_transport_lines(scenario, topology),
        *(("fault", _fault(fault)) for fault in planned),
        *(("warning", warning) for warning in warnings(scenario, prediction, cores)),
    ]
    return "".join(f"{name:<16}{text}\n" for name, text in lines)


def _routing(scenario: Scenario) -> str:
    spec = scenario.routing
    chosen = f"{spec.kind}, hash policy {spec.hash_policy} with seed {spec.hash_seed}"
    if spec.kind is not Routing.BGP:
        return chosen
    timers = f"keepalive {units.format_time(spec.keepalive_ns)}, hold {units.format_time(spec.hold_ns)}"
    bfd = f"BFD {units.format_time(spec.bfd.interval_ns)} x {spec.bfd.multiplier}" if spec.bfd else "no BFD"
    return f"{chosen}; {timers}, {bfd}"


def _transport_lines(scenario: Scenario, topology: Topology) -> list[tuple[str, str]]:
    """What is in force: paths, policy, probes, limits and timers of the transport."""
    spec = scenario.transport
    counts = sorted({len(found) for found in _ev_sets(scenario, topology)})
    evs_per_pair = " or ".join(map(str, counts)) + (", as listed" if spec.ev_list else ", generated" if spec.ev_fields else "")
    active = f"{spec.active_evs} of them active, the rest backup" if spec.active_evs else "all active"
    interval = spec.probe_interval_ns or PROBE_RTTS * timing.rtt_base_ns(scenario)
    probes = f"every {interval / 1e6:g} ms, {spec.probe_count} answers bring a path back" if spec.probes else "none"
    n = timing.timeout_n(scenario)
    doubling = "for ever" if spec.timeout_exponential == EXPONENTIAL_FOREVER else f"{spec.timeout_exponential} times"
    timer = f"{timeout_ns(n) / 1e6:g} ms (n = {n}), {spec.timeout_linear} times, then doubling {doubling}"
    mpr = f"{spec.mpr * MPR_UNIT} PSNs" + ("" if spec.mpr == spec.mpr_dest else f" ({spec.mpr_dest * MPR_UNIT} accepted)")
    wimm = f"{spec.max_wimm} WRITE_WITH_IMMs"
    if spec.kind.is_kernels:
        return [_kernels_line(scenario), ("control", f"cc {spec.cc}, the kernel's own stack and timers")]
    qps = "1 QP per flow" if spec.qps == 1 else f"{spec.qps} QPs per flow"
    if spec.kind is TransportKind.RC:
        return [
            ("paths", f"{evs_per_pair} per pair, of which a hash of the 5-tuple takes one for each QP; {qps}"),
            ("control", f"cc {spec.cc}, ACK every {units.format_size(spec.sack_bytes)}"),
            ("timeout", timer),
        ]
    lines = [
        ("EVs", f"{evs_per_pair} per pair, {active}; replacement {spec.replacement}"),
        ("policy", f"{spec.policy}, cc {spec.cc}, SACK every {units.format_size(spec.sack_bytes)}"),
        ("probes", probes),
        ("limits", f"{mpr}{', dynamic' if spec.dynamic_mpr else ''}, {wimm} under way; {qps}"),
        ("timeout", timer),
    ]
    return lines + [("denied", _denial(deny)) for deny in spec.denylist]


def _kernels_line(scenario: Scenario) -> tuple[str, str]:
    mptcp = scenario.transport.kind is TransportKind.MPTCP
    what = "one subflow per plane" if mptcp else "one connection per flow"
    if not scenario.routing.hashes:
        return "paths", f"{what}, over a path drawn for its pair of hosts (encap.red)"
    return "paths", f"{what}; {'its T1' if mptcp else 'plane and T1'} by a hash (policy {scenario.routing.hash_policy})"


def _ev_sets(scenario: Scenario, topology: Topology) -> Iterator[tuple[Path, ...]]:
    spec, seed = scenario.transport, scenario.seed
    for source, target in evs.pairs(scenario.workload, seed, topology):
        yield evs.given(spec, seed, topology, source, target)


def _denial(deny: DenySpec) -> str:
    until = "the end" if deny.for_ns is None else units.format_time(deny.at_ns + deny.for_ns)
    return f"{units.format_time(deny.at_ns)} to {until}: EVs over {':'.join(deny.ends)}"


def _window(scenario: Scenario, prediction: Prediction) -> str:
    """What bounds a sender; rc only by its rate, unless told otherwise."""
    if scenario.transport.kind is not TransportKind.MRC and not scenario.transport.window_frames:
        return "no window of ours"
    return f"window {prediction.window_frames}"


def _rates(scenario: Scenario) -> str:
    links = scenario.links
    rate, fabric = units.format_rate(links.rate_bps), units.format_rate(links.fabric_rate_bps)
    return f"{rate} each" if rate == fabric else f"{rate} to hosts, {fabric} to T1s"


def _jobs(found: tuple[Flow, ...]) -> str:
    counts: dict[str, int] = {}
    for flow in found:
        counts[flow.job] = counts.get(flow.job, 0) + 1
    return ", ".join(f"{count} of {job}" for job, count in counts.items())


def _fault(fault: PlannedFault) -> str:
    until = "the end" if fault.until_ns is None else units.format_time(fault.until_ns)
    names = fault.places
    where = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
    way = "" if fault.direction == "both" else f" ({fault.direction})"
    return f"{units.format_time(fault.at_ns)} to {until}: {fault.doing} {where}{way}"


def _scale_frames(scenario: Scenario) -> tuple[float, float] | None:
    """Frames in flight per plane here and in what the scenario stands for, at the same payload."""
    if scenario.scale is None:
        return None
    frame_bits = 8 * framing.charged_bytes(scenario.transport.payload, scenario.links.overhead_bytes)
    here = scenario.links.rate_bps * timing.rtt_base_ns(scenario) / timing.NS_PER_S / frame_bits
    return here, scenario.scale.link_bps * scenario.scale.rtt_ns / timing.NS_PER_S / frame_bits
