"""How a sender picks the path of its next packet, and what it learns from feedback: one small interface, a registry of names.

`mrc` is the protocol; `oblivious`, `single_path` and `reps` are what it is compared with.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from testbed.transport.mrc.ev import USABLE, EvState
from testbed.transport.mrc.ports import FOREVER

if TYPE_CHECKING:
    from testbed.transport.mrc.paths import Path, PathSet


class Policy:
    """One destination's policy; the base class sprays over all paths and learns nothing.

    `react`: marks, trims and losses change EV states. `next` returns None while no port it would use has room.
    """

    react = False

    def __init__(self, paths: PathSet) -> None:
        self.paths = paths

    def next(self, now: int) -> Path | None:
        return self.paths.rotate(now, skip=False)

    def full_until(self) -> int:
        """When the first port that the policy would use has room again, in ns; FOREVER while none is up."""
        return min((plane.port.full_until() for plane in self.paths.planes if plane.open and plane.active), default=FOREVER)

    def acknowledged(self, path: Path, *, marked: bool) -> None:
        """A packet of `path` has arrived."""


class Oblivious(Policy):
    """Sprays over every path for ever: what the reactions are worth."""


class Mrc(Policy):
    """The published rotation: SKIP gives up a turn, a lossy path is left at once (mrc-facts 3.5)."""

    react = True

    def next(self, now: int) -> Path | None:
        return self.paths.rotate(now, skip=True)


class SinglePath(Policy):
    """All packets to a destination on one path, drawn at random: a QP without multipath. Only a denied path is left."""

    def __init__(self, paths: PathSet) -> None:
        super().__init__(paths)
        self._path = paths.rng.choice(paths.all)

    def _mine(self) -> Path:
        if self._path.state is EvState.DENIED:
            self._path = self.paths.rng.choice([path for path in self.paths.all if path.state is not EvState.DENIED])
        return self._path

    def next(self, now: int) -> Path | None:
        path = self._mine()
        return path if path.home.open and path.port.has_room(now) else None

    def full_until(self) -> int:
        path = self._mine()
        return path.port.full_until() if path.home.open else FOREVER


class Reps(Policy):
    """Recycled entropies: a path whose packet came back unmarked is used again, else the rotation explores.

    After REPS (arXiv 2407.21625), its cache of eight; losses retire paths as in `mrc`, marks keep them out of the cache.
    """

    react = True
    CACHE = 8

    def __init__(self, paths: PathSet) -> None:
        super().__init__(paths)
        self._cache: deque[Path] = deque(maxlen=self.CACHE)

    def next(self, now: int) -> Path | None:
        cache = self._cache
        for _ in range(len(cache)):
            path = cache.popleft()
            if path.state not in USABLE or not path.home.open:
                continue
            if path.port.has_room(now):
                return path
            cache.append(path)
        return self.paths.rotate(now, skip=False)

    def acknowledged(self, path: Path, *, marked: bool) -> None:
        if not marked:
            self._cache.append(path)


POLICIES: dict[str, type[Policy]] = {"mrc": Mrc, "oblivious": Oblivious, "single_path": SinglePath, "reps": Reps}
