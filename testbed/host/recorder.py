"""What the endpoint tells about each packet: one row per event, and per flow the sums that samples and messages need.

Its methods are closures bound once: they run for every packet.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate

from testbed.host.records import RecordFiles

RECEIVED_DUPLICATE = 2
RECEIVED_TRIMMED = 8
RECEIVED_REFUSED = 32
NOT_PLACED = RECEIVED_DUPLICATE | RECEIVED_TRIMMED | RECEIVED_REFUSED
FATE_ACKNOWLEDGED = 1

PSN_MASK = 0xFFFFFF
HALF_PSN = 1 << 23


class Arrivals:
    """What has been placed for one receiving QP: bytes per plane, packets, and when each outstanding message began.

    `packets_of` gives how many packets message k has; at most `depth` messages are on their way.
    """

    __slots__ = ("_delivered", "_depth", "_ends", "_first", "_packets_of", "_psn", "packets", "placed")

    def __init__(self, planes: int, depth: int, packets_of: Callable[[int], int]) -> None:
        self.placed = [0] * planes  # payload bytes since the last sample
        self.packets = 0
        self._packets_of = packets_of
        self._depth = depth
        self._delivered = 0  # messages
        self._psn = 0  # of the first packet of message 0
        self._ends: list[int] = []  # of the outstanding messages: packets of the flow up to and with each
        self._first = [0] * depth

    def anchor(self, psn: int) -> None:
        """Message 0 starts at `psn`."""
        self._psn = psn & PSN_MASK
        self._delivered = 0
        self._first = [0] * self._depth
        self._ends = list(accumulate(self._packets_of(number) for number in range(self._depth)))

    def note(self, psn: int, size: int, plane: int, now: int) -> None:
        """A packet was placed for the first time."""
        self.packets += 1
        self.placed[plane] += size
        ends, first = self._ends, self._first
        # The nearest PSN from the start of the newest outstanding message backwards: the window is far below half of 2**24.
        reached = ends[0]
        packet = reached + ((psn - self._psn - reached + HALF_PSN) & PSN_MASK) - HALF_PSN
        message = bisect_right(ends, packet)
        if message < len(first) and not first[message]:
            first[message] = now

    def delivered(self) -> int:
        """The oldest message is complete: when its first byte was placed, 0 if that was never seen."""
        self._delivered += 1
        self._ends.append(self._ends[-1] + self._packets_of(self._delivered + self._depth - 1))
        del self._ends[0]
        self._first.append(0)
        return self._first.pop(0)

    def under_way(self) -> list[int]:
        """When each message not yet delivered began, in order; 0 for those that have not."""
        return list(self._first)


class Recorder:
    """The `Recorder` of the transport's contract."""

    packet: Callable[[int, int, int, int, int, int, int, int, int, int], None]
    received: Callable[[int, int, int, int, int, int, int], None]
    ev_state: Callable[[int, int, int, int, int, int], None]
    port_state: Callable[[int, int, int], None]
    plane_state: Callable[[int, int, int, int, int, int], None]
    decision: Callable[[int, int, int, int, int, int], None] | None  # only where the plan asks for a trace

    def __init__(self, files: RecordFiles, planes: Sequence[int]) -> None:
        self.files = files
        self.planes = tuple(planes)
        self.arrivals: dict[int, Arrivals] = {}  # by local QP number
        self.packet = files.packets.row
        self.ev_state = files.ev_states.row
        self.port_state = files.port_states.row
        self.plane_state = files.plane_states.row
        self.decision = files.trace.row if files.trace is not None else None
        self.received = _received(files.received.row, self.arrivals)


def _received(row: Callable[..., None], arrivals: dict[int, Arrivals]) -> Callable[[int, int, int, int, int, int, int], None]:
    find = arrivals.get

    def received(placed_ns: int, qp: int, psn: int, ev: int, size: int, flags: int, plane: int) -> None:
        row(placed_ns, qp, psn, ev, size, flags, plane)
        if not flags & NOT_PLACED:
            flow = find(qp)
            if flow is not None:
                flow.note(psn, size, plane, placed_ns)

    return received
