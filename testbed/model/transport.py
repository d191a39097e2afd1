"""The `transport` section: one flat set of keys for every kind of transport (DESIGN 4.2).

As in `schema.py`, readers refuse what they cannot take; which links, switches and EVs exist is asked in `checks.py`. A key
that the rest of the section makes meaningless is not refused: `unused` names it and `load` warns.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from pathlib import Path

from testbed.model import ev_fields, fields, policy_file, units
from testbed.model import tree as t
from testbed.model.fields import Key, Problems, Refused
from testbed.model.policy_file import PolicyFile
from testbed.model.scenario import DenySpec, TransportKind, TransportSpec

US, S = 10**3, 10**9
KIB, MIB = 2**10, 2**20

MAX_QPS = 16  # per flow: as many as the paper gives the baseline (Fig. 16)
DEFAULT_PAYLOAD = 4096  # the OCP example's largest and default MTU (mrc-facts 3.1)
POLICIES = ("mrc", "oblivious", "single_path", "reps")

# Congestion control by kind, the default first.
CONTROLS = {
    TransportKind.MRC: ("nscc", "fixed", "none"),
    TransportKind.RC: ("dcqcn", "none"),
    TransportKind.TCP: ("cubic", "bbr"),
    TransportKind.MPTCP: ("cubic", "bbr"),
}
# What a kind does not use.
NOT_RC = (
    *("evs", "active_evs", "ev_list", "ev_fields", "denylist", "policy", "replacement", "probes", "reshuffle"),
    *("mpr", "mpr_dest", "dynamic_mpr", "max_wimm", "max_wimm_dest", "backpressure"),
)

NOT_KERNELS = (*NOT_RC, "qps", "window", "sack_bytes", "timeout", "timeout_linear", "timeout_exponential")

# Ranges and units of the published API (mrc-facts 3.1, 3.2, 3.4); the transport's QpLimits has the same.
MPR_UNIT = 128  # PSNs
MPR_MAX = 255
WIMM_MAX = 0xFFFF
TIMEOUT_UNIT_NS = 1024
TIMEOUT_MAX_N = 24
LINEAR_MAX = 7
EXPONENTIAL_FOREVER = 25


@dataclass(frozen=True, slots=True)
class _Window:
    """A window as written: whole frames, or bytes; both 0 for `auto`."""

    frames: int = 0
    size: int = 0


def _window(tree: t.Tree, path: str) -> _Window:
    if isinstance(tree, t.Scalar) and tree.text == "auto":
        return _Window()
    value = fields.threshold(tree, path)
    if isinstance(value, int):
        return _Window(size=value)
    if value.denominator != 1:
        raise Refused(f"a window is a whole number of frames, found {t.describe(tree)}")
    return _Window(frames=int(value))


def _word_or(word: str, meaning: int, otherwise: fields.Reader) -> fields.Reader:
    """`word` stands for `meaning`; everything else is read by `otherwise`."""

    def read(tree: t.Tree, path: str) -> int:
        if isinstance(tree, t.Scalar) and tree.text == word:
            return meaning
        try:
            value: int = otherwise(tree, path)
        except Refused as refused:
            raise Refused(refused.message, refused.hint or f"or `{word}`") from refused
        return value

    return read


def _policy(tree: t.Tree, path: str, folder: Path) -> str | PolicyFile:
    """A word, or FILE.py:Class."""
    if isinstance(tree, t.Scalar) and policy_file.is_one(tree.text):
        return policy_file.read(tree.text, folder)
    try:
        return str(fields.choice(POLICIES)(tree, path))
    except Refused as refused:
        raise Refused(refused.message, refused.hint or "or FILE.py:Class, a policy of your own") from refused


@dataclass(frozen=True, slots=True)
class _Probes:
    on: bool = True
    interval_ns: int = 0  # 0: two base round trips
    count: int = 3  # docs/protocol.md, "EV states"


PROBES = (
    Key("interval", _word_or("auto", 0, fields.time(100 * US, 60 * S)), 0),
    Key("count", fields.integer(1, 100), 3),
)


def _probes(tree: t.Tree, path: str, problems: Problems) -> _Probes:
    if isinstance(tree, t.Mapping):
        values = fields.section(tree, path, PROBES, problems)
        return _Probes(True, values["interval"], values["count"])
    try:
        return replace(_Probes(), on=fields.boolean(tree, path))
    except Refused as refused:
        raise Refused(f"expected true, false or a mapping such as {{count: 5}}, found {t.describe(tree)}") from refused


def _timeout(tree: t.Tree, path: str) -> int:
    """A time as the exponent of the timer that is the next longer one: 1.024 us x 2^n."""
    time: int = fields.time(TIMEOUT_UNIT_NS, TIMEOUT_UNIT_NS << TIMEOUT_MAX_N)(tree, path)
    return (-(-time // TIMEOUT_UNIT_NS) - 1).bit_length()


def timeout_ns(n: int) -> int:
    """The retransmission timer with exponent `n` (mrc-facts 3.4)."""
    return TIMEOUT_UNIT_NS << n


def _names(tree: t.Tree, path: str, problems: Problems) -> tuple[str, ...]:
    """A list of names, each once."""
    found = fields.items(tree, path, fields.text, problems)
    if None in found:
        raise fields.Reported
    twice = fields.twice(found)
    if twice is not None:
        raise Refused(f"{units.shown(twice)} is listed twice")
    if not found:
        raise Refused("an empty list of EVs leaves no path", "remove the key to have EVs chosen")
    return tuple(found)


DENY = (
    Key("link", fields.text),
    Key("at", fields.time(0, 24 * 3600 * S), 0),
    Key("for", fields.time(1, 24 * 3600 * S), None),
)


def _deny(tree: t.Tree, path: str, problems: Problems) -> DenySpec:
    """`"a:b"`, denied from the start to the end; or a mapping that says when."""
    if isinstance(tree, t.Mapping):
        values = fields.section(tree, path, DENY, problems)
        return DenySpec(_ends(values["link"], t.describe(tree.entries["link"])), values["at"], values["for"])
    return DenySpec(_ends(tree.text if isinstance(tree, t.Scalar) else "", t.describe(tree)))


def _ends(text: str, found: str) -> tuple[str, str]:
    first, _, second = text.partition(":")
    if not first or not second or ":" in second or text.split() != [text]:
        raise Refused(f'expected a link as "p0t0-0:p0t1-2", or {{link: ..., at: ..., for: ...}}, found {found}')
    return first, second


def keys(problems: Problems, folder: Path) -> tuple[Key, ...]:
    """The keys of the section; nested ones report to `problems`, files are looked for in `folder`."""
    wimm = fields.integer(1, WIMM_MAX)
    mpr = fields.integer(1, MPR_MAX)
    return (
        Key("kind", fields.choice([kind.value for kind in TransportKind]), "mrc"),
        Key("payload", fields.size(64, 64 * KIB), DEFAULT_PAYLOAD),
        Key("qps", fields.integer(1, MAX_QPS), 1),
        Key("evs", fields.integer(1, 2**16), 128),  # the paper's NICs hold 128 to 256 (mrc-facts 3.5)
        Key("active_evs", _word_or("all", 0, fields.integer(1, 2**16)), 0),
        Key("ev_list", lambda tree, path: _names(tree, path, problems), ()),
        Key("ev_fields", lambda tree, path: ev_fields.read(tree, path, problems), ()),
        Key("denylist", lambda tree, path: _denylist(tree, path, problems), ()),
        Key("policy", lambda tree, path: _policy(tree, path, folder), "mrc"),
        Key("replacement", fields.choice(("same_plane", "any")), "same_plane"),
        Key("cc", fields.choice(sorted({cc for each in CONTROLS.values() for cc in each})), None),
        Key("backpressure", fields.boolean, True),
        Key("window", _window, _Window()),
        Key("sack_bytes", fields.size(1, 16 * MIB), 16384),  # UETSIM's unacked threshold (mrc-facts 3.4)
        Key("probes", lambda tree, path: _probes(tree, path, problems), _Probes()),
        Key("reshuffle", fields.boolean, True),
        Key("mpr", mpr, 8),  # the API's example: 1,024 PSNs (mrc-facts 3.2)
        Key("mpr_dest", mpr, None),
        Key("dynamic_mpr", fields.boolean, False),
        Key("max_wimm", wimm, 128),
        Key("max_wimm_dest", wimm, None),
        Key("timeout", _word_or("auto", -1, _timeout), -1),
        Key("timeout_linear", fields.integer(0, LINEAR_MAX), 3),
        Key(
            "timeout_exponential",
            _word_or("forever", EXPONENTIAL_FOREVER, fields.integer(0, EXPONENTIAL_FOREVER - 1)),
            EXPONENTIAL_FOREVER,
        ),
    )


def _denylist(tree: t.Tree, path: str, problems: Problems) -> tuple[DenySpec, ...]:
    found = fields.items(tree, path, lambda item, here: _deny(item, here, problems), problems)
    if None in found:
        raise fields.Reported
    return tuple(found)


def transport(tree: t.Tree, path: str, problems: Problems, folder: Path) -> TransportSpec:
    """`folder`: where the scenario lies."""
    values = fields.section(tree, path, keys(problems, folder), problems)
    policy: str | PolicyFile = values.pop("policy")
    window: _Window = values.pop("window")
    probes: _Probes = values.pop("probes")
    timeout: int = values.pop("timeout")
    if window.size % values["payload"]:
        message = f"{window.size} bytes are not a whole number of {values['payload']}-byte payloads"
        problems.add(t.locate(tree, "window"), fields.join(path, "window"), message)
        raise fields.Reported
    kind = values["kind"] = TransportKind(values["kind"])
    values["cc"] = values["cc"] or CONTROLS[kind][0]
    if values["cc"] not in CONTROLS[kind]:
        message = f"{kind} has no congestion control {values['cc']}"
        problems.add(t.locate(tree, "cc"), fields.join(path, "cc"), message, f"available: {', '.join(CONTROLS[kind])}")
        raise fields.Reported
    if kind is not TransportKind.MRC:
        values |= {"ev_list": (), "ev_fields": (), "denylist": ()}
    if kind.is_kernels:
        values["qps"] = 1
    if values["ev_list"] and values["ev_fields"]:
        message = "ev_list says already which EVs there are"
        problems.add(t.locate(tree, "ev_fields"), fields.join(path, "ev_fields"), message, "give one of them")
        raise fields.Reported
    for key in ("mpr", "max_wimm"):
        values[f"{key}_dest"] = values[f"{key}_dest"] or values[key]
    return TransportSpec(
        **values,
        policy=policy if isinstance(policy, str) else f"{policy.file}:{policy.name}",
        policy_text="" if isinstance(policy, str) else policy.text,
        window_frames=window.frames or window.size // values["payload"],
        probes=probes.on,
        probe_interval_ns=probes.interval_ns,
        probe_count=probes.count,
        timeout_n=None if timeout < 0 else timeout,
    )


def default() -> TransportSpec:
    """What an empty section gives."""
    return transport(t.Mapping(t.Place("", 0), {}), "transport", Problems(), Path())


def _is_rc(spec: TransportSpec) -> bool:
    return spec.kind is TransportKind.RC


def _is_kernels(spec: TransportSpec) -> bool:
    return spec.kind.is_kernels


def _learns_nothing(spec: TransportSpec) -> bool:
    return spec.kind is TransportKind.MRC and spec.policy in ("oblivious", "single_path")


def _single_path(spec: TransportSpec) -> bool:
    return spec.kind is TransportKind.MRC and spec.policy == "single_path"


def _no_backup(spec: TransportSpec) -> bool:
    return spec.kind is TransportKind.MRC and not (spec.active_evs or _learns_nothing(spec))


# Which keys mean nothing when, and why. A kind of transport that does not use a key gets a line here.
UNUSED: tuple[tuple[tuple[str, ...], Callable[[TransportSpec], bool], str], ...] = (
    (NOT_KERNELS, _is_kernels, "the kernel's own stack carries the flows"),
    (NOT_RC, _is_rc, "rc has one path per QP, given by a hash of its 5-tuple"),
    (("evs",), lambda spec: bool(spec.ev_list), "ev_list says which EVs there are"),
    (("evs",), lambda spec: bool(spec.ev_fields), "ev_fields say which EVs there are"),
    (("replacement", "probes"), _learns_nothing, "this policy takes no path out of use"),
    (("replacement",), _no_backup, "active_evs leaves no backup"),
    (("active_evs", "reshuffle"), _single_path, "policy single_path has no rotation"),
)


def unused(spec: TransportSpec, given: Collection[str]) -> list[tuple[str, str]]:
    """(key, why) of each key that was given and changes nothing."""
    return [(key, why) for keys, holds, why in UNUSED for key in keys if key in given and holds(spec)]
