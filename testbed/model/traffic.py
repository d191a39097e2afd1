"""The sections of a scenario that say what breaks in the fabric and what is expected. Who sends is in `workloads.py`.

As in `schema.py`, each function reads one entry and raises `Refused` or `Reported`; links and times are compared
with the other sections in `checks.py`.
"""

from __future__ import annotations

import re

from testbed.model import fields, units
from testbed.model import tree as t
from testbed.model.faults import CARRIERS, OF_HOSTS, OF_SWITCHES
from testbed.model.fields import Key, Problems, Refused
from testbed.model.metrics import METRICS, OPERATORS
from testbed.model.scenario import Expectation, FaultAction, FaultSpec, LinkSelector
from testbed.model.schema import GBIT, KBIT, MS, S
from testbed.model.topology import Tier

_TIME = fields.time(0, 24 * 3600 * S)

# What an action asks for beside place and time; every other of these keys is refused with it.
OWN_KEYS: dict[FaultAction, tuple[str, ...]] = {
    FaultAction.DOWN: ("side",),
    FaultAction.FLAP: ("side",),
    FaultAction.BLACKHOLE: ("direction",),
    FaultAction.LOSS: ("direction", "ratio"),
    FaultAction.CORRUPT: ("direction", "ratio"),
    FaultAction.RATE: ("direction", "to"),
    FaultAction.REBOOT: (),
    FaultAction.HANG: (),
    FaultAction.PAUSE: (),
    FaultAction.KILL: (),
}
PLACES = ("link", "switch", "plane", "host")
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
        Key("plane", fields.integer(0, 63), None),
        Key("host", fields.text, None),
        Key("action", fields.choice([action.value for action in FaultAction])),
        Key("for", fields.time(1, 24 * 3600 * S), None),
        Key("until", _TIME, None),
        Key("period", fields.time(10 * MS, 3600 * S), None),
        Key("duty", fields.ratio(0.001, 0.999), None),
        Key("poisson_per_minute", fields.ratio(0.001, 6000), None),
        Key("direction", fields.choice(("both", "forward", "backward")), None),
        Key("ratio", fields.ratio(RATIO_MIN, 1), None),
        Key("to", fields.rate(KBIT, 1000 * GBIT), None),
        Key("side", fields.choice(("lower", "upper")), None),
    )
    values = fields.section(tree, path, keys, problems)
    action = FaultAction(values["action"])
    before = len(problems.found)
    _fault_place(tree, path, action, values, problems)
    _fault_keys(tree, path, action, values, problems)
    _fault_repetition(tree, path, action, values, problems)
    if len(problems.found) > before:
        raise fields.Reported
    whole = LinkSelector(switch=values["switch"] or values["host"], plane=values["plane"])
    return FaultSpec(
        action=action,
        at_ns=values["at"],
        for_ns=values["for"],
        link=values["link"] or whole,
        direction=values["direction"] or "both",
        switch=values["switch"] or "",
        plane=values["plane"],
        host=values["host"] or "",
        ratio=values["ratio"] or 0.0,
        to_bps=values["to"] or 0,
        side=values["side"] or "",
        until_ns=values["until"],
        period_ns=values["period"] or 0,
        duty=values["duty"] or 0.0,
        per_minute=values["poisson_per_minute"] or 0.0,
        line=tree.place.line,
    )


def _fault_place(tree: t.Tree, path: str, action: FaultAction, values: fields.Values, problems: Problems) -> None:
    """A reboot and a hang happen to a switch, a pause and a kill to a host, everything else to links."""
    given = [place for place in PLACES if values[place] is not None]
    own: tuple[str, ...] = ("link", "plane")
    example = 'link: "p0t0-0:p0t1-2", link: {tier: t0-t1, count: 1}, or plane: 0'
    if action in OF_SWITCHES:
        own, example = ("switch",), "switch: p0t1-0"
    elif action in OF_HOSTS:
        own, example = ("host",), "host: h0"
    wrong = [place for place in given if place not in own]
    for place in wrong:
        hint = f"for example {example}"
        if place == "switch":
            hint = f"link: {{switch: {values[place]}}} selects every link of that switch; reboot and hang take a switch"
        message = f"`{action}` happens to {' or '.join(f'a {name}' for name in own)}, not to a {place}"
        problems.add(t.locate(tree, place), fields.join(path, place), message, hint)
    if not given:
        problems.add(tree.place, path, "a fault needs a place", f"for example {example}")
    elif len(given) > 1 and not wrong:
        problems.add(t.locate(tree, given[1]), fields.join(path, given[1]), f"a fault has one place, and `{given[0]}` is given")


def _fault_keys(tree: t.Tree, path: str, action: FaultAction, values: fields.Values, problems: Problems) -> None:
    own = OWN_KEYS[action]
    for key in ("ratio", "to"):
        if key in own and values[key] is None:
            example = "ratio: 0.01" if key == "ratio" else "to: 1mbit"
            problems.add(tree.place, fields.join(path, key), f"`{action}` needs this key", f"for example {example}")
    for key in ("direction", "ratio", "to", "side"):
        if key in own or values[key] is None or values[key] == "both":
            continue
        takers = [other for other, keys in OWN_KEYS.items() if key in keys]
        message = f"`{action}` takes no {key}"
        if key == "direction" and action in CARRIERS:
            message += ": both ends lose the carrier"
        problems.add(
            t.locate(tree, key), fields.join(path, key), message, f"{', '.join(takers)} take{'s' * (len(takers) == 1)} one"
        )


def _fault_repetition(tree: t.Tree, path: str, action: FaultAction, values: fields.Values, problems: Problems) -> None:
    """Once (`for`), or in every `period` for a share `duty` of it, or `poisson_per_minute` times, each `for` so long."""

    def wrong(key: str, message: str, hint: str = "") -> None:
        problems.add(t.locate(tree, key), fields.join(path, key), message, hint)

    given = {key for key in ("for", "until", "period", "duty", "poisson_per_minute") if values[key] is not None}
    periodic, random = {"period", "duty"} & given, "poisson_per_minute" in given
    if action is FaultAction.KILL and given:
        wrong(min(given), "a killed host stays dead: `kill` has no end and happens once")
        return
    if random and action in (*OF_HOSTS, *OF_SWITCHES):
        wrong("poisson_per_minute", f"draws links; `{action}` happens to a {'host' if action in OF_HOSTS else 'switch'}")
    if periodic and random:
        wrong("poisson_per_minute", "is another rhythm than period and duty", "give one of them")
    elif periodic and len(periodic) == 1:
        (one,) = periodic
        wrong(one, f"needs `{'duty' if one == 'period' else 'period'}` beside it", "period: 2s, duty: 0.5")
    elif periodic and "for" in given:
        wrong("for", "the length of each event is period x duty", "leave `for` out; `until` says when the last has passed")
    elif random and "for" not in given:
        problems.add(tree.place, fields.join(path, "for"), "poisson_per_minute needs this key: how long each event lasts")
    elif "until" in given and not (periodic or random):
        wrong("until", "belongs to a repeated fault (period and duty, or poisson_per_minute)", "`for` says how long one lasts")
    elif action is FaultAction.FLAP and not (periodic or random):
        problems.add(tree.place, path, "`flap` needs a rhythm", "period: 2s, duty: 0.5, or poisson_per_minute: 10 with for: 1s")
    if "until" in given and values["until"] <= values["at"]:
        wrong("until", "a fault must end after it begins")


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
