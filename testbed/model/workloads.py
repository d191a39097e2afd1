"""The workload section of a scenario: each job's keys, ranges and defaults, by kind.

As in `schema.py`, `workload` reads one entry and raises `Refused` or `Reported`; what only the topology and the measuring
can say about it is in `checks.py`.
"""

from __future__ import annotations

import re

from testbed.model import fields, sizes
from testbed.model import tree as t
from testbed.model.fields import Key, Problems, Refused
from testbed.model.flows import LANE_BYTES
from testbed.model.scenario import WorkloadKind, WorkloadSpec
from testbed.model.schema import GIB, MAX_NODES_PER_KIND, S, name

_TIME = fields.time(0, 24 * 3600 * S)
_WORKLOAD_KINDS = fields.choice([kind.value for kind in WorkloadKind])
_HOST = re.compile(r"h(0|[1-9][0-9]{0,5})")
_HOST_RANGE = re.compile(r"h(0|[1-9][0-9]{0,5})-h(0|[1-9][0-9]{0,5})")
_SIZE = fields.size(1, 1 * GIB)
_STEPS = fields.integer(1, 10**6)
COLLECTIVES = (WorkloadKind.RING_ALLREDUCE, WorkloadKind.ALL_TO_ALL)
# The hosts of a collective are its ranks.
RANKED = (*COLLECTIVES, WorkloadKind.TRAINING, WorkloadKind.POISSON)

