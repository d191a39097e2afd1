"""The numbers that a reduction adds: 32-bit lanes, drawn so that the sum over all ranks fits its lane.

A buffer is one long row of lanes. Added as two big integers, lane by lane sums come out, because no lane carries into the
next: every input lane is below 2**32 / ranks. What each rank puts in, and so every partial sum, is known to every rank from
the seed: a period of `PERIOD_LANES` lanes per rank is drawn once, step k of a job starts at another place of it, and partial
sums are slices of the periods' sums. A receiver therefore compares each message, and each result, byte for byte.

As in `memory.py`: the period is prime in lanes and the pattern never matches itself under a shift, so a stale, missing or
misplaced piece of a packet's size shows.
"""

from __future__ import annotations

import random

LANE_BYTES = 4
PERIOD_LANES = 65_537
PERIOD = PERIOD_LANES * LANE_BYTES
STEP_LANES = 40_503  # near the golden section of the period: neighbouring steps start far apart


def add(one: bytes | memoryview, other: bytes | memoryview) -> bytes:
    """The lane by lane sum of two equally long rows, neither of which may overflow a lane."""
    total = int.from_bytes(one, "little") + int.from_bytes(other, "little")
    return total.to_bytes(len(one), "little")


class Pattern:
    """A period of lanes, repeated far enough for slices of `longest` bytes that start anywhere in it."""

    __slots__ = ("_view",)

    def __init__(self, period: bytes, longest: int) -> None:
        copies = -(-(PERIOD + longest) // PERIOD)
        self._view = memoryview((period * copies)[: PERIOD + longest])

    def slice(self, step: int, at: int, size: int) -> memoryview:
        """`size` bytes of the buffer of step `step`, from byte `at` of it on; a view, nothing is copied."""
        start = (step * STEP_LANES * LANE_BYTES + at) % PERIOD
        return self._view[start : start + size]


class Inputs:
    """What the ranks of one job put in."""

    def __init__(self, seed: str, ranks: int) -> None:
        bits = (2**32 // ranks).bit_length() - 1
        self._mask = int.from_bytes(((1 << bits) - 1).to_bytes(LANE_BYTES, "little") * PERIOD_LANES, "little")
        self._seed = seed

    def period(self, rank: int) -> bytes:
        """One period of what `rank` puts in."""
        drawn = random.Random(f"mrc testbed lanes {self._seed} {rank}").randbytes(PERIOD)
        return (int.from_bytes(drawn, "little") & self._mask).to_bytes(PERIOD, "little")

    def sums(self, first: int, ranks: int) -> list[bytes]:
        """Periods of the partial sums over rank `first`, over it and the one before, and so on round all of `ranks`."""
        found = [self.period(first)]
        for back in range(1, ranks):
            found.append(add(found[-1], self.period((first - back) % ranks)))
        return found
