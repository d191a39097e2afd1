"""The sections of a scenario that describe the fabric and the measuring: their keys, ranges and defaults.

Who sends is in `workloads.py`, the transport in `transport.py`, faults and expectations in `traffic.py`; what only several
sections together can say is in `checks.py`.
Each function reads one section and returns its frozen dataclass; it raises `Refused` or `Reported` (see `fields.py`).
Keys that DESIGN 4.2 lists and this version does not build are refused by name: nothing is silently ignored.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from fractions import Fraction

from testbed.model import fields, framing, timing
from testbed.model import tree as t
from testbed.model.fields import Key, Problems, Refused
from testbed.model.scenario import (
    BfdSpec,
    LinkSpec,
    MeasureSpec,
    Routing,
    RoutingSpec,
    ScaleSpec,
    SwitchSpec,
    TopologySpec,
)

NS, US, MS, S = 1, 10**3, 10**6, 10**9
KBIT, GBIT = 10**3, 10**9
KIB, GIB = 2**10, 2**30

MAX_NODES_PER_KIND = 0x1000  # uSIDs per kind of node in the plan: a base and 12 bits (usid.py)
MAX_LINKS = 2**17  # one machine carries no more; also keeps a mistyped number from laying out a billion links
MTU_MIN, MTU_MAX = 1280, 65535  # IPv6 asks for 1280 (RFC 8200 section 5); a veth takes no more than 65535
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")  # also a folder below results/

TOPOLOGY = (
    Key("planes", fields.integer(1, 64)),
    Key("t0_groups", fields.integer(1, MAX_NODES_PER_KIND)),
    Key("t1_per_plane", fields.integer(1, MAX_NODES_PER_KIND)),
    Key("hosts_per_t0", fields.integer(1, MAX_NODES_PER_KIND)),
)


def name(tree: t.Tree, path: str) -> str:
    text = fields.text(tree, path)
    if not NAME.fullmatch(text):
        raise Refused(
            f"{t.describe(tree)} is no name", "letters, digits, '.', '_' and '-', at most 64, a letter or digit first"
        )
    return text


def topology(tree: t.Tree, path: str, problems: Problems) -> TopologySpec:
    spec = TopologySpec(**fields.section(tree, path, TOPOLOGY, problems))
    if spec.hosts > MAX_NODES_PER_KIND:
        raise Refused(f"{spec.hosts} hosts; the uSID plan has room for {MAX_NODES_PER_KIND}")
    links = spec.planes * (spec.hosts + spec.t0_groups * spec.t1_per_plane)
    if links > MAX_LINKS:
        raise Refused(f"{links} links; at most {MAX_LINKS} fit on one machine")
    return spec


# A plane cannot be without delay: the base round trip is the unit of every `_rtts` metric, and without it less than a frame
# is in flight (DESIGN 1).
_delay = fields.time(1 * US, 60 * S)


def links(tree: t.Tree, path: str, problems: Problems, planes: int | None) -> LinkSpec:
    """`planes` is None when the topology is broken; a list of delays is then not counted."""

    def delay(tree: t.Tree, path: str) -> tuple[int, ...]:
        if not isinstance(tree, t.Sequence):
            return (_delay(tree, path),) * (planes or 1)
        delays = fields.items(tree, path, _delay, problems)
        if None in delays:
            raise fields.Reported
        if planes is not None and len(delays) != planes:
            raise Refused(f"{len(delays)} delays for {planes} planes", "one time for all planes, or a list with one per plane")
        return tuple(delays)

    rate = fields.rate(1 * KBIT, 1000 * GBIT)
    keys = (
        Key("rate", rate),
        Key("fabric_rate", rate, None),
        Key("delay", delay),
        Key("mtu", fields.integer(MTU_MIN, MTU_MAX), 4500),  # 4096-byte payloads plus headers, with room to spare
        Key("overhead", fields.size(0, KIB), framing.DEFAULT_OVERHEAD_BYTES),
    )
    values = fields.section(tree, path, keys, problems)
    fabric_rate = values["fabric_rate"] or values["rate"]
    return LinkSpec(values["rate"], fabric_rate, values["delay"], values["mtu"], values["overhead"])


# Thresholds in full frames (DESIGN 4.2), about a third of UEC's fractions (mrc-facts 3.6: ECN 0.2 to 0.8 of a plane's BDP,
# trim at 1, at 1.5 on the last hop) of the 24 frames that a 100 Gbit/s plane holds at 8 us: an even spray under the default
# window of 1.5 BDP queues about 3 frames per port, so more than that means that something is uneven.
SWITCH = (
    Key("trimming", fields.boolean, True),
    Key("ecn", fields.boolean, True),
    Key("ecn_min", fields.threshold, Fraction(2)),
    Key("ecn_max", fields.threshold, Fraction(6)),
    Key("ecn_last_hop", fields.boolean, False),  # MRC's receivers trim there instead (mrc-facts 3.6); RoCE's DCQCN needs marks
    Key("trim", fields.threshold, Fraction(8)),
    Key("trim_last_hop", fields.threshold, Fraction(12)),
    Key("trim_size", fields.size(framing.TRIM_MIN_BYTES, 4 * KIB), 128),  # SONiC's default (mrc-facts 3.6)
)


def switch(tree: t.Tree, path: str, problems: Problems, frame: int) -> SwitchSpec:
    """`frame`: charged bytes of a full frame, what a plain threshold counts in."""
    values = fields.section(tree, path, SWITCH, problems)
    as_bytes = {
        key: round(value * frame) if isinstance(value, Fraction) else value
        for key, value in values.items()
        if key in ("ecn_min", "ecn_max", "trim", "trim_last_hop")
    }
    before = len(problems.found)
    for key in ("trim", "trim_last_hop"):
        if as_bytes[key] < frame:
            message = (
                f"{as_bytes[key]} bytes is less than one full frame ({frame} charged bytes): nothing would ever pass whole"
            )
            problems.add(t.locate(tree, key), fields.join(path, key), message)
    if as_bytes["ecn_min"] > as_bytes["ecn_max"]:
        message = f"ecn_min ({as_bytes['ecn_min']} bytes) is above ecn_max ({as_bytes['ecn_max']} bytes)"
        problems.add(t.locate(tree, "ecn_min"), fields.join(path, "ecn_min"), message)
    if len(problems.found) > before:
        raise fields.Reported
    return SwitchSpec(
        trimming=values["trimming"],
        ecn=values["ecn"],
        ecn_min_bytes=as_bytes["ecn_min"],
        ecn_max_bytes=as_bytes["ecn_max"],
        trim_bytes=as_bytes["trim"],
        trim_last_hop_bytes=as_bytes["trim_last_hop"],
        trim_size=values["trim_size"],
        ecn_last_hop=values["ecn_last_hop"],
    )


HASH_POLICIES = (3, 0)
_kind = fields.choice([kind.value for kind in Routing])


def _hash_policy(tree: t.Tree, path: str) -> int:
    value: int = fields.integer(0, 3)(tree, path)
    if value not in HASH_POLICIES:
        hint = "3 hashes the 5-tuple, 0 addresses and flow label"
        if value == 1:
            hint += (
                "; on a veth 1 takes over the sending socket's own hash, which changes at every timeout: no switch does that"
            )
        raise Refused(f"there is no hash policy {value} here", hint)
    return value


def _whole_seconds(low: int) -> fields.Reader:
    """BGP counts its timers in seconds (RFC 4271 4.2)."""

    def read(tree: t.Tree, path: str) -> int:
        value: int = fields.time(low * S, 65535 * S)(tree, path)
        if value % S:
            raise Refused("a BGP timer is a whole number of seconds")
        return value

    return read


BFD = (
    Key("interval", fields.time(10 * MS, 60 * S), 300 * MS),
    Key("multiplier", fields.integer(2, 255), 3),
)


def _bfd(tree: t.Tree, path: str, problems: Problems) -> BfdSpec | None:
    """`true` for 300 ms x 3, or a mapping."""
    if isinstance(tree, t.Mapping):
        values = fields.section(tree, path, BFD, problems)
        if values["interval"] % MS:
            raise Refused("the interval of BFD is a whole number of milliseconds")
        return BfdSpec(values["interval"], values["multiplier"])
    try:
        return BfdSpec(300 * MS, 3) if fields.boolean(tree, path) else None
    except Refused as refused:
        raise Refused(f"expected true, false or a mapping such as {{interval: 300ms}}, found {t.describe(tree)}") from refused


OF_HASHING, OF_BGP = ("hash_policy", "hash_seed"), ("keepalive", "hold", "bfd")


def routing(tree: t.Tree, path: str, problems: Problems) -> RoutingSpec:
    """A word, or a mapping with `kind`. Timers default to FRR's of a data centre: 3 s and 9 s."""
    if not isinstance(tree, t.Mapping):
        return RoutingSpec(Routing(_kind(tree, path)))
    keys = (
        Key("kind", _kind),
        Key("hash_policy", _hash_policy, HASH_POLICIES[0]),
        Key("hash_seed", fields.integer(1, 2**32 - 1), 0),
        Key("keepalive", _whole_seconds(1), 3 * S),
        Key("hold", _whole_seconds(3), 9 * S),
        Key("bfd", lambda tree, path: _bfd(tree, path, problems), None),
    )
    values = fields.section(tree, path, keys, problems)
    if values["hold"] < 3 * values["keepalive"]:
        hint = "hold is at least three times keepalive"
        problems.add(t.locate(tree, "hold"), fields.join(path, "hold"), "one lost keepalive would end the session", hint)
        raise fields.Reported
    kind = Routing(values["kind"])
    default = RoutingSpec(kind)
    if kind is not Routing.BGP:
        values |= {"keepalive": default.keepalive_ns, "hold": default.hold_ns, "bfd": default.bfd}
    if not default.hashes:
        values |= {"hash_policy": default.hash_policy, "hash_seed": default.hash_seed}
    return RoutingSpec(kind, values["hash_policy"], values["hash_seed"], values["keepalive"], values["hold"], values["bfd"])


