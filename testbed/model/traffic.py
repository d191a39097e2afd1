"""The sections of a scenario that say what happens in the fabric: workload, faults and expectations.

As in `schema.py`, each function reads one entry and raises `Refused` or `Reported`; hosts, links and times are compared
with the other sections in `checks.py`.
"""

from __future__ import annotations

import re

from testbed.model import fields, units
from testbed.model import tree as t
from testbed.model.fields import Key, Problems, Refused
from testbed.model.metrics import METRICS, OPERATORS
from testbed.model.scenario import Expectation, FaultAction, FaultSpec, LinkSelector, WorkloadKind, WorkloadSpec
from testbed.model.schema import GBIT, GIB, KBIT, MAX_NODES_PER_KIND, S, name
from testbed.model.topology import Tier

_TIME = fields.time(0, 24 * 3600 * S)
_WORKLOAD_KINDS = fields.choice([kind.value for kind in WorkloadKind], ("all_to_all", "ring_allreduce", "training", "poisson"))
_HOST = re.compile(r"h(0|[1-9][0-9]{0,5})")
_HOST_RANGE = re.compile(r"h(0|[1-9][0-9]{0,5})-h(0|[1-9][0-9]{0,5})")

COMMON = (
    Key("kind", _WORKLOAD_KINDS),
    Key("message", fields.size(1, 1 * GIB)),
    Key("depth", fields.integer(1, 256), 2),  # DESIGN 4.2: one message on the wire while the next is posted
    Key("start", _TIME, 0),
    Key("stop", _TIME, None),
    Key("job", name, ""),
)


def workload(tree: t.Tree, path: str, problems: Problems, hosts: int | None) -> WorkloadSpec:
    """One job; `job` is empty where the scenario names none, and `load` names it.

    `hosts` is how many hosts the topology has; None when that is broken, and names are then not looked up.
    """
    if not isinstance(tree, t.Mapping):
        raise Refused(f"expected a mapping such as {{kind: permutation, message: 1MiB}}, found {t.describe(tree)}")
    if "kind" not in tree.entries:
        raise Refused("a workload needs a kind", f"one of {', '.join(kind.value for kind in WorkloadKind)}")
    first: fields.Values = {}
    fields.attempt(_WORKLOAD_KINDS, tree.entries["kind"], fields.join(path, "kind"), first, "kind", problems)
    if not first:
        raise fields.Reported
    kind = WorkloadKind(first["kind"])

    def one_host(tree: t.Tree, path: str) -> int:
        return _host(tree, path, hosts)

    def host_set(tree: t.Tree, path: str) -> tuple[int, ...]:
        return _hosts(tree, path, hosts, problems)

    def from_to(tree: t.Tree, path: str) -> tuple[int, int]:
        return _from_to(tree, path, hosts, problems)

    everyone = tuple(range(hosts or 0))
    own = {
        WorkloadKind.PERMUTATION: (Key("hosts", host_set, everyone), Key("cross_group", fields.boolean, True)),
        WorkloadKind.STREAM: (Key("from", one_host), Key("to", one_host)),
        WorkloadKind.INCAST: (Key("receiver", one_host), Key("senders", host_set, None), Key("bystander", from_to, None)),
    }
    values = fields.section(tree, path, (*COMMON, *own[kind]), problems)
    if values["stop"] is not None and values["stop"] <= values["start"]:
        problems.add(t.locate(tree, "stop"), fields.join(path, "stop"), "a workload must stop after it starts")
        raise fields.Reported
    if kind is WorkloadKind.STREAM and values["from"] == values["to"]:
        problems.add(t.locate(tree, "to"), fields.join(path, "to"), "a host cannot send to itself")
        raise fields.Reported
    if kind is WorkloadKind.INCAST:
        _incast(tree, path, values, everyone, problems)
    return WorkloadSpec(
        kind=kind,
        message=values["message"],
        depth=values["depth"],
        start_ns=values["start"],
        stop_ns=values["stop"],
        job=values["job"],
        hosts=values.get("hosts") or values.get("senders") or (),
        cross_group=values.get("cross_group", True),
        source=values.get("from"),
        target=values.get("to", values.get("receiver")),
        bystander=values.get("bystander"),
    )


