"""Which way control packets take: SACKs, NACKs, ACKs and probe answers (mrc-facts 3.7; docs/protocol.md, "Reverse path").

Each plane has one EV known to work in this direction: the one of the latest SACKed data packet, or of the latest answered
probe. A control packet goes on the plane of the packet it answers, unless that plane is not in use or a probe over it is
overdue; then the planes that are trusted take turns, and where none is, all that are in use do. So the loss of a path or a
plane, even of all but one, never silences acknowledgements.
"""

from __future__ import annotations

from testbed.transport.mrc.ev import USABLE
from testbed.transport.mrc.paths import EV_LABEL_SHIFT, Path, PathSet
from testbed.transport.mrc.planes import Plane

OVERDUE_RTTS = 2  # both ways in the control class, behind at most a frame at each port: an answer takes little over one


class ReversePaths:
    """The choice towards one peer. `next_refresh`: when an arrival from it should next lead to `refresh`."""

    __slots__ = ("_overdue_ns", "_paths", "_rtt_base_ns", "_turn", "next_refresh")

    def __init__(self, paths: PathSet, rtt_base_ns: int) -> None:
        self._paths = paths
        self._rtt_base_ns = rtt_base_ns
        self._overdue_ns = OVERDUE_RTTS * rtt_base_ns
        self._turn = 0
        self.next_refresh = 0

    def pick(self, ev: int, now: int) -> Path:
        """The path of a control packet that answers a packet which came with `ev`."""
        plane = self._paths.by_plane.get(ev >> EV_LABEL_SHIFT)
        if plane is None or not self._trusted(plane, now):
            plane = self._other(now)
        return self.on(plane, ev)

    def on(self, plane: Plane, ev: int = -1) -> Path:
        """The path to take in `plane`: the confirmed one, else `ev`'s own (it has carried something, the other way)."""
        path = plane.reverse
        if path is not None and path.state in USABLE:
            return path
        path = self._paths.by_ev.get(ev)
        if path is not None and path.home is plane and path.state in USABLE:
            return path
        return self._drawn(plane)

    def refresh(self, now: int) -> Path | None:
        """The path that should be probed, one base RTT after the last time; None where nothing needs it.

        The plane that has gone longest without a probe or a confirmation has its turn, with a random EV. While data of our
        own are SACKed on every plane each round trip, no plane has gone that long.
        """
        self.next_refresh = now + self._rtt_base_ns
        found: Plane | None = None
        for plane in self._paths.planes:
            if plane.open and (found is None or plane.tried_at < found.tried_at):
                found = plane
        if found is None or now - found.tried_at < self._rtt_base_ns:
            return None
        found.ask(now)
        return self._drawn(found)

    def _drawn(self, plane: Plane) -> Path:
        paths = plane.healthy()
        return paths[self._paths.rng.randrange(len(paths))]

    def _trusted(self, plane: Plane, now: int) -> bool:
        if not plane.open or not plane.active:
            return False
        return plane.asked_at <= plane.confirmed_at or now - plane.asked_at <= self._overdue_ns

    def _other(self, now: int) -> Plane:
        """The next plane in turn: of the trusted, else of those in use, else of those whose port is up here."""
        planes = self._paths.planes
        turn = self._turn = (self._turn + 1) % len(planes)
        order = planes[turn:] + planes[:turn]
        for plane in order:
            if self._trusted(plane, now):
                self._turn = plane.number if plane.number < len(planes) else turn
                return plane
        for plane in order:
            if plane.open:
                return plane
        for plane in order:
            if plane.port.up:
                return plane
        return order[0]
