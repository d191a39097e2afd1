"""Numbers and scenarios in words, as the report prints them. Pure text; no HTML."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd

from testbed.model.jobs import collective
from testbed.model.scenario import (
    FaultAction,
    FaultSpec,
    LinkSelector,
    Routing,
    RoutingSpec,
    Scenario,
    TransportKind,
    WorkloadKind,
    WorkloadSpec,
)
from testbed.model.topology import host_name

if TYPE_CHECKING:
    from analysis.figures.style import Drawn

_RATES = ((10**9, "Gbit/s"), (10**6, "Mbit/s"), (10**3, "kbit/s"))
_TIMES = ((10**9, "s"), (10**6, "ms"), (10**3, "\u00b5s"))
_SIZES = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))


def rate(bps: float) -> str:
    return _scaled(bps, _RATES, "bit/s")


def span(ns: float) -> str:
    """A length of time with three significant digits."""
    return _scaled(ns, _TIMES, "ns")


def size(count: float) -> str:
    return _scaled(count, _SIZES, "bytes")


def number(value: float | None) -> str:
    """For tables: whole numbers with thin thousands, others with four significant digits, a dash for what is not known."""
    if value is None:
        return "\u2013"
    if isinstance(value, int) or (math.isfinite(value) and value == int(value) and abs(value) >= 1000):
        return f"{int(value):,}".replace(",", "\u202f")
    return f"{value:.4g}"


def _scaled(value: float, units: tuple[tuple[int, str], ...], smallest: str) -> str:
    for factor, unit in units:
        if abs(value) >= factor:
            return f"{value / factor:.3g} {unit}"
    return f"{value:.3g} {smallest}"


def fabric(scenario: Scenario) -> str:
    t, links = scenario.topology, scenario.links
    delays = sorted(set(links.delay_ns))
    delay = span(delays[0]) if len(delays) == 1 else f"{span(delays[0])} to {span(delays[-1])} (by plane)"
    uplinks = f", T0-T1 links {rate(links.fabric_rate_bps)}" if links.fabric_rate_bps != links.rate_bps else ""
    return (
        f"{t.hosts} hosts in {t.t0_groups} T0 group{'s' if t.t0_groups != 1 else ''} of {t.hosts_per_t0}, one port in each of "
        f"{t.planes} planes; {t.t1_per_plane} T1s per plane. Host links {rate(links.rate_bps)}{uplinks}; "
        f"{delay} propagation one way, host to host; MTU {links.mtu} bytes."
    )


def switches(scenario: Scenario, frame_bytes: int) -> str:
    s = scenario.switch
    ecn = f"ECN from {s.ecn_min_bytes / frame_bytes:.3g} to {s.ecn_max_bytes / frame_bytes:.3g} frames" if s.ecn else "no ECN"
    ecn += ", on the last hop too" if s.ecn and s.ecn_last_hop else ""
    limits = f"{s.trim_bytes / frame_bytes:.3g} frames ({s.trim_last_hop_bytes / frame_bytes:.3g} on the last hop)"
    full = f"trimming beyond {limits}" if s.trimming else f"packets dropped beyond {limits}"
    return f"{ecn[0].upper()}{ecn[1:]}, {full}. Routing: {routing(scenario.routing)}."


def routing(spec: RoutingSpec) -> str:
    if not spec.hashes:
        return "srv6, static"
    what = "5-tuple" if spec.hash_policy == 3 else "addresses and flow label"
    chosen = f"switches hash the {what} over equal paths (seed {spec.hash_seed})"
    if spec.kind is Routing.ECMP:
        return f"ecmp, static, {chosen}"
    bfd = "no BFD" if spec.bfd is None else f"BFD {span(spec.bfd.interval_ns)} x {spec.bfd.multiplier}"
    return f"bgp, keepalive {span(spec.keepalive_ns)}, hold {span(spec.hold_ns)}, {bfd}; {chosen}"


def transport(scenario: Scenario, window_frames: int) -> str:
    t = scenario.transport
    if t.kind.is_kernels:
        what = "MPTCP of the kernel, one subflow per plane" if t.kind is TransportKind.MPTCP else "TCP of the kernel"
        return f"{what}, filled by iperf3, congestion control {t.cc}."
    if t.kind is TransportKind.RC:
        window = f"a window of {t.window_frames} frames per QP" if t.window_frames else "no window"
        what = "RC (RoCEv2-like: one hashed path per QP, go-back-N)"
        return f"{what}, payload {t.payload} bytes, congestion control {t.cc}, {window}."
    return (
        f"{t.kind.value.upper()} with policy {t.policy}, payload {t.payload} bytes, at most {t.evs} EVs per destination, "
        f"congestion control {t.cc}, window {window_frames} frames per destination, probes {'on' if t.probes else 'off'}."
    )


def kernel_flows(flows: Sequence[Mapping[str, Any]]) -> str:
    """What the kernel said that TCP and MPTCP flows were, and which of them failed."""
    ends = sorted({(one.get("subflows_at_sender", 0), one.get("subflows_at_receiver", 0)) for one in flows})
    failed = [f"{one['host']} to {one['peer']}: {one['failure']}" for one in flows if one["failure"]]
    counts = ", ".join(f"{sender} at the sender and {receiver} at the receiver" for sender, receiver in ends)
    text = f"{len(flows)} connections; established subflows of each: {counts}."
    return text + (f" Failed: {'; '.join(failed)}." if failed else "")


def workload(spec: WorkloadSpec) -> str:
    message = f"{size(spec.message)} messages, {spec.depth} outstanding per flow"
    if spec.kind is WorkloadKind.STREAM and spec.source is not None and spec.target is not None:
        return f"Stream from {host_name(spec.source)} to {host_name(spec.target)}: {message}."
    if spec.kind is WorkloadKind.INCAST and spec.target is not None:
        aside = ""
        if spec.bystander is not None:
            aside = f", with a bystander from {host_name(spec.bystander[0])} to {host_name(spec.bystander[1])}"
        return f"Incast: {len(spec.hosts)} hosts send to {host_name(spec.target)}{aside}; {message}."
    if spec.kind not in (WorkloadKind.PERMUTATION, WorkloadKind.STREAM, WorkloadKind.INCAST):
        return _job(spec)
    across = " of another T0 group" if spec.cross_group else ""
    return f"Permutation: each of {len(spec.hosts)} hosts sends to one other{across}; {message}."


_COLLECTIVES = {
    WorkloadKind.RING_ALLREDUCE: "ring all-reduce of {} per rank",
    WorkloadKind.ALL_TO_ALL: "all-to-all of {} per pair",
}


def _job(spec: WorkloadSpec) -> str:
    """Jobs in lock step, and random arrivals."""
    hosts, depth = len(spec.hosts), f"{spec.depth} messages outstanding per flow"
    if spec.kind is WorkloadKind.POISSON:
        listed = isinstance(spec.sizes, tuple)
        sizes = "of listed sizes" if listed else f"of {spec.sizes} size, {size(spec.message)} on average"
        return f"Poisson: {hosts} hosts send each other messages {sizes} at {spec.load:.0%} of their line rate; {depth}."
    what = _COLLECTIVES[collective(spec)].format(size(spec.message))
    if spec.kind is WorkloadKind.TRAINING:
        return (
            f"Training ({spec.job}): {hosts} hosts compute for {span(spec.compute_ns)}, then {what}, again and again; {depth}."
        )
    return f"{what[0].upper()}{what[1:]} among {hosts} hosts, again and again ({spec.job}); {depth}."


def fault(spec: FaultSpec) -> str:
    way = "" if spec.direction == "both" else f", {spec.direction} only"
    amount = (
        f" of {spec.ratio * 100:g} % of the packets"
        if spec.ratio
        else f" lowered to {rate(spec.to_bps)}"
        if spec.to_bps
        else ""
    )
    place = f"switch {spec.switch}" if spec.switch else f"host {spec.host}" if spec.host else _links(spec.link)
    if spec.plane is not None:
        place = f"plane {spec.plane}"
    return f"{_times(spec)}: {spec.action.value}{amount} {'on' if amount else 'of'} {place}{_length(spec)}{way}."


def _times(spec: FaultSpec) -> str:
    if not spec.repeats:
        return f"At {span(spec.at_ns)}"
    until = "the end" if spec.until_ns is None else span(spec.until_ns)
    rhythm = f"every {span(spec.period_ns)}" if spec.period_ns else f"{spec.per_minute:g} times a minute at random"
    return f"From {span(spec.at_ns)} to {until}, {rhythm}"


def _length(spec: FaultSpec) -> str:
    if spec.action is FaultAction.KILL:
        return ""
    if spec.period_ns:
        return f" for {span(spec.period_ns * spec.duty)}"
    one = ", one link each time" if spec.per_minute else ""
    return f"{one} for {span(spec.for_ns)}" if spec.for_ns is not None else " to the end"


def _links(selector: LinkSelector) -> str:
    if selector.ends is not None:
        return f"the link {':'.join(selector.ends)}"
    words = [f"{selector.count} seeded random" if selector.count is not None else "every"]
    words.append(f"{selector.tier or ''} link{'s' if (selector.count or 2) != 1 else ''}".strip())
    if selector.plane is not None:
        words.append(f"of plane {selector.plane}")
    if selector.switch is not None:
        words.append(f"at {selector.switch}")
    return " ".join(words)


def comparison(table: pd.DataFrame, doubtful: Sequence[str]) -> list[str]:
    """The table of a comparison as lines of text, one metric after the other."""
    width = max(len(str(group)) for group in table["group"])
    lines = [f"  marked: {len(doubtful)} of these runs must not be used: {', '.join(doubtful)}"] if doubtful else []
    for metric, rows in table.groupby("metric", sort=False):
        lines.append(str(metric))
        for row in rows.to_dict("records"):
            text = f"  {row['group']:<{width}}  {_with_ends(row, '')}  (runs: {row['runs']})"
            if not math.isnan(row["difference_mean"]):
                text += f"  difference {_with_ends(row, 'difference_')}"
            lines.append(text)
    return lines


def comparison_page(table: pd.DataFrame, doubtful: Sequence[str], drawn: Sequence[Drawn]) -> str:
    """A comparison as Markdown: its table, and its figures with what they show. Figures are beside it."""
    lines = ["# Comparison", ""]
    if doubtful:
        lines += [f"**{len(doubtful)} of these runs must not be used**: {', '.join(doubtful)}.", ""]
    lines += ["| metric | group | runs | mean [95 %] | difference to the first [95 %] |", "|---|---|---|---|---|"]
    for row in table.to_dict("records"):
        difference = "" if math.isnan(row["difference_mean"]) else _with_ends(row, "difference_")
        lines.append(f"| {row['metric']} | {row['group']} | {row['runs']} | {_with_ends(row, '')} | {difference} |")
    for figure in drawn:
        lines += ["", f"## {figure.title}", "", f"![{figure.alt}]({figure.name}.svg)", "", figure.caption]
    return "\n".join(lines) + "\n"


def _with_ends(row: dict[Hashable, Any], prefix: str) -> str:
    mean, low, high = (row[f"{prefix}{end}"] for end in ("mean", "low", "high"))
    return f"{mean:.4g}" if math.isnan(low) else f"{mean:.4g} [{low:.4g}, {high:.4g}]"
