"""Which way control packets take: SACKs, NACKs, ACKs and probe answers (mrc-facts 3.7; docs/protocol.md, "Reverse path").

Each plane has one EV known to work in this direction: that of the latest SACKed data packet, or of the latest answered probe.
The trusted planes take turns, one control packet each: not the plane of the packet that is answered, for where SACKs come
every so many packets, these may all have come over one plane. A plane is trusted while it is in use and no probe over it
is overdue. So the loss of a path or a plane, even of all but one, never silences acknowledgements.
"""

from __future__ import annotations

from testbed.transport.mrc.ev import USABLE
from testbed.transport.mrc.paths import Path, PathSet
from testbed.transport.mrc.planes import Plane

OVERDUE_RTTS = 2  # both ways in the control class, behind at most a frame at each port: an answer takes little over one


class ReversePaths:
    """The choice towards one peer. `next_refresh`: when an arrival from it should next lead to `refresh`."""

    __slots__ = ("_back", "_overdue_ns", "_paths", "_rtt_base_ns", "_turn", "next_refresh")

    def __init__(self, paths: PathSet, rtt_base_ns: int) -> None:
        self._paths = paths
        self._rtt_base_ns = rtt_base_ns
        self._overdue_ns = OVERDUE_RTTS * rtt_base_ns
        self._turn = 0
        self._back = False
        self.next_refresh = 0

    def pick(self, now: int) -> Path:
        """The path of the next control packet: of a trusted plane, else of one in use, else of one whose port is up here.

        Never a denied one: a destination keeps a path that is not.
        """
        planes = self._paths.planes
        count = len(planes)
        second: Plane | None = None
        third: Plane | None = None
        last: Plane | None = None
        for _ in range(count):
            self._turn = self._turn + 1 if self._turn + 1 < count else 0
            plane = planes[self._turn]
            if plane.open and self._trusted(plane, now):
                return self.on(plane)
            if not plane.healthy():
                continue
            if plane.open:
                second = second or plane
            elif plane.port.up:
                third = third or plane
            else:
                last = last or plane
        # A whole round has led back to where it began, so the next turn must begin one further.
        self._turn = self._turn + 1 if self._turn + 1 < count else 0
        return self.on(second or third or last or planes[self._turn])

    def answer(self, ev: int, now: int) -> Path:
        """The path of an answer to one who asks because it hears nothing: by turns on `ev`, the way it came, and `pick`'s.

        What kills most of the paths at once takes the trusted ones of all planes too, and mostly both ways of a link.
        """
        self._back = not self._back
        came = self._paths.by_ev.get(ev) if self._back else None
        return came if came is not None and came.home.open and came.state in USABLE else self.pick(now)

    def on(self, plane: Plane) -> Path:
        """The path to take in `plane`: the confirmed one, else any that is not known to be bad."""
        path = plane.reverse
        return path if path is not None and path.state in USABLE else self._drawn(plane)

    def refresh(self, now: int) -> Path | None:
        """The path that should be probed, one base RTT after the last time; None where nothing needs it.

        The plane that has gone longest without a probe or a confirmation has its turn, with a random EV. While data of our
        own are SACKed on every plane each round trip, no plane has gone that long.
        """
        self.next_refresh = now + self._rtt_base_ns
        found: Plane | None = None
        for plane in self._paths.planes:
            if plane.open and plane.active and (found is None or plane.tried_at < found.tried_at):
                found = plane
        if found is None or now - found.tried_at < self._rtt_base_ns:
            return None
        found.ask(now)
        return self._drawn(found)

    def _drawn(self, plane: Plane) -> Path:
        paths = plane.healthy()
        return paths[self._paths.rng.randrange(len(paths))]

    def _trusted(self, plane: Plane, now: int) -> bool:
        if not plane.active:
            return False
        return plane.asked_at <= plane.confirmed_at or now - plane.asked_at <= self._overdue_ns
