"""Congestion control over hundreds of round trips, in a Clos under a virtual clock: incast, permutation, queues and losses."""

from __future__ import annotations

from contextlib import suppress

import pytest

from testbed.transport.common.events import Fate
from tests.support.loads import RTT, Incast, ManyDeadLinks, Permutation, TwoFlows, UplinksRemoved, clos


@pytest.mark.parametrize("seed", [1, 2])
def test_an_incast_under_back_pressure_is_fair_and_full_and_hardly_trimmed(seed: int) -> None:
    incast = Incast(24, 300, cc="nscc", seed=seed)
    assert incast.trimmed_share <= 0.05
    assert incast.aggregate >= 0.96
    assert incast.jain >= 0.95
    assert incast.clos.total("down", "trimmed") == incast.clos.total("up", "trimmed") == 0


def test_without_back_pressure_the_port_is_full_too_but_more_is_trimmed() -> None:
    without = Incast(24, 150, cc="nscc", backpressure=False)
    assert without.aggregate >= 0.95
    assert without.trimmed > 2 * Incast(24, 150, cc="nscc").trimmed


@pytest.mark.parametrize("cc", ["nscc", "fixed"])
@pytest.mark.parametrize("backpressure", [True, False])
def test_what_is_trimmed_or_waits_at_a_last_hop_is_never_taken_for_lost(cc: str, backpressure: bool) -> None:
    incast = Incast(24, 60, cc=cc, backpressure=backpressure)
    assert incast.fates[Fate.TRIMMED] > 100
    assert incast.fates[Fate.LOST] == 0
    assert incast.retired == 0


@pytest.mark.parametrize("cc", ["nscc", "fixed"])
def test_a_permutation_keeps_its_queues_below_certain_marking(cc: str) -> None:
    permutation = Permutation(6, 60, cc=cc)
    assert permutation.queue_p99 < permutation.clos.switches.ecn_max
    assert permutation.trimmed == permutation.fates[Fate.LOST] == 0
    assert permutation.goodput >= 0.97


def test_a_permutation_without_a_spare_uplink_blames_no_path_for_a_queue() -> None:
    """Four T1s for four hosts: every port is full, and queues come and go by more than half a round trip."""
    permutation = Permutation(4, 70, cc="nscc")
    assert permutation.queue_p99 > 3, "half a round trip is three frames"
    assert permutation.fates[Fate.LOST] <= 1e-3 * permutation.fates[Fate.ACKNOWLEDGED]
    assert permutation.trimmed <= 1e-3 * permutation.fates[Fate.ACKNOWLEDGED]
    assert permutation.goodput >= 0.93


def test_a_plane_short_of_an_uplink_is_neither_everyones_measure_nor_free() -> None:
    """Equal planes would give 3/4 of the line rate, free choice 15/16."""
    assert 0.82 <= Permutation(4, 70, dead=True, cc="nscc").goodput <= 15 / 16


@pytest.mark.parametrize("seed", [1, 2])
def test_two_flows_of_which_one_is_confined_to_one_of_two_paths_both_come_near_line_rate(seed: int) -> None:
    flows = TwoFlows(6, 240, seed=seed, cc="nscc")
    assert flows.first >= 0.95
    assert flows.second >= 0.88, "0.62 with one turn per mark"
    assert flows.trimmed_share <= 0.005
    assert flows.retired == 0


class SlowPlane:
    """Four hosts in two groups send to each other; plane 0's ports of one kind become slow. What the other planes keep."""

    def __init__(self, kind: str, factor: float) -> None:
        self.clos = made = clos(groups=2, hosts_per_t0=2, uplinks=3, cc="nscc")
        for source, target in ((0, 3), (1, 2), (2, 0), (3, 1)):
            made.stream(source, target, message=1 << 20)
        made.run(30 * RTT)
        self.before = self.rate(15)
        for (name, plane, *_), port in made.ports.items():
            if name == kind and plane == 0:
                port.slow_down(factor)
        made.run(70 * RTT)
        self.during = self.rate(40)

    def rate(self, rtts: int) -> float:
        since = self.clos.now - rtts * RTT
        return sum(row[4] for host in range(4) for row in self.clos.received(host, since) if row[6] != 0) / rtts

    def deny(self) -> float:
        for end in self.clos.ends:
            for peer in range(4):
                for ev in range(3):
                    with suppress(StopIteration):
                        end.deny(peer, ev, self.clos.now)
        self.clos.run(60 * RTT)
        return self.rate(30)


def test_h17_slow_ports_of_the_senders_cost_no_other_plane() -> None:
    slow = SlowPlane("nic", 100)
    assert slow.during >= 0.9 * slow.before


def test_h17_a_slow_last_hop_holds_back_every_plane_until_it_is_denied() -> None:
    slow = SlowPlane("last", 10)
    assert slow.during < 0.6 * slow.before
    assert slow.deny() >= 0.95 * slow.before


def test_half_of_256_paths_may_die_at_once() -> None:
    """Losses are spread over hundreds of PSNs then, and one that is not learnt keeps its room in the window for ever."""
    load = ManyDeadLinks(188, seed=4)
    load.goodput(20)
    assert min(load.goodput(10)) >= 0.95
    assert load.clos.ends[0].statistics()["timeouts"] == 0


@pytest.mark.parametrize(("bdp_frames", "seed"), [(96, 1), (188, 3)])
def test_three_of_four_paths_may_die_at_once_and_with_them_every_trusted_way_back(bdp_frames: float, seed: int) -> None:
    load = UplinksRemoved(bdp_frames, seed)
    load.goodput(36)
    assert load.goodput(12) >= 0.95
    assert load.clos.ends[0].statistics()["evs_retired"] == 12
