"""Memory regions registered for remote WRITE: a key, an address range, and a bounds check on every packet."""

from __future__ import annotations

import random
from typing import NamedTuple

_REGION_ALIGN = 1 << 32  # regions lie far apart, so an address off by any message length is out of bounds, not in a neighbour


class MemoryRegion(NamedTuple):
    """What a peer needs to WRITE into it."""

    rkey: int
    address: int
    length: int


class Memory:
    """All regions of one endpoint."""

    __slots__ = ("_regions", "_rng")

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._regions: dict[int, tuple[int, int, memoryview]] = {}

    def register(self, buffer: memoryview) -> MemoryRegion:
        """Allow remote WRITEs into `buffer` (writable, contiguous bytes)."""
        if buffer.readonly:
            raise ValueError("a region for remote WRITE must be writable")
        rkey = self._rng.getrandbits(32)
        while rkey in self._regions:
            rkey = self._rng.getrandbits(32)
        address = (len(self._regions) + 1) * _REGION_ALIGN
        self._regions[rkey] = (address, address + buffer.nbytes, buffer.cast("B"))
        return MemoryRegion(rkey, address, buffer.nbytes)

    def place(self, rkey: int, address: int, payload: memoryview) -> bool:
        """Write `payload` at `address`; False, and nothing written, when key or bounds do not allow it."""
        region = self._regions.get(rkey)
        if region is None:
            return False
        start, end, view = region
        stop = address + len(payload)
        if address < start or stop > end:
            return False
        view[address - start : stop - start] = payload
        return True
