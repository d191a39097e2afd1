"""Constants and struct layouts, read from port.h so that C and Python share one table."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

HEADER = Path(__file__).with_name("port.h")
_CONSTANT = re.compile(r"^#define\s+(\w+)\s+(\d+)\b", re.MULTILINE)
_STRUCT = re.compile(r"struct\s+(\w+)\s*\{(.*?)\}", re.DOTALL)
_MEMBER = re.compile(r"__u(32|64)\s+(\w+)\s*;")
_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Struct:
    """`offsets` and `sizes` in bytes by member name; `size` of the whole, a multiple of 8."""

    offsets: dict[str, int]
    sizes: dict[str, int]
    size: int


@cache
def constants() -> dict[str, int]:
    """Every numeric #define of port.h."""
    return {name: int(value) for name, value in _CONSTANT.findall(_COMMENT.sub("", HEADER.read_text()))}


@cache
def struct(name: str) -> Struct:
    """The layout of `struct name`. ValueError when its members would need padding: the C side must then be reordered."""
    bodies = dict(_STRUCT.findall(_COMMENT.sub("", HEADER.read_text())))
    offsets: dict[str, int] = {}
    sizes: dict[str, int] = {}
    position = 0
    for bits, member in _MEMBER.findall(bodies[name]):
        size = int(bits) // 8
        if position % size:
            raise ValueError(f"struct {name}: {member} would be padded")
        offsets[member], sizes[member] = position, size
        position += size
    if position % 8:
        raise ValueError(f"struct {name} would be padded at its end")
    return Struct(offsets, sizes, position)