def unused_routing(spec: RoutingSpec, given: Collection[str]) -> list[tuple[str, str]]:
    """(key, why) of each key that was given and changes nothing."""
    found = [(key, f"routing {spec.kind} hashes nothing") for key in OF_HASHING if key in given and not spec.hashes]
    bgp = spec.kind is Routing.BGP
    return found + [(key, f"routing {spec.kind} has no sessions") for key in OF_BGP if key in given and not bgp]


def measure(tree: t.Tree, path: str, problems: Problems, links: LinkSpec | None) -> MeasureSpec:
    """`links` gives the default of `drain`; None when that section is broken."""
    drain = timing.default_drain_ns(links) if links else 0
    keys = (
        Key("warmup", fields.time(0, 3600 * S), 2 * S),
        Key("duration", fields.time(100 * MS, 24 * 3600 * S), 20 * S),
        Key("interval", fields.time(10 * MS, 60 * S), 100 * MS),
        Key("drain", fields.time(0, 3600 * S), drain),
        Key("trace", fields.boolean, False),
    )
    values = fields.section(tree, path, keys, problems)
    spec = MeasureSpec(values["warmup"], values["duration"], values["interval"], values["drain"], values["trace"])
    before = len(problems.found)
    if spec.warmup_ns >= spec.duration_ns:
        message = "the warm-up takes the whole duration: nothing is left to measure"
        problems.add(t.locate(tree, "warmup"), fields.join(path, "warmup"), message, "duration includes the warm-up")
    elif spec.interval_ns > spec.duration_ns - spec.warmup_ns:
        message = "the interval is longer than the measuring window"
        problems.add(t.locate(tree, "interval"), fields.join(path, "interval"), message, "the window is [warmup, duration]")
    if len(problems.found) > before:
        raise fields.Reported
    return spec


SCALE = (
    Key("link", fields.rate(1 * KBIT, 10_000 * GBIT)),
    Key("rtt", fields.time(1 * NS, 60 * S)),
)


def scale(tree: t.Tree, path: str, problems: Problems) -> ScaleSpec:
    values = fields.section(tree, path, SCALE, problems)
    return ScaleSpec(values["link"], values["rtt"])
