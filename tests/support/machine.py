"""How much the machine itself held a test up, so that no test needs a quiet one, and none blames the fabric for the machine.

`undisturbed` is for what can only be measured while time passes evenly: a failure counts when no processor was held up
meanwhile, and none was busy with other work. Only a failed assertion can be the machine's doing; what holds on any machine
goes under `certain`, where a failure counts at once: on a machine that stalls every second, all else in a test of some
seconds is never judged.
`speed` is for costs: a multiple of what this machine needs for something fixed, never of a second.
"""

from __future__ import annotations

import mmap
import os
import resource
import signal
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import pytest

TICK_S = 0.004
HELD_UP_S = 0.02
TAKEN_CORES = 0.25
ATTEMPTS = 6
STAT = Path("/proc/stat")
LONGEST_S = 150.0  # no attempt begins that would end later: pytest ends a test after twice this
_WORST = struct.Struct("=d")


class Witness:
    """On every processor a process that wants to run each few milliseconds. `worst_s`: how late the latest of them was.

    A process that mostly sleeps is let in at once even where others fill the processor, so what those take is asked for too.
    """

    def __enter__(self) -> Self:
        cpus = sorted(os.sched_getaffinity(0))
        self._cpus = {f"cpu{cpu}" for cpu in cpus}
        self._began, self._others = time.monotonic(), self._of_others()
        self._seen = mmap.mmap(-1, _WORST.size * len(cpus))
        self._pids = [self._watch(cpu, slot * _WORST.size) for slot, cpu in enumerate(cpus)]
        return self

    def _watch(self, cpu: int, place: int) -> int:
        parent = os.getpid()
        pid = os.fork()
        if pid:
            return pid
        try:
            os.sched_setaffinity(0, {cpu})
            worst = 0.0
            while os.getppid() == parent:
                before = time.monotonic()
                time.sleep(TICK_S)
                worst = max(worst, time.monotonic() - before - TICK_S)
                _WORST.pack_into(self._seen, place, worst)
        finally:
            os._exit(0)

    @property
    def worst_s(self) -> float:
        return max(float(_WORST.unpack_from(self._seen, slot * _WORST.size)[0]) for slot in range(len(self._pids)))

    @property
    def taken_cores(self) -> float:
        """Cores that other programs had, or other virtual machines. Children of ours count once they have been waited for."""
        return max(0.0, self._of_others() - self._others) / (time.monotonic() - self._began)

    def _of_others(self) -> float:
        """Seconds so far, all processors together, in programs (not in the kernel, which works for us) or stolen, less ours."""
        lines = [line.split() for line in STAT.read_text().splitlines()]
        ticks = sum(int(line[1]) + int(line[2]) + int(line[8]) for line in lines if line[0] in self._cpus)
        mine = sum(resource.getrusage(who).ru_utime for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        return ticks / os.sysconf("SC_CLK_TCK") - mine

    def __exit__(self, *_: object) -> None:
        time.sleep(2 * TICK_S)  # one that is held up at this moment still says so
        for pid in self._pids:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


class Certain(Exception):
    """Something is wrong that no hold-up of the machine explains."""


@contextmanager
def certain() -> Iterator[None]:
    """Assertions in here hold on any machine: accounts that agree, contents, exit statuses."""
    try:
        yield
    except AssertionError as failure:
        raise Certain(str(failure) or "an assertion under certain()") from failure


def undisturbed(attempt: Callable[[], None], held_up_s: float = HELD_UP_S) -> None:
    """Run `attempt`. When an assertion fails and a processor was held up for `held_up_s` meanwhile, or others had TAKEN_CORES,
    once more, up to ATTEMPTS times; then the test is skipped, and says what failed last. Everything else that is raised counts
    at once.
    """
    said: list[str] = []
    last = ""
    began = time.monotonic()
    while len(said) < ATTEMPTS and (time.monotonic() - began) * (len(said) + 1) <= LONGEST_S * max(1, len(said)):
        trouble: BaseException | None = None
        with Witness() as witness:
            try:
                attempt()
            except (AssertionError, pytest.fail.Exception) as failure:
                trouble = failure
        if trouble is None:
            return
        taken = witness.taken_cores
        if witness.worst_s < held_up_s and taken < TAKEN_CORES:
            raise trouble
        said.append(f"{witness.worst_s * 1e3:.0f} ms and {taken:.1f} cores")
        last = _assertion(str(trouble))
    held_up = f"held up for {', '.join(said)} in {len(said)} attempts"
    pytest.skip(f"this machine is too restless to measure: {held_up}; failed last: {last}")


def _assertion(text: str) -> str:
    """The line that says what failed: of a traceback the last that names an assertion."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return next((line for line in reversed(lines) if line.startswith(("AssertionError", "assert "))), lines[0] if lines else "")


def speed() -> float:
    """CPU seconds of this process for a million additions in pure Python, the least of three: the unit for costs."""
    found = []
    for _ in range(3):
        began = time.process_time()
        total = 0
        for number in range(1_000_000):
            total += number
        found.append(time.process_time() - began)
    return min(found)
