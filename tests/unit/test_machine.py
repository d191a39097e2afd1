"""What excuses a failure on a machine that holds tests up, and what does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

import pytest

from tests.support import machine


@pytest.fixture
def restless(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every attempt is held up for a second."""

    class Late:
        worst_s = 1.0

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
    with pytest.raises(pytest.skip.Exception, match=r"held up for 1000, .* failed last: assert 5 < 3"):
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


def test_on_an_even_machine_an_assertion_counts_at_once() -> None:
    attempt = Attempts(late)
    with pytest.raises(AssertionError, match="5 < 3"):
        machine.undisturbed(attempt, held_up_s=1e9)
    assert attempt.count == 1


@pytest.mark.usefixtures("restless")
def test_of_a_traceback_the_skip_names_the_assertion() -> None:
    def attempt() -> None:
        pytest.fail(
            "Traceback (most recent call last):\n  File x\nAssertionError: assert 0.4 <= 0.02\n  +  where", pytrace=False
        )

    with pytest.raises(pytest.skip.Exception, match=r"failed last: AssertionError: assert 0\.4 <= 0\.02"):
        machine.undisturbed(attempt)
