"""NSCC's cases one by one, each against the reference's definition (mrc-facts 3.6), and its parameters at three BDPs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from testbed.transport.mrc.nscc import NsccParameters, NsccWindow

MTU = 4096
RTT = 48_000_000
FRAMES = 36.6  # the reference's BDP: the scale is then 1


def parameters(frames: float = FRAMES) -> NsccParameters:
    bdp = int(frames * MTU)
    return NsccParameters.derive(mtu=MTU, base_rtt_ns=RTT, bdp=bdp, max_window=int(1.5 * bdp))


class Driver:
    """A window and a clock. `sack` acknowledges frames that were in flight."""

    def __init__(self, frames: float = FRAMES, *, quick_adapt: bool = False) -> None:
        self.window = NsccWindow(replace(parameters(frames), quick_adapt=quick_adapt))
        self.now = 1_000_000_000

    def sack(self, frames: int = 1, *, delay: float = 0, marked: bool = False, penalty: int = 0, restore: bool = False) -> None:
        """`delay` in base round trips."""
        for _ in range(frames):
            self.window.sent(MTU)
            self.window.acknowledged(MTU)
        self.window.feedback(marked=marked, delay_ns=int(delay * RTT), penalty=penalty, restore=restore, now=self.now)

    def round_trip(self, delay: float, *, marked: bool = False) -> float:
        """Four windows' worth of SACKs spread over four base round trips; the change of the window per round trip, in frames.

        Four, as an increase takes effect with the next eight frames.
        """
        before = self.window.limit
        for _ in range(4):
            sacks = max(1, self.window.limit // MTU)
            for _ in range(sacks):
                self.now += RTT // sacks
                self.sack(delay=delay, marked=marked)
        return (self.window.limit - before) / MTU / 4

    def shrink_to(self, frames: float) -> None:
        """As trims do: each takes its packet off the window."""
        while self.window.limit > frames * MTU:
            self.window.sent(MTU)
            self.window.trimmed(MTU, self.now)
        self.now += 2 * RTT


def test_it_starts_at_the_largest_window_and_has_no_less_than_a_packet() -> None:
    driver = Driver()
    assert driver.window.limit == parameters().max_window == int(1.5 * int(FRAMES * MTU))
    driver.shrink_to(1)
    driver.window.sent(MTU)
    driver.window.trimmed(MTU, driver.now)
    assert driver.window.limit == MTU


def test_no_mark_and_little_delay_grow_in_proportion_to_what_is_left_below_the_target() -> None:
    gains = []
    for delay in (0.25, 0.5):
        driver = Driver()
        driver.shrink_to(16)
        gains.append(driver.round_trip(delay))
    # 4 frames a round trip at no delay and a target of one round trip: (0.75 - delay) of it, and 0.15 frames of eta.
    assert gains[0] == pytest.approx(4 * 0.5 + 0.15, rel=0.2)
    assert gains[1] == pytest.approx(4 * 0.25 + 0.15, rel=0.2)


def test_no_mark_and_much_delay_grow_by_the_same_for_every_window() -> None:
    gains = []
    for frames in (8, 24):
        driver = Driver()
        driver.shrink_to(frames)
        gains.append(driver.round_trip(1.0))
    assert gains[0] == pytest.approx(2.5 + 0.15, rel=0.2)
    assert gains[1] == pytest.approx(gains[0], rel=0.2)


def test_a_mark_with_little_delay_changes_nothing_but_eta() -> None:
    driver = Driver()
    driver.shrink_to(16)
    assert driver.round_trip(0.5, marked=True) == pytest.approx(0.15, abs=0.02)


def test_marks_with_much_delay_decrease_once_a_round_trip_by_the_excess() -> None:
    driver = Driver()
    window = driver.window
    before = window.limit
    driver.now += 2 * RTT
    while window.limit >= before:  # until the average delay has passed the target
        before = window.limit
        driver.sack(8, delay=1.5, marked=True)
    average = window.average_delay_ns
    assert 0.75 * RTT < average < 1.5 * RTT
    assert window.limit == pytest.approx(before * (1 - 0.8 * (average - 0.75 * RTT) / average), rel=0.01)
    decreased = window.limit
    driver.now += RTT // 2
    driver.sack(8, delay=1.5, marked=True)
    assert window.limit >= decreased  # not twice within a round trip
    driver.now += RTT
    driver.sack(8, delay=1.5, marked=True)
    assert window.limit < 0.9 * decreased


def test_a_decrease_takes_at_most_half() -> None:
    driver = Driver()
    for _ in range(40):
        before = driver.window.limit
        driver.now += RTT + 1
        driver.sack(8, delay=2.9, marked=True)
        assert driver.window.limit >= before // 2 or driver.window.limit == MTU


def test_marks_do_not_decrease_while_the_average_is_below_the_target() -> None:
    driver = Driver()
    before = driver.window.limit
    driver.sack(delay=1.0, marked=True)  # the first sample has not moved the average
    assert driver.window.limit >= before


def test_fast_increase_after_a_whole_quiet_window_and_no_longer_than_it_is_quiet() -> None:
    driver = Driver()
    driver.shrink_to(8)
    driver.sack(9)
    assert driver.window.limit / MTU == pytest.approx(8 + 9 / 8 * 3, rel=0.1)  # proportional, until a window has passed
    driver.sack(4)
    before = driver.window.limit
    driver.sack(2)
    assert driver.window.limit - before == pytest.approx(0.25 * 2 * MTU, rel=0.01)
    driver.sack(delay=0.2)
    before = driver.window.limit
    driver.sack(1)
    assert driver.window.limit - before < 0.2 * MTU  # it has to earn it again


def test_a_trimmed_packet_and_a_lost_one_take_their_size() -> None:
    driver = Driver()
    before = driver.window.limit
    driver.window.sent(2 * MTU)
    driver.window.trimmed(MTU, driver.now)
    driver.window.lost(MTU, driver.now)
    assert driver.window.limit == before - 2 * MTU
    assert driver.window.inflight == 0


def test_quick_adapt_sets_the_window_to_what_arrived_and_then_ignores_the_past() -> None:
    driver = Driver(64, quick_adapt=True)
    window, most = driver.window, driver.window.limit
    driver.sack(delay=0.1)
    for _ in range(60):
        window.sent(MTU)
    driver.now += 2 * RTT  # base round trip and target have passed: only one frame has arrived in them
    driver.sack(3, delay=0.1)
    window.trimmed(MTU, driver.now)
    assert window.limit == most - MTU  # too early: what arrives is being counted anew
    driver.now += 2 * RTT
    driver.sack(2, delay=0.1)
    assert window.limit == 2 * MTU  # the two frames that arrived in that time, 1/8 of the largest window being 12
    window.trimmed(MTU, driver.now)
    driver.sack(delay=2.0, marked=True)
    assert window.limit == 2 * MTU  # both tell of the window before


def test_quick_adapt_leaves_a_window_that_gets_through() -> None:
    driver = Driver(quick_adapt=True)
    driver.sack()
    driver.round_trip(0.1)
    driver.window.sent(MTU)
    driver.window.trimmed(MTU, driver.now)
    before = driver.window.limit
    driver.now += 2 * RTT
    driver.sack(delay=0.1)
    assert driver.window.limit >= before


def test_quick_adapt_leaves_a_sender_that_had_little_to_send() -> None:
    """A loss at the end of a collective's phase, then silence: that little arrived in that time is the application's doing."""
    driver = Driver(64, quick_adapt=True)
    window, most = driver.window, driver.window.limit
    driver.sack(delay=0.1)
    driver.now += 2 * RTT
    driver.sack(2, delay=0.1)  # what the count starts from
    driver.sack(2, delay=0.1)
    window.sent(MTU)
    window.lost(MTU, driver.now)
    driver.now += 10 * RTT  # the compute phase
    driver.sack(2, delay=0.1)
    driver.now += 2 * RTT
    driver.sack(2, delay=0.1)
    assert window.limit >= most - MTU


def test_an_unknown_delay_counts_as_the_average() -> None:
    driver = Driver()
    driver.shrink_to(16)
    driver.window.sent(MTU)
    driver.window.acknowledged(MTU)
    driver.window.feedback(marked=False, delay_ns=-1, penalty=0, restore=False, now=driver.now)
    assert driver.window.average_delay_ns == 0
    assert driver.window.limit > 16 * MTU


@pytest.mark.parametrize(("frames", "growth"), [(8, 0.66), (24, 1.97), (96, 7.87)])
def test_growth_is_a_share_of_the_bdp(frames: float, growth: float) -> None:
    made = parameters(frames)
    assert made.alpha * made.target_ns / MTU == pytest.approx(growth, abs=0.01)
    assert made.alpha * made.target_ns / made.bdp == pytest.approx(0.082, abs=0.001)
    assert made.fair / made.bdp == pytest.approx(0.068, abs=0.001)


def test_a_penalty_of_64_in_each_sack_of_a_round_trip_halves_the_window() -> None:
    driver = Driver()
    before = driver.window.limit
    left = before
    while left > 0:
        driver.sack(delay=1.0, penalty=64)
        left -= MTU
    assert driver.window.limit == pytest.approx(before / 2, rel=0.03)


def test_the_greatest_penalty_leaves_a_packet_per_round_trip() -> None:
    driver = Driver()
    for _ in range(driver.window.limit // MTU):
        driver.sack(delay=1.0, penalty=127)
    assert driver.window.limit <= 2 * MTU


@pytest.mark.parametrize("when", ["during", "after", "never"])
def test_the_window_before_a_penalty_is_restored_only_where_the_responder_says_so(when: str) -> None:
    driver = Driver()
    before = driver.window.limit
    for _ in range(10):
        driver.sack(delay=1.0, penalty=64, restore=when == "during")
    low = driver.window.limit
    driver.sack(delay=1.0, restore=when == "after")
    assert low == before - 10 * MTU // 2
    assert driver.window.limit == before if when != "never" else driver.window.limit < low + MTU


def test_what_is_acknowledged_under_a_penalty_counts_as_got_through() -> None:
    """Quick adapt asks whether an eighth of the largest window got through since it last looked, penalty or not."""
    driver = Driver(quick_adapt=True)
    driver.window.sent(40 * MTU)
    driver.window.trimmed(0, driver.now)  # quick adapt looks, and begins to count
    for _ in range(20):
        driver.now += RTT // 10
        driver.sack(penalty=1)
    before = driver.window.limit
    driver.window.sent(MTU)
    driver.window.trimmed(MTU, driver.now)
    assert driver.window.limit == before - MTU
