"""GENERATED EVs, the third provisioning mode of the published API (mrc-facts 2): a controller describes the fields of an EV,
and each number of a counter is spread over the fields' mask bits.

An EV here has 32 bits, plane << 16 | uplink (`paths.py`), however many fields they are cut into.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from testbed.model import fields
from testbed.model import tree as t
from testbed.model.fields import Key, Problems, Refused
from testbed.model.scenario import EvField

EV_BITS = 32
MASK_BITS = 16  # of all fields together: every number of the counter is tried
_NUMBER = re.compile(r"0x[0-9a-fA-F]{1,8}|0b[01]{1,32}|0|[1-9][0-9]{0,9}")


def _bits(tree: t.Tree, _path: str) -> int:
    """A whole number below 2**32, in decimal, hexadecimal or binary digits."""
    if not isinstance(tree, t.Scalar) or tree.quoted or not _NUMBER.fullmatch(tree.text):
        raise Refused(f"expected a whole number such as 5, 0x1f or 0b11, found {t.describe(tree)}")
    value = int(tree.text, 0)
    if value >> EV_BITS:
        raise Refused(f"{tree.text} has more than {EV_BITS} bits")
    return value


FIELD = (
    Key("width", fields.integer(1, EV_BITS)),
    Key("mask", _bits),
    Key("init", _bits, 0),
    Key("min", _bits, 0),
    Key("max", _bits, None),
)


def read(tree: t.Tree, path: str, problems: Problems) -> tuple[EvField, ...]:
    """The list of fields, the most significant first."""
    found = fields.items(tree, path, lambda item, here: _field(item, here, problems), problems)
    if None in found:
        raise fields.Reported
    if not found:
        raise Refused("no field is listed", "remove the key to have EVs chosen")
    width = sum(field.width for field in found)
    if width != EV_BITS:
        raise Refused(f"the fields are {width} bits wide, an EV has {EV_BITS}", "16 of the plane, 16 of the uplink")
    if sum(field.mask.bit_count() for field in found) > MASK_BITS:
        raise Refused(f"the masks take more than {MASK_BITS} bits", f"{1 << MASK_BITS} EVs are the most that can be generated")
    return tuple(found)


def _field(tree: t.Tree, path: str, problems: Problems) -> EvField:
    values = fields.section(tree, path, FIELD, problems)
    limit = 1 << values["width"]
    most = limit - 1 if values["max"] is None else values["max"]
    for key, value in (("mask", values["mask"]), ("init", values["init"]), ("max", most)):
        if value >= limit:
            message = f"{value:#x} is wider than the field's {values['width']} bits"
            problems.add(t.locate(tree, key), fields.join(path, key), message)
            raise fields.Reported
    if values["min"] > most:
        problems.add(t.locate(tree, "min"), fields.join(path, "min"), f"{values['min']} is more than the field's most, {most}")
        raise fields.Reported
    return EvField(values["width"], values["mask"], values["init"], values["min"], most)


def expand(given: Sequence[EvField], number: int) -> tuple[int, ...]:
    """The published rule: each field starts at its initial value; for each set mask bit, most significant first, the next
    bit of `number` (most significant first too) takes its place. Returns the fields' values, in order.
    """
    left = sum(field.mask.bit_count() for field in given)
    if number >> left:
        raise ValueError(f"{number} has more bits than the {left} that the masks take")
    values: list[int] = []
    for field in given:
        value = field.init
        for bit in range(field.width - 1, -1, -1):
            if field.mask >> bit & 1:
                left -= 1
                value = value & ~(1 << bit) | (number >> left & 1) << bit
        values.append(value)
    return tuple(values)


def join(given: Sequence[EvField], values: Sequence[int]) -> int:
    """The EV: the fields one behind the other, the first in the most significant place."""
    ev = 0
    for field, value in zip(given, values, strict=True):
        ev = ev << field.width | value
    return ev


@lru_cache(maxsize=8)
def generate(given: tuple[EvField, ...]) -> tuple[int, ...]:
    """Every EV whose fields are in range, in the order of the counter; tiers need not be powers of two."""
    found: list[int] = []
    for number in range(1 << sum(field.mask.bit_count() for field in given)):
        values = expand(given, number)
        if all(field.minimum <= value <= field.maximum for field, value in zip(given, values, strict=True)):
            found.append(join(given, values))
    return tuple(found)
