"""Quantities with units, read strictly and written back exactly (pitfall H-25).

What is accepted, and nothing else:

- A quantity is a plain decimal number directly followed by a unit, no space, no sign, no exponent, no leading zero, no
  digit grouping: `5mbit`, `0.5s`, `64KiB`. Units are case-sensitive.
- rate: `bit`, `kbit`, `mbit`, `gbit`, `tbit`, per second, powers of 1000 (as in tc). Read as a whole number of bit/s.
- time: `ns`, `us`, `ms`, `s`, `m` (minutes). Read as a whole number of nanoseconds.
- size: `B`, `KiB`, `MiB`, `GiB` (powers of 1024). Read as a whole number of bytes.
- A fraction is fine where the result is a whole number of the base unit (`2.5gbit`, `1.5KiB`); `0.3B` is refused.
- A plain number (`count`, `seed`, `mtu`; thresholds in frames) is decimal digits, with a fraction only where said so.

Every refusal is a ValueError whose message says what was found and what to write; callers add file, line and key.
"""

from __future__ import annotations

import re
from fractions import Fraction

RATE_UNITS = {"bit": 1, "kbit": 10**3, "mbit": 10**6, "gbit": 10**9, "tbit": 10**12}
TIME_UNITS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9}
SIZE_UNITS = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}

# What people write for a unit, and the unit meant where only one can be: used in hints, never to accept a value.
_RATE_SPELLINGS = {"b": "bit", "bps": "bit", "bit/s": "bit", "kb": "kbit", "kbps": "kbit", "kbit/s": "kbit", "kb/s": "kbit"}
_RATE_SPELLINGS |= {f"{big}{rest}": f"{big}bit" for big in "mgt" for rest in ("", "b", "bps", "bit/s", "b/s", "bits")} | {
    "k": "kbit"
}
_TIME_SPELLINGS = {
    "sec": "s",
    "secs": "s",
    "second": "s",
    "seconds": "s",
    "min": "m",
    "mins": "m",
    "minute": "m",
    "minutes": "m",
}
_TIME_SPELLINGS |= {"msec": "ms", "usec": "us", "\N{MICRO SIGN}s": "us", "\N{GREEK SMALL LETTER MU}s": "us", "nsec": "ns"}
_SIZE_SPELLINGS = {"byte": "B", "bytes": "B", "k": "KiB", "kb": "KiB", "m": "MiB", "mb": "MiB", "g": "GiB", "gb": "GiB"}

_LONGEST = 32  # characters; nothing sensible is longer, and int() of a huge text is slow
_NUMBER = re.compile(r"(?:0|[1-9][0-9]*)(?:\.[0-9]+)?")
_QUANTITY = re.compile(r"((?:0|[1-9][0-9]*)(?:\.[0-9]+)?)([A-Za-z]+)")
_LOOSE = re.compile(r"\s*([+-]?)\s*([0-9][0-9_,]*(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?\s*(\S*)\s*")


def rate(text: str) -> int:
    """`5mbit` -> 5,000,000 bit/s."""
    return _quantity(text, "a rate", RATE_UNITS, _RATE_SPELLINGS, "5mbit")


def time(text: str) -> int:
    """`20ms` -> 20,000,000 ns."""
    return _quantity(text, "a time", TIME_UNITS, _TIME_SPELLINGS, "20ms")


def size(text: str) -> int:
    """`4096B` -> 4096 bytes."""
    return _quantity(text, "a size", SIZE_UNITS, _SIZE_SPELLINGS, "4096B")


def integer(text: str) -> int:
    """`128` -> 128. Decimal digits only: no sign, leading zero, fraction, exponent, underscore or other base."""
    if len(text) > _LONGEST or not re.fullmatch(r"0|[1-9][0-9]*", text):
        raise ValueError(f"expected a whole number such as 4, found {shown(text)}{_why(text)}")
    return int(text)


def number(text: str) -> Fraction:
    """`0.97` -> 97/100, exactly. Digits with an optional fraction; a minus sign is refused."""
    if len(text) > _LONGEST or not _NUMBER.fullmatch(text):
        raise ValueError(f"expected a number such as 2 or 0.5, found {shown(text)}{_why(text)}")
    return Fraction(text)


def is_number(text: str) -> bool:
    """Whether `number` would accept it: how a key that takes frames or bytes tells them apart."""
    return len(text) <= _LONGEST and _NUMBER.fullmatch(text) is not None


def format_rate(rate_bps: int) -> str:
    return _exact(rate_bps, RATE_UNITS)


def format_time(time_ns: int) -> str:
    """Without minutes: `60s` needs no second look where `1m` might."""
    return _exact(time_ns, {unit: factor for unit, factor in TIME_UNITS.items() if unit != "m"}, zero="0s")


def format_size(size_bytes: int) -> str:
    return _exact(size_bytes, SIZE_UNITS)


def shown(text: str) -> str:
    """A value as messages quote it: one line, printable, cut when long."""
    printable = text.encode("unicode_escape").decode()
    return f"'{printable[:40]}...'" if len(printable) > 43 else f"'{printable}'"


def _exact(value: int, units: dict[str, int], zero: str | None = None) -> str:
    """The largest unit that divides `value`: exact, so that it reads back equal."""
    if value == 0 and zero is not None:
        return zero
    fits = [(factor, unit) for unit, factor in units.items() if value % factor == 0 and (value or factor == 1)]
    factor, unit = max(fits)
    return f"{value // factor}{unit}"


def _quantity(text: str, what: str, units: dict[str, int], spellings: dict[str, str], example: str) -> int:
    match = _QUANTITY.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None or match[2] not in units:
        raise ValueError(f"expected {what} such as {example}, found {shown(text)}{_advice(text, units, spellings)}")
    value = Fraction(match[1]) * units[match[2]]
    if value.denominator != 1:
        base = next(iter(units))
        raise ValueError(f"expected {what} in whole {base}, found {shown(text)}")
    return int(value)


def _advice(text: str, units: dict[str, int], spellings: dict[str, str]) -> str:
    """What is wrong with a refused quantity, and what to write where that is clear."""
    known = ", ".join(units)
    why = _why(text)
    match = _LOOSE.fullmatch(text)
    if why or match is None:
        return why
    plain, unit = match[2], match[3]
    if not unit:
        return f": it has no unit; one of {known}"
    by_case = {name.lower(): name for name in units}
    meant = by_case.get(unit.lower()) or spellings.get(unit.lower())
    if unit in units:
        return f": no space before the unit; write {plain}{unit}"
    if meant is None:
        return f": {shown(unit)} is no unit here; one of {known}"
    return f": units are {known}; did you mean {plain}{meant}?"


def _why(text: str) -> str:
    """What is wrong with the number itself; empty when that is not the trouble."""
    if len(text) > _LONGEST:
        return f": longer than {_LONGEST} characters"
    match = _LOOSE.fullmatch(text)
    if match is None:
        return ""
    digits = match[2]
    if match[1]:
        return ": no sign is allowed"
    if re.match(r"0[xXoObB]", text.strip()):
        return ": only decimal numbers are read"
    if re.search(r"[0-9.][eE][+-]?[0-9]", text):
        return ": no exponents; write the digits out"
    if "_" in digits or "," in digits:
        return ": no digit grouping; write the digits only"
    if re.match(r"0[0-9]", digits):
        return ": no leading zeros (YAML would read them as octal)"
    if digits.startswith(".") or digits.endswith("."):
        return ": digits on both sides of the point, please"
    return ""
