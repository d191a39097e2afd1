"""Many runs: hand tasks to an engine, journal how each ended, say how far it is, make invalid ones again."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from testbed.errors import ExitStatus
from testbed.run import children
from testbed.run.display import Display
from testbed.run.status import WORDS
from testbed.run.tasks import OVERHEAD_S, Ended, Journal, Task, left


class Engine(Protocol):
    """Runs tasks, one after the other or several at a time on other machines."""

    @property
    def width(self) -> int:
        """How many run at a time."""

    def start(self, task: Task, attempt: int) -> None:
        """Run it now or when there is room."""

    def next(self) -> Ended:
        """Wait for one that was started to end."""

    def stop(self) -> None:
        """Start no more of what has not begun."""


class Local:
    """On this machine, one at a time: two emulations on one machine would disturb each other."""

    width = 1

    def __init__(self, folder: Path, *, figures: bool) -> None:
        self._folder = folder
        self._figures = figures
        self._waiting: list[tuple[Task, int]] = []

    def start(self, task: Task, attempt: int) -> None:
        self._waiting.append((task, attempt))

    def next(self) -> Ended:
        task, attempt = self._waiting.pop(0)
        log = self._folder / "logs" / f"{task.slug}-{attempt}.log"
        log.parent.mkdir(exist_ok=True)
        done = children.run(
            self._folder / task.file, task.seed, self._folder / task.out, log, task.limit_s, figures=self._figures
        )
        path = ""
        if done.summary is not None:
            path = str(Path(done.summary["path"]).relative_to(self._folder))
        return Ended(task.member, task.seed, int(done.status), path, round(done.seconds, 1), done.error)

    def stop(self) -> None:
        self._waiting.clear()


@dataclass(slots=True)
class Batch:
    """`time_limit_s` counts from the first start, of this session when the batch was resumed; None: none."""

    wanted: Sequence[Task]
    journal: Journal
    engine: Engine
    display: Display
    retries: int
    time_limit_s: float | None = None
    _took: list[float] = field(default_factory=list)  # beyond its duration, each run of this session

    def run(self) -> bool:
        """Run what the journal does not have. False: interrupted; what has ended is in the journal."""
        before, began = self.journal.read(), time.monotonic()
        todo = left(self.wanted, before, self.retries)
        tries = {
            task.key: sum(one.key == task.key and one.status != ExitStatus.INTERRUPTED for one in before)
            for task in self.wanted
        }
        if before:
            self.display.say(f"{len(self.wanted) - len(todo)} of {len(self.wanted)} runs are there already")
        flying = at = min(self.engine.width, len(todo))
        for number in range(at):
            self._start(todo, number, tries, began)
        while flying:
            ended = self.engine.next()
            flying -= 1
            self.journal.add(ended)
            tries[ended.key] += 1
            self._report(ended, tries[ended.key], todo)
            if ended.status == ExitStatus.INTERRUPTED:
                self.engine.stop()
                return False
            todo = _with_retry(todo, ended, tries, self.retries)
            if at < len(todo) and self._fits(todo[at], began):
                self._start(todo, at, tries, began)
                at, flying = at + 1, flying + 1
        return True

    def _start(self, todo: Sequence[Task], at: int, tries: dict[str, int], began: float) -> None:
        task = todo[at]
        ahead = self._estimate(todo[at:])
        limit = "" if self.time_limit_s is None else f" of {_minutes(self.time_limit_s)} at most"
        gone = _minutes(time.monotonic() - began)
        self.display.say(f"[{at + 1}/{len(todo)}] {task.key} starts; {gone} gone, about {_minutes(ahead)} to go{limit}")
        self.engine.start(task, tries[task.key] + 1)

    def _report(self, ended: Ended, tried: int, todo: Sequence[Task]) -> None:
        duration = next(task.duration_s for task in todo if task.key == ended.key)
        self._took.append(ended.seconds - duration)
        word = WORDS.get(ExitStatus(ended.status), "refused")
        where = f" on {ended.worker}" if ended.worker else ""
        again = f" (try {tried})" if tried > 1 else ""
        self.display.say(f"  {ended.key}{where}: {word}{again} in {ended.seconds:.0f} s")
        if ended.error:
            self.display.say("    " + ended.error.replace("\n", "\n    "))

    def _estimate(self, tasks: Sequence[Task]) -> float:
        """Seconds that `tasks` will take, by what runs took beyond their duration so far."""
        overhead = statistics.fmean(self._took) if self._took else OVERHEAD_S
        return sum(task.duration_s + overhead for task in tasks) / self.engine.width

    def _fits(self, task: Task, began: float) -> bool:
        if self.time_limit_s is None or time.monotonic() - began + self._estimate([task]) <= self.time_limit_s:
            return True
        self.display.say(f"the time limit of {_minutes(self.time_limit_s)} is reached: {task.key} and what follows is not run")
        return False


def _with_retry(todo: list[Task], ended: Ended, tries: dict[str, int], retries: int) -> list[Task]:
    """An invalid run comes again at the end: whatever disturbed it has had time to pass."""
    if ended.status != ExitStatus.INVALID or tries[ended.key] > retries:
        return todo
    return [*todo, next(task for task in todo if task.key == ended.key)]


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.1f} min"
