"""Buffers and what is in them: every message carries content that its receiver can check byte by byte.

One pseudo-random pattern of `PERIOD` bytes is drawn from the run's seed, the same on every host, and repeated end to
end; message k of flow f is a slice of it that starts at `offset(f, k)`. So a sender posts slices without copying and a
receiver compares a slot of its region with the slice that belongs there, at memcmp speed.

What the comparison detects, and why:

* corrupt bytes: the pattern is compared byte for byte.
* stale bytes: a slot is used again by message k + depth. Different messages of one flow start at different offsets
  (`PERIOD` is prime and the step is not a multiple of it), and the pattern never matches itself under a shift. So every
  packet-sized piece of the new message differs from what the old one left at the same place, and a piece that was never
  written shows, wherever it is. That is why a slot needs no wiping after it was verified. A fresh region is zero.
* missing bytes: the same, against the stale or zero bytes.
* misplaced bytes: inside a message, two places d bytes apart hold equal content only if d is a multiple of `PERIOD`;
  packets start at multiples of the payload size p < `PERIOD`, so that needs d >= p * PERIOD: gigabytes. Between messages
  of one flow, or of two flows, the offsets differ by something that is not a small multiple of a payload size.
* messages delivered twice or out of order: immediates count messages, and the receiver expects each once, in order.

A piece of n random bytes passes by chance with probability 256**-n: only a last packet of one or two bytes is weakly
covered.
"""

from __future__ import annotations

import random

PERIOD = 1_048_573  # the largest prime below 2**20
# Steps between messages of one flow and between flows: primes near the golden and the silver section of PERIOD, so that
# the offsets of neighbours are far apart and differ by no round number.
MESSAGE_STEP = 648_059
FLOW_STEP = 434_347


class Content:
    """The pattern, long enough for messages of up to `longest` bytes."""

    __slots__ = ("_view",)

    def __init__(self, seed: int, longest: int) -> None:
        pattern = random.Random(f"mrc testbed content {seed}").randbytes(PERIOD)
        length = PERIOD + longest
        block = bytearray(length)
        for start in range(0, length, PERIOD):
            stop = min(length, start + PERIOD)
            block[start:stop] = memoryview(pattern)[: stop - start]
        self._view = memoryview(block).toreadonly()

    def slice(self, flow: int, message: int, size: int) -> memoryview:
        """The `size` bytes that message `message` of flow `flow` consists of; a view, nothing is copied."""
        start = offset(flow, message)
        return self._view[start : start + size]


def offset(flow: int, message: int) -> int:
    """Where the content of a message starts in the pattern."""
    return (flow * FLOW_STEP + message * MESSAGE_STEP) % PERIOD


class Region:
    """A flow's receive buffer: `depth` slots of `size` bytes, message k in slot k mod depth."""

    __slots__ = ("_buffer", "_depth", "_size", "view")

    def __init__(self, depth: int, size: int) -> None:
        self._depth = depth
        self._size = size
        self._buffer = bytearray(depth * size)
        self.view = memoryview(self._buffer)

    def holds(self, message: int, expected: memoryview) -> bool:
        """Whether the slot of `message` equals `expected`."""
        start = message % self._depth * self._size
        # bytearray.startswith is one memcmp; memoryview == compares element by element, 20 times slower in CPython 3.11.
        return self._buffer.startswith(expected, start, start + self._size)

    def content(self, message: int) -> bytes:
        """A copy of what the slot of `message` holds."""
        start = message % self._depth * self._size
        return bytes(self.view[start : start + self._size])

    def first_difference(self, message: int, expected: memoryview) -> int | None:
        """Byte offset within the message of the first wrong byte, None when there is none. Slow; for the log."""
        start, size = message % self._depth * self._size, len(expected)
        slot = self.view[start : start + size]
        step = 4096
        for at in range(0, size, step):
            if slot[at : at + step] != expected[at : at + step]:
                for index in range(at, min(at + step, size)):
                    if slot[index] != expected[index]:
                        return index
        return None
