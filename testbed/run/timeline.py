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


HOLD_NS = 10_000_000  # longer than a sample of a large fabric takes


class Timeline:
    """Sorted actions with absolute times (CLOCK_MONOTONIC ns in a run, anything in a test).

    A punctual action finds nothing else under way when it is due: what is due up to HOLD_NS before it waits for it.
    """

    def __init__(self) -> None:
        self._punctual: list[Action] = []
        self._actions: list[Action] = []
        self._order = count()
        self._lags_ns: list[int] = []
        self._released_ns = 0  # when the last punctual action was due: what it held up is not late before

    def at(self, at_ns: int, name: str, run: Callable[[int], None], *, punctual: bool = False) -> None:
        """Fire `run` once."""
        actions = self._punctual if punctual else self._actions
        heapq.heappush(actions, Action(at_ns, next(self._order), name, run))

    def every(self, first_ns: int, interval_ns: int, name: str, run: Callable[[int], None]) -> None:
        """Fire `run` at first_ns + k x interval_ns. A time that has passed is left out, never made up for in a burst."""
        heapq.heappush(self._actions, Action(first_ns, next(self._order), name, run, interval_ns))

    @property
    def punctual_ns(self) -> int | None:
        """When the next punctual action is due."""
        return self._punctual[0].at_ns if self._punctual else None

    def next_ns(self) -> int | None:
        """When the next action is to be fired."""
        if not self._actions or not self._punctual:
            first = self._actions or self._punctual
            return first[0].at_ns if first else None
        due, punctual = self._actions[0].at_ns, self._punctual[0].at_ns
        return punctual if punctual <= due + HOLD_NS else due

    def fire(self, now_ns: int) -> None:
        """Run everything due at `now_ns`. An action may add others, which wait for the next call unless they are due too."""
        while (due := self.next_ns()) is not None and due <= now_ns:
            punctual = bool(self._punctual) and self._punctual[0].at_ns == due
            action = heapq.heappop(self._punctual if punctual else self._actions)
            self._lags_ns.append(now_ns - max(action.at_ns, self._released_ns))
            if punctual:
                self._released_ns = action.at_ns
            if action.every_ns:
                missed = (now_ns - action.at_ns) // action.every_ns
                following = action.at_ns + (missed + 1) * action.every_ns
                heapq.heappush(self._actions, Action(following, next(self._order), action.name, action.run, action.every_ns))
            action.run(action.at_ns)

    def clear(self, *names: str) -> None:
        """Forget the actions of these names, or all of them."""
        for actions in (self._actions, self._punctual):
            actions[:] = [action for action in actions if names and action.name not in names]
            heapq.heapify(actions)

    def take_lags_ns(self) -> list[int]:
        """How late each action fired since the last call."""
        lags, self._lags_ns = self._lags_ns, []
        return lags
