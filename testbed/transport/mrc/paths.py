"""All paths to one destination, shared by its QPs: states, the rotation and its policies (DESIGN section 6, mrc-facts 3.5).

EVs name distinct paths, so there is one state per path. The rotation goes plane by plane, one packet each; a plane with
fewer healthy EVs keeps its share; SKIP passes the turn to the next EV of the rotation whatever its plane; replacement
stays in the plane. With replacement "any" a backup of any plane steps in, and a plane has as many turns as active EVs.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from testbed.transport.common.ports import PortClock
from testbed.transport.mrc.ev import PROBED, TRANSITIONS, USABLE, Cause, EvState
from testbed.transport.mrc.planes import Plane, PlaneCause, PlaneState
from testbed.transport.mrc.policies import make
from testbed.transport.mrc.skip import MOST, rest_ns

EV_LABEL_SHIFT = 16  # low half of the EV in the UDP source port, high half in the flow label (docs/protocol.md)
RTT_SAMPLES = 8
SAME_PLANE, ANY = REPLACEMENTS = ("same_plane", "any")
MIN_ACTIVE_DIVISOR = 4  # ev_min_active: the API's examples use a quarter of the EVs (mrc-facts 3.5)
Destination = tuple[str, int, int, int]


class Path:
    """One distinct way to a destination, named by its EV."""

    __slots__ = (
        "_recent",
        "address",
        "destination",
        "ev",
        "extra_ns",
        "first_probe",
        "heads",
        "home",
        "label",
        "latest_ns",
        "marks",
        "next_probe",
        "plane",
        "port",
        "probes_answered",
        "probes_sent",
        "rests_until",
        "source_port",
        "state",
    )

    def __init__(self, ev: int, plane: int, address: str, port: PortClock) -> None:
        self.ev = ev
        self.plane = plane
        self.port = port
        self.home: Plane  # set by its PathSet
        self.label = ev >> EV_LABEL_SHIFT & 0xFFFF
        self.source_port = ev & 0xFFFF
        self.address = address
        self.destination: Destination = (address, 0, self.label, 0)
        self.state = EvState.GOOD
        self.marks = 0  # beyond its unmarked packets (skip.py)
        self.rests_until = 0  # while in SKIP
        self.extra_ns = 0  # how much longer than the base round trip this path's is known to take, at the least
        self.latest_ns = 0  # and took at the latest sample
        self._recent: deque[int] = deque(maxlen=RTT_SAMPLES)
        self.next_probe = 0  # when the next background probe is due, while the path is bad
        self.probes_sent = 0
        self.first_probe = 0  # the answer to an earlier one is of a spell that is over
        self.probes_answered: set[int] = set()  # their numbers
        self.heads: dict[tuple[int, int, int], tuple[bytes, int]] = {}  # packets.py's cache

    def sample(self, extra_ns: int) -> None:
        """A round trip took `extra_ns` more than the base; the least of the recent ones is the path's own share."""
        self.latest_ns = max(0, extra_ns)
        self._recent.append(self.latest_ns)
        self.extra_ns = min(self._recent)

    def __repr__(self) -> str:
        return f"Path(ev={self.ev:#x}, plane={self.plane}, {self.state.name})"


StateSink = Callable[[int, "Path", EvState, EvState, Cause], None]
PlaneSink = Callable[[int, int, PlaneState, PlaneState, PlaneCause], None]