def _incast(tree: t.Mapping, path: str, values: fields.Values, everyone: tuple[int, ...], problems: Problems) -> None:
    """Fills in `senders: all`: everyone but the receiver and the bystander's two hosts. Reports what makes it no incast."""
    receiver, bystander = values["receiver"], values["bystander"]
    written = tree.entries.get("senders")
    if written is None or (isinstance(written, t.Scalar) and written.text == "all"):
        values["senders"] = tuple(host for host in everyone if host not in (receiver, *(bystander or ())))
    before = len(problems.found)
    if receiver in values["senders"]:
        problems.add(
            t.locate(tree, "senders"), fields.join(path, "senders"), f"h{receiver} is the receiver: it cannot send to itself"
        )
    if everyone and not values["senders"]:
        problems.add(t.locate(tree, "senders"), fields.join(path, "senders"), "no host is left to send")
    if bystander and bystander[1] == receiver:
        message = f"a flow to h{receiver} would be one more sender of this incast, not a bystander"
        problems.add(t.locate(tree, "bystander"), fields.join(path, "bystander"), message)
    if len(problems.found) > before:
        raise fields.Reported


def _from_to(tree: t.Tree, path: str, hosts: int | None, problems: Problems) -> tuple[int, int]:
    """`[from, to]`: two different hosts."""
    if not isinstance(tree, t.Sequence) or len(tree.items) != 2:
        raise Refused(f"expected two hosts such as [h1, h5], found {t.describe(tree)}")
    source, target = fields.items(tree, path, lambda item, here: _host(item, here, hosts), problems)
    if source is None or target is None:
        raise fields.Reported
    if source == target:
        raise Refused("a host cannot send to itself")
    return source, target


def _host(tree: t.Tree, path: str, hosts: int | None) -> int:
    match = _HOST.fullmatch(fields.text(tree, path))
    if match is None:
        raise Refused(f"expected a host such as h0, found {t.describe(tree)}")
    return _existing(int(match[1]), hosts)


def _existing(index: int, hosts: int | None) -> int:
    if hosts is not None and index >= hosts:
        raise Refused(f"there is no host h{index}", f"the topology has h0 to h{hosts - 1}")
    return index


def _hosts(tree: t.Tree, path: str, hosts: int | None, problems: Problems) -> tuple[int, ...]:
    """`all`, a range `h0-h7` or a list of names, as sorted indices."""
    if isinstance(tree, t.Mapping):
        raise Refused(f"expected `all`, a range such as h0-h7 or a list of hosts, found {t.describe(tree)}")
    if isinstance(tree, t.Sequence):
        found = fields.items(tree, path, lambda item, here: _host(item, here, hosts), problems)
        if None in found:
            raise fields.Reported
        twice = [index for place, index in enumerate(found) if index in found[:place]]
        if twice:
            raise Refused(f"h{twice[0]} is listed twice")
        return tuple(sorted(found))
    text = fields.text(tree, path)
    if text == "all":
        return tuple(range(hosts or 0))
    match = _HOST_RANGE.fullmatch(text)
    if match is None:
        raise Refused(f"expected `all`, a range such as h0-h7 or a list of hosts, found {t.describe(tree)}")
    first, last = int(match[1]), int(match[2])
    if first > last:
        raise Refused(f"the range {text} runs backwards")
    return tuple(range(first, _existing(last, MAX_NODES_PER_KIND if hosts is None else hosts) + 1))


FAULT_LATER = {
    "plane": "a fault of a whole plane",
    "host": "a fault of a host",
    "until": "a repeated fault (until, period, duty)",
    "period": "a repeated fault (until, period, duty)",
    "duty": "a repeated fault (until, period, duty)",
    "poisson_per_minute": "a random series of faults",
    "side": "the choice of the side",
}
ACTIONS_LATER = ("flap", "hang", "pause", "kill")
# What an action asks for beside place and time; every other of these keys is refused with it.
OWN_KEYS = {
    FaultAction.DOWN: (),
    FaultAction.BLACKHOLE: ("direction",),
    FaultAction.LOSS: ("direction", "ratio"),
    FaultAction.CORRUPT: ("direction", "ratio"),
    FaultAction.RATE: ("direction", "to"),
    FaultAction.REBOOT: (),
}
RATIO_MIN = 1e-4  # less would hit no packet of any run that fits on one machine
SELECTOR = (
    Key("tier", fields.choice([tier.value for tier in Tier]), None),
    Key("plane", fields.integer(0, 63), None),
    Key("switch", fields.text, None),
    Key("count", fields.integer(1, 2**15), None),
)


