"""One scheduler for everything that happens at a time: faults, samples, the display, the end. Pure: `now` is an argument."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count


@dataclass(frozen=True, slots=True, order=True)
class Action:
    """`run(planned_ns)` is due at `at_ns`. Actions of one time fire in the order they were added."""

    at_ns: int
    order: int
    name: str = field(compare=False)
    run: Callable[[int], None] = field(compare=False)
    every_ns: int = field(compare=False, default=0)


class Timeline:
    """Sorted actions with absolute times (CLOCK_MONOTONIC ns in a run, anything in a test)."""

    def __init__(self) -> None:
        self._actions: list[Action] = []
        self._order = count()
        self._lags_ns: list[int] = []

    def at(self, at_ns: int, name: str, run: Callable[[int], None]) -> None:
        """Fire `run` once."""
        heapq.heappush(self._actions, Action(at_ns, next(self._order), name, run))

    def every(self, first_ns: int, interval_ns: int, name: str, run: Callable[[int], None]) -> None:
        """Fire `run` at first_ns + k x interval_ns. A time that has passed is left out, never made up for in a burst."""
        heapq.heappush(self._actions, Action(first_ns, next(self._order), name, run, interval_ns))

    def next_ns(self) -> int | None:
        """When the next action is due."""
        return self._actions[0].at_ns if self._actions else None

    def fire(self, now_ns: int) -> None:
        """Run everything due at `now_ns`. An action may add others, which wait for the next call unless they are due too."""
        while self._actions and self._actions[0].at_ns <= now_ns:
            action = heapq.heappop(self._actions)
            self._lags_ns.append(now_ns - action.at_ns)
            if action.every_ns:
                missed = (now_ns - action.at_ns) // action.every_ns
                following = action.at_ns + (missed + 1) * action.every_ns
                heapq.heappush(self._actions, Action(following, next(self._order), action.name, action.run, action.every_ns))
            action.run(action.at_ns)

    def clear(self, *names: str) -> None:
        """Forget the actions of these names, or all of them."""
        self._actions = [action for action in self._actions if names and action.name not in names]
        heapq.heapify(self._actions)

    def take_lags_ns(self) -> list[int]:
        """How late each action fired since the last call."""
        lags, self._lags_ns = self._lags_ns, []
        return lags
