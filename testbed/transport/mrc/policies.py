"""How a sender picks the path of its next packet, and what it learns from feedback: one small interface, a registry of names.

`mrc` is the protocol; `oblivious`, `single_path` and `reps` are what it is compared with; `Own` holds one from outside.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from testbed.transport.common.config import PolicyError
from testbed.transport.common.ports import FOREVER
from testbed.transport.mrc.ev import USABLE, EvState

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


class Own(Policy):
    """A policy from outside: any object with `next(now)`, and `full_until()`, `acknowledged(...)` and `react` where it wants.

    Holds it to what the endpoint relies on: it chooses a path of its destination that is not denied, or None, and a path
    whose port has no room waits for that port. Whatever it raises comes out as PolicyError.
    """

    def __init__(self, paths: PathSet, name: str, make: Callable[[Any], object]) -> None:
        super().__init__(paths)
        self._name = name
        self._asked_at = 0
        self._waiting: Path | None = None
        try:
            self._own: Any = make(paths)
            self.react = bool(getattr(self._own, "react", False))
            self._acknowledged: Any = getattr(self._own, "acknowledged", None)
            self._full_until: Any = getattr(self._own, "full_until", None)
        except Exception as error:
            raise self._failed(error) from error

    def _failed(self, error: Exception) -> PolicyError:
        trace = error.__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        place = "" if trace is None else f" ({trace.tb_frame.f_code.co_filename} line {trace.tb_lineno})"
        return PolicyError(f"policy {self._name}: {type(error).__name__}: {error}{place}")

    def next(self, now: int) -> Path | None:
        self._asked_at = now
        self._waiting = None
        try:
            chosen: Any = self._own.next(now)
        except Exception as error:
            raise self._failed(error) from error
        if chosen is None:
            return None
        path = self.paths.by_ev.get(getattr(chosen, "ev", -1))
        if path is None or path is not chosen:
            raise PolicyError(f"policy {self._name} chose {chosen!r}, which is no path to this destination")
        if path.state is EvState.DENIED:
            raise PolicyError(f"policy {self._name} chose {path!r}, which is denied")
        if not path.port.has_room(now):
            self._waiting = path
            return None
        return path

    def full_until(self) -> int:
        if self._waiting is not None:
            return self._waiting.port.full_until()
        if self._full_until is None:
            return max(super().full_until(), self._asked_at + 1)
        try:
            return max(int(self._full_until()), self._asked_at + 1)
        except Exception as error:
            raise self._failed(error) from error

    def acknowledged(self, path: Path, *, marked: bool) -> None:
        if self._acknowledged is None:
            return
        try:
            self._acknowledged(path, marked=marked)
        except Exception as error:
            raise self._failed(error) from error


def make(name: str, own: Callable[[Any], object] | None, paths: PathSet) -> Policy:
    """The policy of one destination."""
    return POLICIES[name](paths) if own is None else Own(paths, name, own)


POLICIES: dict[str, type[Policy]] = {"mrc": Mrc, "oblivious": Oblivious, "single_path": SinglePath, "reps": Reps}
