"""Which runs are repeats of one another: those whose resolved scenarios differ in the seed at most; what others differ in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import yaml

from analysis.study import Study

IGNORED = ("seed", "description", "source", "expect")  # they change no packet, but for the seed, which is what repeats vary
NAMED_MAX = 3  # differing keys in a name


def variants(loaded: Study) -> list[str]:
    """A name for each run's variant: the scenario's, with the keys in which it differs from others of that name."""
    trees = [flat(yaml.safe_load((folder / "scenario.yaml").read_text(encoding="utf-8"))) for folder in loaded.folders]
    return [_name(one, [other for other in trees if other["name"] == one["name"]]) for one in trees]


def _name(one: dict[str, Any], others: Sequence[dict[str, Any]]) -> str:
    """Named by keys that all have, where those tell all apart: keys that only some have mostly follow from them."""
    every = sorted({key for other in others for key in other})
    differing = [key for key in every if any(other.get(key) != one.get(key) for other in others)]
    if not differing:
        return str(one["name"])
    shared = [key for key in differing if all(key in other for other in others)]
    if len({_values(other, shared) for other in others}) == len({_values(other, differing) for other in others}):
        differing = shared
    shown = [f"{key.rpartition('.')[2]}={one.get(key, 'none')}" for key in differing[:NAMED_MAX]]
    more = [f"{len(differing) - NAMED_MAX} more"] if len(differing) > NAMED_MAX else []
    return f"{one['name']} {', '.join(shown + more)}"


def _values(one: dict[str, Any], keys: Sequence[str]) -> tuple[str, ...]:
    return tuple(str(one.get(key)) for key in keys)


def flat(tree: Any, path: str = "") -> dict[str, Any]:
    """`a.b.c` -> value, lists by position; IGNORED left out."""
    if isinstance(tree, dict):
        items = [(str(key), value) for key, value in tree.items() if path or key not in IGNORED]
    elif isinstance(tree, list):
        items = [(str(at), value) for at, value in enumerate(tree)]
    else:
        return {path: tree}
    found: dict[str, Any] = {}
    for key, value in items:
        found |= flat(value, f"{path}.{key}" if path else key)
    return found
