"""Which EVs a QP may use: the three provisioning modes of the published API (mrc-facts 2, 3.5; docs/protocol.md, "EVs").

AUTO: the NIC picks among the paths there are. EXPLICIT: a controller lists them. GENERATED: a controller describes the
fields of an EV, and each number of a counter is spread over the fields' mask bits.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

EV_BITS = 32


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a GENERATED EV. Values outside [`minimum`, `maximum`] name nothing (tiers need not be powers of two)."""

    width: int
    mask: int
    initial: int = 0
    minimum: int = 0
    maximum: int | None = None

    def __post_init__(self) -> None:
        limit = 1 << self.width
        most = limit - 1 if self.maximum is None else self.maximum
        if not 0 < self.width <= EV_BITS or not 0 <= self.mask < limit or not 0 <= self.initial < limit:
            raise ValueError("a field's mask and initial value must fit its width, and its width an EV")
        if not 0 <= self.minimum <= most < limit:
            raise ValueError("a field's minimum and maximum must be in order and fit its width")

    def holds(self, value: int) -> bool:
        return self.minimum <= value and (self.maximum is None or value <= self.maximum)


def expand(fields: Sequence[Field], number: int) -> tuple[int, ...]:
    """The published rule: each field starts at its initial value; for each set mask bit, most significant first, the next
    bit of `number` (most significant first too) takes its place. Returns the fields' values, in order.
    """
    total = sum(field.mask.bit_count() for field in fields)
    if number >> total:
        raise ValueError(f"{number} has more bits than the {total} that the masks take")
    values: list[int] = []
    left = total
    for field in fields:
        value = field.initial
        for bit in range(field.width - 1, -1, -1):
            if field.mask >> bit & 1:
                left -= 1
                value = value & ~(1 << bit) | (number >> left & 1) << bit
        values.append(value)
    return tuple(values)


def join(fields: Sequence[Field], values: Sequence[int]) -> int:
    """The EV: the fields one behind the other, the first in the most significant place."""
    ev = 0
    for field, value in zip(fields, values, strict=True):
        ev = ev << field.width | value
    return ev


@dataclass(frozen=True, slots=True)
class Auto:
    """At most `count` EVs, the same number in every plane, a random subset where a plane has more paths (PAPER 2.1, 2.4)."""

    count: int

    def choose(self, known: dict[int, int], rng: random.Random) -> list[int]:
        planes: dict[int, list[int]] = {}
        for ev, plane in known.items():
            planes.setdefault(plane, []).append(ev)
        share = min(self.count // len(planes), *(len(evs) for evs in planes.values()))
        if share < 1:
            raise ValueError(f"{self.count} EVs are fewer than one in each of {len(planes)} planes")
        return [ev for evs in planes.values() for ev in rng.sample(sorted(evs), share)]


@dataclass(frozen=True, slots=True)
class Explicit:
    """These EVs and no others. Each must name a path, and none may come twice."""

    evs: tuple[int, ...]

    def choose(self, known: dict[int, int], rng: random.Random) -> list[int]:
        del rng  # nothing is left to chance
        unknown = [ev for ev in self.evs if ev not in known]
        if unknown:
            raise ValueError(f"no path has EV {', '.join(f'{ev:#x}' for ev in unknown)}")
        if len(set(self.evs)) < len(self.evs) or not self.evs:
            raise ValueError("an explicit EV list holds each EV once, and at least one")
        return list(self.evs)


@dataclass(frozen=True, slots=True)
class Generated:
    """Every number the masks can take, as far as its fields are in range and its EV names a path."""

    fields: tuple[Field, ...]

    def choose(self, known: dict[int, int], rng: random.Random) -> list[int]:
        del rng
        if sum(field.width for field in self.fields) > EV_BITS:
            raise ValueError(f"the fields are wider than the {EV_BITS} bits of an EV")
        found: list[int] = []
        for number in range(1 << sum(field.mask.bit_count() for field in self.fields)):
            values = expand(self.fields, number)
            if all(field.holds(value) for field, value in zip(self.fields, values, strict=True)):
                found.append(join(self.fields, values))
        usable = [ev for ev in dict.fromkeys(found) if ev in known]
        if not usable:
            raise ValueError("no generated EV names a path")
        return usable


Profile = Auto | Explicit | Generated
