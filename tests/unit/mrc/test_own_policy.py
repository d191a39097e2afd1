"""A policy from outside, under the virtual clock: it steers, and it cannot choose what no policy may."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from testbed.host.policy import compile_policy
from testbed.transport.mrc import PolicyError
from tests.support.goldens import TESTS
from tests.support.virtual import MS, Pair

EXAMPLE = TESTS.parent / "docs" / "examples" / "two_choices.py"
DATA = random.Random(1).randbytes(200_000)


def pair(own: Callable[[Any], object]) -> Pair:
    made = Pair(policy="mine.py:Mine", own_policy=own)
    made.write(0, DATA, wr_id=1)
    return made


def complete(made: Pair) -> bool:
    return made.run(10_000 * MS, until=lambda: bool(made.completed(0)))


def test_the_example_of_the_docs_carries_data_over_many_paths() -> None:
    made = pair(compile_policy("two_choices.py:TwoChoices", EXAMPLE.read_text()))
    assert complete(made)
    assert made.memory[1][: len(DATA)] == DATA
    assert len(made.sent) > 12


class OnlyNext:
    """The least a policy may have: always the first path, room or not."""

    def __init__(self, paths: Any) -> None:
        self.paths = paths

    def next(self, now: int) -> Any:
        return self.paths.all[0]


def test_a_policy_with_nothing_but_next_waits_for_its_port() -> None:
    made = pair(OnlyNext)
    assert complete(made)
    assert {ev for ev, count in made.sent.items() if count > 50} == {made.paths[0][0]}


class Hesitates(OnlyNext):
    """Gives no path every other time although ports have room, and says nothing about when to ask again."""

    asked = 0

    def next(self, now: int) -> Any:
        self.asked += 1
        return self.paths.rotate(now, skip=False) if self.asked % 2 else None


def test_a_policy_that_gives_nothing_is_asked_again_later() -> None:
    assert complete(pair(Hesitates))


class Tells(OnlyNext):
    react = True
    seen: list[bool]

    def __init__(self, paths: Any) -> None:
        super().__init__(paths)
        self.seen = []

    def next(self, now: int) -> Any:
        return next(iter(self.paths.ready(now)), None)

    def full_until(self) -> int:
        return min(int(path.port.full_until()) for path in self.paths.all)

    def acknowledged(self, path: Any, *, marked: bool) -> None:
        self.seen.append(marked)


def test_a_policy_is_told_of_arrivals() -> None:
    made_policies: list[Tells] = []

    def make(paths: Any) -> Tells:
        made_policies.append(Tells(paths))
        return made_policies[-1]

    assert complete(pair(make))
    assert made_policies[0].seen.count(False) >= 190


class Broken(OnlyNext):
    def next(self, now: int) -> Any:
        raise KeyError("lost my notes")


class Stranger(OnlyNext):
    def next(self, now: int) -> Any:
        return "p0t1-0"


class Other(OnlyNext):
    def next(self, now: int) -> Any:
        return type(self.paths.all[0])(self.paths.all[0].ev, 0, "elsewhere", self.paths.all[0].port)


@pytest.mark.parametrize(
    ("own", "says"),
    [
        (Broken, r"policy mine.py:Mine: KeyError: 'lost my notes' \(.*test_own_policy.py line \d+\)"),
        (Stranger, "policy mine.py:Mine chose 'p0t1-0', which is no path to this destination"),
        (Other, "which is no path to this destination"),
        (lambda paths: 1 / 0, "policy mine.py:Mine: ZeroDivisionError: division by zero"),
    ],
)
def test_what_a_policy_may_not_do_is_said(own: Callable[[Any], object], says: str) -> None:
    with pytest.raises(PolicyError, match=says):
        pair(own)


def test_a_denied_path_is_not_to_be_chosen() -> None:
    made = Pair(policy="mine.py:Mine", own_policy=OnlyNext)
    made.ends[0].deny(1, made.paths[0][0], made.now)
    with pytest.raises(PolicyError, match="which is denied"):
        made.write(0, DATA, wr_id=1)
