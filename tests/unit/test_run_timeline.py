"""The scheduler under a virtual clock."""

from __future__ import annotations

from collections.abc import Callable

from testbed.run.timeline import HOLD_NS, Timeline

MS = 1_000_000


class Clock:
    """Jumps from one due time to the next, always `late` ns too late, as a real loop is."""

    def __init__(self, late: int = 0) -> None:
        self.late = late
        self.now = 0

    def run(self, timeline: Timeline, until: int) -> None:
        while (due := timeline.next_ns()) is not None and due <= until:
            self.now = max(self.now, due + self.late)
            timeline.fire(self.now)


def test_actions_fire_in_order_of_time_and_then_of_adding() -> None:
    timeline, fired = Timeline(), list[tuple[str, int]]()
    for name, at in (("second", 20), ("first", 10), ("also second", 20)):
        timeline.at(at, name, lambda planned, name=name: fired.append((name, planned)))  # type: ignore[misc]
    Clock().run(timeline, 100)
    assert fired == [("first", 10), ("second", 20), ("also second", 20)]
    assert timeline.next_ns() is None


def test_an_action_is_told_the_planned_time_and_the_lag_is_kept() -> None:
    timeline, planned = Timeline(), list[int]()
    timeline.at(10, "fault", planned.append)
    timeline.at(30, "fault", planned.append)
    Clock(late=4).run(timeline, 100)
    assert planned == [10, 30]
    assert timeline.take_lags_ns() == [4, 4]
    assert timeline.take_lags_ns() == []


def test_a_repeated_action_keeps_its_grid_and_never_bursts() -> None:
    timeline, planned = Timeline(), list[int]()
    timeline.every(100, 10, "sample", planned.append)
    timeline.fire(100)
    timeline.fire(134)  # the loop was held up for three intervals: one sample, not three
    timeline.fire(140)
    assert planned == [100, 110, 140]


def test_nothing_fires_early() -> None:
    timeline, planned = Timeline(), list[int]()
    timeline.at(10, "stop", planned.append)
    timeline.fire(9)
    assert planned == []


def test_an_action_may_add_one_that_is_due_already() -> None:
    timeline, planned = Timeline(), list[int]()

    def chain(at: int) -> None:
        planned.append(at)
        timeline.at(at + 1, "next", planned.append)

    timeline.at(10, "chain", chain)
    timeline.fire(20)
    assert planned == [10, 11]


def test_what_is_due_shortly_before_a_punctual_action_waits_for_it() -> None:
    timeline, fired = Timeline(), list[tuple[str, int]]()
    clock = Clock()

    def note(name: str) -> Callable[[int], None]:
        return lambda _: fired.append((name, clock.now))

    for at in (10, 12, 40):
        timeline.at(at * MS, "fault", note("fault"), punctual=True)
    timeline.at(3 * MS, "sample", note("sample"))
    timeline.at(29 * MS, "early", note("early"))
    timeline.at(40 * MS, "stop", note("stop"))
    clock.run(timeline, 100 * MS)
    assert [(name, at // MS) for name, at in fired] == [
        *(("fault", 10), ("fault", 12), ("sample", 12), ("early", 29)),
        *(("fault", 40), ("stop", 40)),
    ]
    assert timeline.take_lags_ns() == [0] * 6, "what was held up on purpose is not late"


def test_punctual_actions_hold_nothing_up_for_long() -> None:
    timeline, fired = Timeline(), list[int]()
    clock = Clock()
    for at in range(1, 1000, 5):
        timeline.at(at * MS, "fault", lambda _: None, punctual=True)
    timeline.every(0, 100 * MS, "sample", lambda at: fired.append(clock.now - at))
    clock.run(timeline, 999 * MS)
    assert len(fired) == 10
    assert max(fired) <= HOLD_NS


def test_clear_forgets_by_name() -> None:
    timeline, planned = Timeline(), list[int]()
    timeline.at(10, "fault", planned.append)
    timeline.at(20, "stop", planned.append)
    timeline.clear("fault")
    Clock().run(timeline, 100)
    assert planned == [20]
