"""How long a marked path is left alone: one turn, and base round trips once marks persist."""

from __future__ import annotations

from testbed.transport.mrc.ev import EvState
from testbed.transport.mrc.paths import Path, PathSet
from testbed.transport.mrc.skip import MOST, PERSISTENT, rest_ns
from tests.unit.mrc.test_replacement import RTT_NS, path_set


def feed(paths: PathSet, path: Path, marks: int, now: int = 0) -> None:
    for _ in range(marks):
        paths.marked(path, now)


def state(path: Path) -> EvState:
    return path.state


def picks(paths: PathSet, now: int, count: int = 240) -> list[Path]:
    return [path for _ in range(count) if (path := paths.next(now)) is not None]


def test_a_mark_costs_one_turn_and_marks_meanwhile_no_more() -> None:
    paths = path_set()
    marked = paths.all[3]
    feed(paths, marked, PERSISTENT)
    assert state(marked) is EvState.SKIP
    assert picks(paths, 1).count(marked) == 9, "of ten turns"
    assert state(marked) is EvState.GOOD


def test_a_path_that_keeps_being_marked_rests_and_is_tried_with_single_packets() -> None:
    paths = path_set()
    marked = paths.all[3]
    feed(paths, marked, MOST + 5)
    rest = rest_ns(MOST, RTT_NS)
    assert rest == 4 * RTT_NS
    assert marked not in picks(paths, rest - 1)
    assert picks(paths, rest).count(marked) == 1
    assert marked not in picks(paths, 2 * rest - 1)
    assert picks(paths, 2 * rest).count(marked) == 1
    for _ in range(MOST - PERSISTENT):
        paths.acknowledged(marked, marked=False)
    assert state(marked) is EvState.SKIP
    assert picks(paths, 3 * rest).count(marked) == 9
    assert state(marked) is EvState.GOOD


def test_where_every_path_is_marked_the_ordinary_rotation_goes_on() -> None:
    paths = path_set()
    for path in paths.all:
        feed(paths, path, MOST)
    chosen = picks(paths, 1, 2400)
    assert all(chosen.count(path) > 60 for path in paths.all), "of a hundred turns; the order is stirred"
    assert {[path.plane for path in chosen].count(plane) for plane in range(4)} == {600}


def test_marks_change_nothing_for_a_policy_that_does_not_react() -> None:
    paths = path_set(policy="oblivious")
    feed(paths, paths.all[3], MOST)
    assert paths.all[3].state is EvState.GOOD
    assert picks(paths, 1).count(paths.all[3]) == 10
