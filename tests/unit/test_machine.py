"""What excuses a failure on a machine that holds tests up, and what does not."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

import pytest

from tests.support import machine


@pytest.fixture
def restless(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every attempt is held up for a second."""

    class Late:
        worst_s, taken_cores = 1.0, 0.0

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None:
            pass

    monkeypatch.setattr(machine, "Witness", Late)


class Attempts:
    def __init__(self, what: Callable[[], None]) -> None:
        self.count = 0
        self._what = what

    def __call__(self) -> None:
        self.count += 1
        self._what()


def late() -> None:
    assert 5 < 3


def wrong() -> None:
    with machine.certain():
        assert 5 < 3, "five packets of three"


def broken() -> None:
    raise OSError("no such device")


@pytest.mark.usefixtures("restless")
def test_an_assertion_is_tried_again_and_the_skip_says_what_failed() -> None:
    attempt = Attempts(late)
    with pytest.raises(pytest.skip.Exception, match=r"held up for 1000 ms and 0.0 cores, .* failed last: assert 5 < 3"):
        machine.undisturbed(attempt)
    assert attempt.count == machine.ATTEMPTS


@pytest.mark.usefixtures("restless")
@pytest.mark.parametrize(
    ("what", "error", "says"), [(wrong, machine.Certain, "five packets of three"), (broken, OSError, "no such device")]
)
def test_what_no_hold_up_explains_counts_at_once(what: Callable[[], None], error: type[Exception], says: str) -> None:
    attempt = Attempts(what)
    with pytest.raises(error, match=says):
        machine.undisturbed(attempt)
    assert attempt.count == 1


def test_on_an_even_machine_an_assertion_counts_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "TAKEN_CORES", 1e9)
    attempt = Attempts(late)
    with pytest.raises(AssertionError, match="5 < 3"):
        machine.undisturbed(attempt, held_up_s=1e9)
    assert attempt.count == 1


@pytest.mark.usefixtures("restless")
def test_a_long_attempt_is_not_made_so_often_that_the_test_would_be_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "LONGEST_S", 0.05)

    def slow_and_late() -> None:
        time.sleep(0.04)
        late()

    attempt = Attempts(slow_and_late)
    with pytest.raises(pytest.skip.Exception, match="in 1 attempts"):
        machine.undisturbed(attempt)
    assert attempt.count == 1


def test_what_other_programs_take_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A child that has not been waited for is a stranger; what we use ourselves is not others'."""
    began = time.monotonic()
    with machine.Witness() as witness:
        hog = subprocess.Popen([sys.executable, "-c", "while True: pass"])
        try:
            while cpu_s(hog.pid) < 0.5:
                time.sleep(0.01)
            taken_s = witness.taken_cores * (time.monotonic() - began)
        finally:
            hog.kill()
            hog.wait()
        assert taken_s > 0.3
        stands_still = tmp_path / "stat"
        stands_still.write_text(machine.STAT.read_text())
        monkeypatch.setattr(machine, "STAT", stands_still)
        before, used = witness._of_others(), time.process_time()
        while time.process_time() < used + 0.3:
            sum(range(100_000))
        assert witness._of_others() < before - 0.1


def cpu_s(pid: int) -> float:
    """Seconds that a process has spent in its program."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) / os.sysconf("SC_CLK_TCK")


@pytest.mark.usefixtures("restless")
def test_of_a_traceback_the_skip_names_the_assertion() -> None:
    def attempt() -> None:
        pytest.fail(
            "Traceback (most recent call last):\n  File x\nAssertionError: assert 0.4 <= 0.02\n  +  where", pytrace=False
        )

    with pytest.raises(pytest.skip.Exception, match=r"failed last: AssertionError: assert 0\.4 <= 0\.02"):
        machine.undisturbed(attempt)
