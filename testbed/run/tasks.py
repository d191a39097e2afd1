"""The runs of a suite or a sweep: what is to be run, how each ended, and the journal that lets an interrupted batch go on."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from testbed.errors import ExitStatus
from testbed.model.suite import Suite

OVERHEAD_S = 10.0  # a run beyond its duration, until the first has shown what it is here: bring-up, tables, verdict
LIMIT_S = 600.0  # the same, but for good: a run bounds its traffic itself, and no verdict takes ten minutes


@dataclass(frozen=True, slots=True)
class Task:
    """One run to be made: `file` is the member's resolved scenario, relative to the batch's folder."""

    member: str
    seed: int
    file: str
    out: str  # where its results go, relative too
    duration_s: float
    limit_s: float

    @property
    def key(self) -> str:
        return f"{self.member} s{self.seed}"

    @property
    def slug(self) -> str:
        return f"{slug(self.member)}-s{self.seed}"


@dataclass(frozen=True, slots=True)
class Ended:
    """How one attempt at a task ended. `path`: its results, relative to the batch's folder; empty when there are none."""

    member: str
    seed: int
    status: int
    path: str
    seconds: float
    error: str = ""
    worker: str = ""

    @property
    def key(self) -> str:
        return f"{self.member} s{self.seed}"


def slug(name: str) -> str:
    """A member's name as one that a folder can have."""
    return re.sub(r"[^A-Za-z0-9._=-]+", "_", name)


def tasks(suite: Suite) -> list[Task]:
    """Every run in the suite's order: all repeats of a member, then the next member."""
    found = []
    for number, member in enumerate(suite.members):
        measure, folder = member.scenario.measure, f"runs/{number:02d}-{slug(member.name)[:100]}"
        duration_s = measure.duration_ns / 1e9
        for seed in range(member.scenario.seed, member.scenario.seed + member.repeat):
            limit_s = duration_s + measure.drain_ns / 1e9 + LIMIT_S
            found.append(Task(member.name, seed, f"{folder}/member.yaml", folder, duration_s, limit_s))
    return found


class Journal:
    """`runs.jsonl`: one line per attempt, on the disk before the next one starts."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> list[Ended]:
        """What has ended; a last line that was cut off by a crash is none."""
        if not self._path.is_file():
            return []
        found = []
        for line in self._path.read_text(encoding="utf-8").splitlines():
            try:
                entry: dict[str, Any] = json.loads(line)
            except json.JSONDecodeError:
                continue
            found.append(Ended(**entry))
        return found

    def add(self, ended: Ended) -> None:
        with self._path.open("ab+") as file:
            file.seek(0, os.SEEK_END)
            if file.tell() and not _ends_a_line(file):
                file.write(b"\n")
            file.write(json.dumps(asdict(ended)).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())


def _ends_a_line(file: Any) -> bool:
    file.seek(-1, os.SEEK_END)
    return bool(file.read(1) == b"\n")


def left(wanted: Iterable[Task], ended: Iterable[Ended], retries: int) -> list[Task]:
    """What is still to be run: first what has no verdict, then what was invalid and has `retries` left."""
    tried: dict[str, list[int]] = {}
    for one in ended:
        tried.setdefault(one.key, []).append(one.status)
    new = [task for task in wanted if task.key not in tried or _unfinished(tried[task.key])]
    again = [task for task in wanted if task not in new and _again(tried[task.key], retries)]
    return new + again


def _unfinished(statuses: list[int]) -> bool:
    """Interrupted runs say nothing, and do not count as tries."""
    return all(status == ExitStatus.INTERRUPTED for status in statuses)


def _again(statuses: list[int], retries: int) -> bool:
    counted = [status for status in statuses if status != ExitStatus.INTERRUPTED]
    return all(status == ExitStatus.INVALID for status in counted) and len(counted) <= retries
