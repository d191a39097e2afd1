"""The sections of a scenario that say what breaks in the fabric and what is expected. Who sends is in `workloads.py`.

As in `schema.py`, each function reads one entry and raises `Refused` or `Reported`; links and times are compared
with the other sections in `checks.py`.
"""

from __future__ import annotations

import re

from testbed.model import fields, units
from testbed.model import tree as t
from testbed.model.fields import Key, Problems, Refused
from testbed.model.metrics import METRICS, OPERATORS
from testbed.model.scenario import Expectation, FaultAction, FaultSpec, LinkSelector
from testbed.model.schema import GBIT, KBIT, S
from testbed.model.topology import Tier

_TIME = fields.time(0, 24 * 3600 * S)

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
