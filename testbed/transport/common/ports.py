"""The NIC's ports as the sender sees them: a departure clock each, so that a frame joins only where fewer than two wait.

The kernel's shaper behind the port holds the same frames; the clock spares the sender asking it. Because departures are known,
a packet's `sent` time is when it leaves the NIC, and round trips do not contain the sender's own queue (DESIGN section 6).
"""

from __future__ import annotations

from testbed.transport.common.config import PortConfig

FRAME_HEADERS = 14 + 40  # Ethernet and outer IPv6, in front of the inner packet
FOREVER = 1 << 62  # ns
# An EV is chosen only where fewer full frames wait. One would be left dry by a wake-up a frame time late; more would be lost
# with a path that dies.
ROOM_FRAMES = 2
_NS = 1_000_000_000


class PortClock:
    """One port. `free_at` is when its last frame will have left at the line rate; the bucket may let it go a little sooner."""

    __slots__ = ("_byte_ns", "_lead_ns", "_overhead", "dry_ns", "frame_ns", "free_at", "up", "wanted")

    def __init__(self, config: PortConfig, full_inner_bytes: int, overhead_bytes: int) -> None:
        self._byte_ns = 8 * _NS / config.rate_bps
        self._overhead = FRAME_HEADERS + overhead_bytes
        self.frame_ns = int((full_inner_bytes + self._overhead) * self._byte_ns)  # serialisation time of a full frame
        # A token bucket passes a frame once it holds the frame: ahead of the line rate by what it holds beyond one.
        self._lead_ns = max(0, int(config.bucket_bytes * self._byte_ns) - self.frame_ns)
        self.free_at = 0
        self.up = True
        self.wanted = False  # a packet was ready and found this port full
        self.dry_ns = 0  # time the port stood empty although one was: the host came back too late

    def has_room(self, now: int) -> bool:
        """Whether fewer than ROOM_FRAMES full frames are waiting."""
        return self.up and self.free_at - now < ROOM_FRAMES * self.frame_ns

    def full_until(self) -> int:
        """When the next frame has room, if none joins before."""
        return self.free_at - ROOM_FRAMES * self.frame_ns + 1

    def carrier(self, up: bool, now: int) -> None:
        """The carrier came or went. What waited in the port went with it."""
        self.up = up
        self.free_at = min(self.free_at, now)
        self.wanted = False

    def depart(self, inner_bytes: int, now: int) -> int:
        """Account for a frame handed over now; returns the time at which it starts to leave."""
        if self.wanted:
            self.wanted = False
            late = now - self.free_at - self._lead_ns
            if late > 0:
                self.dry_ns += late
        start = max(self.free_at, now)
        self.free_at = start + int((inner_bytes + self._overhead) * self._byte_ns)
        return max(start - self._lead_ns, now)