def fault(tree: t.Tree, path: str, problems: Problems) -> FaultSpec:
    """One fault: an action, a place, a time."""

    def selector(tree: t.Tree, path: str) -> LinkSelector:
        return _selector(tree, path, problems)

    keys = (
        Key("at", _TIME),
        Key("link", selector, None),
        Key("switch", fields.text, None),
        Key("action", fields.choice([action.value for action in FaultAction], ACTIONS_LATER)),
        Key("for", fields.time(1, 24 * 3600 * S), None),
        Key("direction", fields.choice(("both", "forward", "backward")), None),
        Key("ratio", fields.ratio(RATIO_MIN, 1), None),
        Key("to", fields.rate(KBIT, 1000 * GBIT), None),
    )
    values = fields.section(tree, path, keys, problems, FAULT_LATER)
    action = FaultAction(values["action"])
    before = len(problems.found)
    _fault_place(tree, path, action, values, problems)
    _fault_keys(tree, path, action, values, problems)
    if len(problems.found) > before:
        raise fields.Reported
    return FaultSpec(
        action=action,
        at_ns=values["at"],
        for_ns=values["for"],
        link=values["link"] or LinkSelector(switch=values["switch"]),
        direction=values["direction"] or "both",
        switch=values["switch"] or "",
        ratio=values["ratio"] or 0.0,
        to_bps=values["to"] or 0,
        line=tree.place.line,
    )


def _fault_place(tree: t.Tree, path: str, action: FaultAction, values: fields.Values, problems: Problems) -> None:
    """A reboot happens to a switch, everything else to links."""
    place = "switch" if action is FaultAction.REBOOT else "link"
    other = "link" if place == "switch" else "switch"
    if values[other] is not None:
        hint = (
            "switch: p0t1-0"
            if place == "switch"
            else f"link: {{switch: {values[other]}}} selects every link of that switch; reboot takes a switch"
        )
        message = f"`{action}` happens to a {place}, not to a {other}"
        problems.add(t.locate(tree, other), fields.join(path, other), message, hint)
    elif values[place] is None:
        hint = "for example switch: p0t1-0"
        if place == "link":
            hint = 'for example link: "p0t0-0:p0t1-2", or link: {tier: t0-t1, count: 1}'
        problems.add(tree.place, path, "a fault needs a place", hint)


def _fault_keys(tree: t.Tree, path: str, action: FaultAction, values: fields.Values, problems: Problems) -> None:
    own = OWN_KEYS[action]
    for key in ("ratio", "to"):
        if key in own and values[key] is None:
            example = "ratio: 0.01" if key == "ratio" else "to: 1mbit"
            problems.add(tree.place, fields.join(path, key), f"`{action}` needs this key", f"for example {example}")
    for key in ("direction", "ratio", "to"):
        if key in own or values[key] is None or values[key] == "both":
            continue
        takers = ", ".join(other for other, keys in OWN_KEYS.items() if key in keys)
        message = f"`{action}` takes no {key}"
        if key == "direction":
            message += ": both ends lose the carrier"
        problems.add(t.locate(tree, key), fields.join(path, key), message, f"{takers} take{'s' if key == 'to' else ''} one")


def _selector(tree: t.Tree, path: str, problems: Problems) -> LinkSelector:
    """`"a:b"`, or a mapping of which at least tier, plane or switch is given."""
    if isinstance(tree, t.Mapping):
        values = fields.section(tree, path, SELECTOR, problems)
        if values["tier"] is None and values["plane"] is None and values["switch"] is None:
            raise Refused("this selects every link of the fabric", "give tier, plane or switch")
        return LinkSelector(**values)
    expected = 'expected two node names "a:b" or a mapping such as {tier: t0-t1, count: 1}'
    if not isinstance(tree, t.Scalar):
        raise Refused(f"{expected}, found {t.describe(tree)}")
    ends = tree.text.split(":")
    if len(ends) != 2 or not all(end.strip() == end and end for end in ends):
        raise Refused(f"{expected}, found {t.describe(tree)}")
    return LinkSelector(ends=(ends[0], ends[1]))


_EXPECTATION = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*)\s*([<>=!~]+)\s*([^\s<>=!~]\S*)\s*")


def expectation(tree: t.Tree, _path: str) -> Expectation:
    """`metric op value`: a metric of `summary.json`, one of the operators, a plain number."""
    form = "expected `metric op value` such as goodput_ratio >= 0.97"
    match = _EXPECTATION.fullmatch(tree.text) if isinstance(tree, t.Scalar) else None
    if match is None:
        raise Refused(f"{form}, found {t.describe(tree)}")
    metric, op, value = match.groups()
    if metric not in METRICS:
        raise Refused(
            f"there is no metric {units.shown(metric)}", fields.close(metric, METRICS) or "testbed/model/metrics.py lists them"
        )
    if op not in OPERATORS:
        raise Refused(f"{units.shown(op)} is no operator", f"one of {', '.join(OPERATORS)}")
    try:
        return Expectation(f"{metric} {op} {value}", metric, op, float(units.number(value)))
    except ValueError as error:
        raise Refused(str(error)) from error
