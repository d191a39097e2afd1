"""The windows without feedback, and the responder that asks for smaller ones."""

from __future__ import annotations

from dataclasses import replace

import pytest

from testbed.transport.common.config import PortConfig
from testbed.transport.mrc.backpressure import HALF, PAUSE_RTTS, BackPressure
from testbed.transport.mrc.config import EndpointConfig
from testbed.transport.mrc.window import FixedWindow, NoWindow, Window
from testbed.transport.mrc.windows import CONTROLLERS
from tests.support.virtual import MS, inner

RTT = 40 * MS
CONFIG = EndpointConfig(
    host=0,
    inner=inner(0),
    payload=1000,
    policy="mrc",
    window_bytes=15_000,
    sack_bytes=4000,
    rtt_base_ns=RTT,
    probes=True,
    reshuffle=True,
    ports=(PortConfig(0, 1_000_000),),
    overhead_bytes=24,
    bdp_bytes=10_000,
)


def acknowledge(window: Window, size: int, penalty: int = 0) -> None:
    window.acknowledged(size)
    window.feedback(marked=False, delay_ns=0, penalty=penalty, restore=False, now=0)


@pytest.mark.parametrize("name", ["fixed", "nscc"])
def test_every_window_starts_at_the_scenarios_and_takes_a_packet_when_empty(name: str) -> None:
    window = CONTROLLERS[name](CONFIG)
    assert window.limit == 15_000
    assert window.has_room(20_000)
    window.sent(14_500)
    assert window.has_room(500)
    assert not window.has_room(501)


def test_nscc_needs_the_bdp() -> None:
    with pytest.raises(ValueError, match="bandwidth-delay product"):
        CONTROLLERS["nscc"](replace(CONFIG, bdp_bytes=0))


def test_a_fixed_window_ignores_the_network_and_yields_to_the_responder_for_as_long_as_it_asks() -> None:
    window = FixedWindow(16_000, 1000)
    window.sent(8000)
    window.trimmed(1000, 0)
    window.lost(1000, 0)
    acknowledge(window, 1000)
    assert (window.limit, window.inflight) == (16_000, 5000)
    acknowledge(window, 4000, HALF)
    assert window.limit == 14_000
    acknowledge(window, 1000)
    assert (window.limit, window.inflight) == (16_000, 0)


def test_no_window_is_no_window() -> None:
    window = NoWindow(1000)
    window.sent(1 << 30)
    acknowledge(window, 1 << 20, 127)
    assert window.has_room(1 << 30)


def test_one_trim_at_the_last_hop_asks_for_one_round_trip_and_those_that_follow_are_its_echo() -> None:
    pressure = BackPressure(RTT, enabled=True)
    assert pressure.penalty(0) == 0
    pressure.trimmed(1000 * MS)
    assert pressure.penalty(1000 * MS) == pressure.penalty(1000 * MS + RTT - 1) == HALF
    assert pressure.penalty(1000 * MS + RTT) == 0
    pressure.trimmed(1000 * MS + RTT)
    assert pressure.penalty(1000 * MS + RTT) == 0
    later = 1000 * MS + (1 + PAUSE_RTTS) * RTT
    pressure.trimmed(later)
    assert pressure.penalty(later) == HALF
    assert pressure.asked == 2


def test_back_pressure_can_be_switched_off() -> None:
    pressure = BackPressure(RTT, enabled=False)
    pressure.trimmed(0)
    assert pressure.penalty(0) == 0