COMMON = (
    Key("kind", _WORKLOAD_KINDS),
    Key("message", _SIZE),
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
    common = tuple(key for key in COMMON if not (key.name == "message" and kind is WorkloadKind.POISSON))
    values = fields.section(tree, path, (*common, *_own_keys(kind, hosts, problems)), problems)
    before = len(problems.found)
    if values["stop"] is not None and values["stop"] <= values["start"]:
        problems.add(t.locate(tree, "stop"), fields.join(path, "stop"), "a workload must stop after it starts")
    _consistent(tree, path, kind, values, tuple(range(hosts or 0)), problems)
    if len(problems.found) > before:
        raise fields.Reported
    return _spec(kind, values)


def _own_keys(kind: WorkloadKind, hosts: int | None, problems: Problems) -> tuple[Key, ...]:
    """The keys of one kind beside the common ones."""

    def one_host(tree: t.Tree, path: str) -> int:
        return _host(tree, path, hosts)

    def host_set(tree: t.Tree, path: str) -> tuple[int, ...]:
        return tuple(sorted(_hosts(tree, path, hosts, problems)))

    def ranks(tree: t.Tree, path: str) -> tuple[int, ...]:
        return _hosts(tree, path, hosts, problems)

    def from_to(tree: t.Tree, path: str) -> tuple[int, int]:
        return _from_to(tree, path, hosts, problems)

    everyone = tuple(range(hosts or 0))
    collective = fields.choice([kind.value for kind in COLLECTIVES])
    own = {
        WorkloadKind.PERMUTATION: (Key("hosts", host_set, everyone), Key("cross_group", fields.boolean, True)),
        WorkloadKind.STREAM: (Key("from", one_host), Key("to", one_host)),
        WorkloadKind.INCAST: (Key("receiver", one_host), Key("senders", host_set, None), Key("bystander", from_to, None)),
        WorkloadKind.ALL_TO_ALL: (Key("hosts", ranks, everyone),),
        WorkloadKind.RING_ALLREDUCE: (Key("hosts", ranks, everyone), Key("iterations", _STEPS, None)),
        WorkloadKind.TRAINING: (
            Key("hosts", ranks, everyone),
            Key("compute", _TIME),
            Key("collective", collective, WorkloadKind.RING_ALLREDUCE.value),
            Key("steps", _STEPS, None),
        ),
        WorkloadKind.POISSON: (
            Key("hosts", ranks, everyone),
            Key("message", _SIZE, None),
            Key("load", fields.ratio(0.001, 1)),
            Key("sizes", lambda tree, path: _sizes(tree, path, problems), "exponential"),
        ),
    }
    return own[kind]


def _spec(kind: WorkloadKind, values: fields.Values) -> WorkloadSpec:
    given = values.get("sizes", "")
    message = values["message"]
    return WorkloadSpec(
        kind=kind,
        message=round(sum(given) / len(given)) if message is None else message,
        depth=values["depth"],
        start_ns=values["start"],
        stop_ns=values["stop"],
        job=values["job"],
        hosts=values.get("hosts") or values.get("senders") or (),
        cross_group=values.get("cross_group", True),
        source=values.get("from"),
        target=values.get("to", values.get("receiver")),
        bystander=values.get("bystander"),
        steps=values.get("iterations", values.get("steps")),
        compute_ns=values.get("compute", 0),
        collective=WorkloadKind(values["collective"]) if "collective" in values else None,
        load=values.get("load", 0.0),
        sizes=given,
    )


def _consistent(
    tree: t.Mapping,
    path: str,
    kind: WorkloadKind,
    values: fields.Values,
    everyone: tuple[int, ...],
    problems: Problems,
) -> None:
    """Reports what keys contradict each other; fills in an incast's senders."""

    def add(key: str, message: str, hint: str = "") -> None:
        problems.add(t.locate(tree, key), fields.join(path, key), message, hint)

    if kind is WorkloadKind.STREAM and values["from"] == values["to"]:
        add("to", "a host cannot send to itself")
    if kind is WorkloadKind.INCAST:
        _incast(tree, path, values, everyone, problems)
    if kind in RANKED and everyone and len(values["hosts"]) < 2:
        add("hosts", f"a job of {len(values['hosts'])} host has nothing to send", "at least two hosts")
    if kind is WorkloadKind.POISSON:
        listed = isinstance(values["sizes"], tuple)
        if listed and values["message"] is not None:
            add("message", "the sizes are listed: their mean is not given too", "leave message out")
        if not listed and values["message"] is None:
            add("message", f"sizes `{values['sizes']}` need the mean size", "for example message: 64KiB; or list the sizes")
    ring = WorkloadKind.RING_ALLREDUCE.value in (kind.value, values.get("collective"))
    if ring and values["message"] < LANE_BYTES * len(values["hosts"]):
        need = LANE_BYTES * len(values["hosts"])
        add(
            "message",
            f"a ring of {len(values['hosts'])} hosts needs a number of {LANE_BYTES} bytes for each",
            f"at least {need}B",
        )


def _sizes(tree: t.Tree, path: str, problems: Problems) -> tuple[int, ...] | str:
    """A list of equally likely sizes, or the name of a distribution."""
    if not isinstance(tree, t.Sequence):
        return str(fields.choice(sizes.DISTRIBUTIONS)(tree, path))
    found = fields.items(tree, path, _SIZE, problems)
    if None in found:
        raise fields.Reported
    if not found:
        raise Refused("no size is listed")
    return tuple(found)


def _incast(tree: t.Mapping, path: str, values: fields.Values, everyone: tuple[int, ...], problems: Problems) -> None:
    """Fills in `senders: all`: everyone but the receiver and the bystander's two hosts. Reports what makes it no incast."""
    receiver, bystander = values["receiver"], values["bystander"]
    written = tree.entries.get("senders")
    if written is None or (isinstance(written, t.Scalar) and written.text == "all"):
        values["senders"] = tuple(host for host in everyone if host not in (receiver, *(bystander or ())))
    if receiver in values["senders"]:
        problems.add(
            t.locate(tree, "senders"), fields.join(path, "senders"), f"h{receiver} is the receiver: it cannot send to itself"
        )
    if everyone and not values["senders"]:
        problems.add(t.locate(tree, "senders"), fields.join(path, "senders"), "no host is left to send")
    if bystander and bystander[1] == receiver:
        message = f"a flow to h{receiver} would be one more sender of this incast, not a bystander"
        problems.add(t.locate(tree, "bystander"), fields.join(path, "bystander"), message)


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
    """`all`, a range `h0-h7` or a list of names, as indices in the order given."""
    if isinstance(tree, t.Mapping):
        raise Refused(f"expected `all`, a range such as h0-h7 or a list of hosts, found {t.describe(tree)}")
    if isinstance(tree, t.Sequence):
        found = fields.items(tree, path, lambda item, here: _host(item, here, hosts), problems)
        if None in found:
            raise fields.Reported
        twice = fields.twice(found)
        if twice is not None:
            raise Refused(f"h{twice} is listed twice")
        return tuple(found)
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
