"""24-bit packet sequence numbers. Inside the endpoint a PSN is an unbounded integer; only the wire wraps it."""

from __future__ import annotations

PSN_BITS = 24
PSN_MASK = (1 << PSN_BITS) - 1
_HALF = 1 << (PSN_BITS - 1)


def expand(wire: int, reference: int) -> int:
    """The unbounded PSN nearest to `reference` whose low 24 bits are `wire`."""
    return reference + ((wire - reference + _HALF) & PSN_MASK) - _HALF