class PathSet:
    """Every path to a destination, in order of preference: `active_evs` of them are in use at first, the others are backup.

    `next` gives the path for one packet, or None while no usable port has room.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        *,
        policy: str,
        own_policy: Callable[[Any], object] | None = None,
        active_evs: int,
        replacement: str,
        reshuffle: bool,
        rtt_base_ns: int,
        probe_interval_ns: int,
        rng: random.Random,
        on_state: StateSink,
        on_plane: PlaneSink,
    ) -> None:
        self.by_ev = {path.ev: path for path in paths}
        self.all = tuple(paths)
        self.rng = rng
        self._on_state = on_state
        self._on_plane = on_plane
        if replacement not in REPLACEMENTS:
            raise ValueError(f"replacement must be one of {', '.join(REPLACEMENTS)}")
        self._same_plane = replacement == SAME_PLANE
        self._reshuffle = reshuffle
        self._rtt_base_ns = rtt_base_ns
        self.probe_interval_ns = probe_interval_ns
        numbers = sorted({path.plane for path in paths})
        self.planes: list[Plane] = []
        self.checking: list[Plane] = []  # being probed before they are used again
        for number in numbers:
            mine = [path for path in paths if path.plane == number]
            target = min(len(mine), max(1, active_evs // len(numbers))) if active_evs else len(mine)
            plane = Plane(number, mine, target)
            rng.shuffle(plane.active)  # or all senders would set out on the same path
            self.planes.append(plane)
            for path in mine:
                path.home = plane
        self.by_plane = {plane.number: plane for plane in self.planes}
        self._turns = self._shares()
        self._turn = rng.randrange(len(self._turns))
        self.policy = make(policy, own_policy, self)
        self.next = self.policy.next
        self._allowed = self.usable = len(paths)
        # No port that the policy would use has room before then.
        self.full_until = 0
        self.bad: list[Path] = []  # being probed
        self.retired = 0
        self.restored = 0
        self.skipped = 0

    @property
    def min_active(self) -> int:
        """Down to this many usable paths nothing more is retired: somewhere beats nowhere. Of planes in use, as is `usable`."""
        return max(1, self._allowed // MIN_ACTIVE_DIVISOR)

    # The rotation

    def _shares(self) -> list[Plane]:
        """One round of the rotation: each plane once, or as often as it has active EVs, evenly spread."""
        if self._same_plane:
            return self.planes
        turns = [
            ((turn + 0.5) / len(plane.active), place, plane)
            for place, plane in enumerate(self.planes)
            for turn in range(len(plane.active))
        ]
        return [plane for _, _, plane in sorted(turns, key=lambda entry: entry[:2])]

    def _share_out(self) -> None:
        """The active sets have changed."""
        self._turns = self._shares()
        self._turn = self._turn % len(self._turns) if self._turns else 0

    def rotate(self, now: int, *, skip: bool) -> Path | None:
        """The rotation. With `skip`, a path in SKIP gives its turn to the next EV, whatever that one's plane.

        One that rests gives up every turn meanwhile; then, while its marks persist, it takes one for a try and rests again.
        """
        turns_of = self._turns
        count = len(turns_of)
        waited = 0
        passed: Path | None = None
        after = 0
        turns = self.usable + count  # bounds those that SKIP may pass on; a ring just stirred may offer one path twice in a row
        while waited < count:
            plane = turns_of[self._turn]
            self._turn = self._turn + 1 if self._turn + 1 < count else 0
            if not plane.open or not plane.active or not plane.port.has_room(now):
                waited += 1
                continue
            path = self._step(plane)
            if not skip or path.state is not EvState.SKIP:
                return path
            if path.rests_until <= now:
                if rest := rest_ns(path.marks, self._rtt_base_ns):
                    path.rests_until = now + rest
                    return path
                self.change(path, Cause.TURN_PASSED, now)
            self.skipped += 1
            if passed is None:
                passed, after = path, self._turn
            turns -= 1
            if turns <= 0:
                break
            waited = 0
        if passed is not None:  # every EV with room was skipped: ordinary rotation resolves it
            self._turn = after
        return passed

    def ready(self, now: int) -> list[Path]:
        """The active paths whose port has room."""
        return [path for plane in self.planes if plane.port.has_room(now) for path in plane.active]

    def _step(self, plane: Plane) -> Path:
        if plane.position >= len(plane.active):
            plane.position = 0
            if self._reshuffle:
                self._stir(plane.active)
        path = plane.active[plane.position]
        plane.position += 1
        return path

    def _stir(self, active: list[Path]) -> None:
        """Change the order a little each round, so that senders do not march in step for ever (mrc-facts 3.5).

        One pair of neighbours changes places: a wholly new order could give a path two turns in a row, and a dead one would
        then swallow one more packet before its first loss is known.
        """
        if len(active) > 1:
            index = self.rng.randrange(len(active) - 1)
            active[index], active[index + 1] = active[index + 1], active[index]

    # Feedback

    def acknowledged(self, path: Path, *, marked: bool) -> None:
        """A packet of `path` has arrived. A mark is counted by `marked`, once."""
        if path.marks and not marked:
            path.marks -= 1
        self.policy.acknowledged(path, marked=marked)

    def marked(self, path: Path, now: int) -> None:
        self._skip(path, Cause.MARKED, now)

    def trimmed(self, path: Path, now: int) -> None:
        self._skip(path, Cause.TRIMMED, now)

    def _skip(self, path: Path, cause: Cause, now: int) -> None:
        if self.policy.react and path.state in USABLE:
            path.marks = min(path.marks + 1, MOST)
            path.rests_until = max(path.rests_until, now + rest_ns(path.marks, self._rtt_base_ns))
            self.change(path, cause, now)

    def lost(self, path: Path, now: int) -> None:
        """A data packet was lost on `path`: retire it at once, unless too few would be left."""
        if self.policy.react:
            self._retire(path, Cause.LOST, now)

    def blamed(self, path: Path, now: int) -> None:
        """The responder judges `path` persistently bad (SACK m = 2)."""
        if self.policy.react:
            self._retire(path, Cause.ALWAYS_SKIP, now)

    def _retire(self, path: Path, cause: Cause, now: int) -> None:
        if path.state not in USABLE or not path.home.open or self.usable <= self.min_active:
            return
        self.change(path, cause, now)
        self.retired += 1
        self._leave(path)
        self._begin_probing(path, now + self.probe_interval_ns)  # give the fault one interval

    def deny(self, path: Path, now: int) -> None:
        """Take `path` out of use until it is allowed again, whatever its state. ValueError when no other is left."""
        if path.state is EvState.DENIED:
            return
        if path.state in USABLE:
            last_in_use = path.home.open and self.usable == 1
            if last_in_use or not any(other.state in USABLE for other in self.all if other is not path):
                raise ValueError("the last usable path to a destination cannot be denied")
            self._leave(path)
        else:
            self.bad.remove(path)
        self._allowed -= path.home.open
        self.full_until = 0
        self.change(path, Cause.DENY, now)

    def allow(self, path: Path, now: int) -> None:
        """Take `path` off the denylist; background probes decide when it is used again."""
        if path.state is EvState.DENIED:
            self._allowed += path.home.open
            self.change(path, Cause.ALLOW, now)
            self._begin_probing(path, now)

    def _leave(self, path: Path) -> None:
        """Out of the rotation, replaced from the backup; a plane without one gives its turn to its remaining EVs."""
        plane = path.home
        self.usable -= plane.open
        if path not in plane.active:
            plane.backup.remove(path)
            return
        index = plane.active.index(path)
        if self._same_plane and plane.backup:
            plane.active[index] = plane.backup.popleft()
            return
        del plane.active[index]
        if index < plane.position:
            plane.position -= 1
        if not self._same_plane:
            self._replace_from_any()
            self._share_out()

    def _replace_from_any(self) -> None:
        backups = [plane for plane in self.planes if plane.open for _ in plane.backup]
        if backups:
            plane = backups[self.rng.randrange(len(backups))]
            plane.active.append(plane.backup.popleft())

    def _begin_probing(self, path: Path, first: int) -> None:
        self.bad.append(path)
        path.next_probe = first
        path.marks = 0
        path.rests_until = 0
        path.first_probe = path.probes_sent + 1
        path.probes_answered.clear()

    def restore(self, path: Path, now: int, cause: Cause = Cause.PROBES_ANSWERED) -> None:
        """Enough probes were answered: back into the plane's rotation, or its backup when the rotation is full."""
        if path.state not in PROBED:
            return
        self.change(path, cause, now)
        self.restored += 1
        self.bad.remove(path)
        self.full_until = 0  # its port may be the first that has room, or the only one
        plane = path.home
        self.usable += plane.open
        group = [plane] if self._same_plane else self.planes
        if sum(len(mate.active) - mate.target for mate in group) >= 0:
            plane.backup.append(path)
            return
        plane.active.append(path)
        self._share_out()

    # Ports

    def port_event(self, number: int, cause: PlaneCause, now: int) -> bool:
        """A port of plane `number` went down or came up, here or there. Returns whether the plane has just left use."""
        plane = self.by_plane.get(number)
        return plane is not None and self.plane_event(plane, cause, now)

    def plane_event(self, plane: Plane, cause: PlaneCause, now: int) -> bool:
        """Step `plane` along its table. Returns whether it has just left use."""
        before = plane.state
        if not plane.become(cause, now):
            return False
        self._on_plane(now, plane.number, before, plane.state, cause)
        self.checking = [plane for plane in self.planes if plane.state is PlaneState.CHECKING]
        self.full_until = 0
        opened = [path for plane in self.planes if plane.open for path in plane.paths]
        self._allowed = sum(path.state is not EvState.DENIED for path in opened)
        self.usable = sum(path.state in USABLE for path in opened)
        for path in [path for path in self.bad if path.home.open]:  # the one that was left first is the likeliest to work again
            if self.usable >= self.min_active:
                break
            self.restore(path, now, Cause.TOO_FEW)
        if not self._turns:  # `replacement: any`, and only backups of planes that were not in use were left
            self._replace_from_any()
            self._share_out()
        return before is PlaneState.OPEN

    def change(self, path: Path, cause: Cause, now: int) -> None:
        """The one setter of a path's state."""
        before = path.state
        after = TRANSITIONS.get((before, cause))
        if after is None:
            return
        path.state = after
        self._on_state(now, path, before, after, cause)
