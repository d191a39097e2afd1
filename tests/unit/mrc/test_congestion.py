"""Congestion control over hundreds of round trips, in a Clos under a virtual clock: incast, permutation, queues and losses."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import Any

import pytest

from testbed.transport.mrc.events import Fate
from tests.support.clos import Clos, Switches
from tests.support.virtual import MS

RTT = 50 * MS
WARM = 20  # round trips that do not count
SENDERS = 7


def frames_rate(bdp_frames: float) -> int:
    """The rate per plane at which a round trip over four planes holds so many full frames."""
    return int(bdp_frames / 4 * 8 * (4096 + 142 + 24) * 1000 * MS / RTT)


class Incast:
    """Seven hosts of one T0 group send to one of the other, across nine T1s: the last hop alone is short."""

    def __init__(self, bdp_frames: float, rtts: int, *, switches: Switches | None = None, **config: Any) -> None:
        rate = frames_rate(bdp_frames)
        self.clos = clos = Clos(
            groups=2,
            hosts_per_t0=SENDERS,
            uplinks=9,
            rate_bps=rate,
            delay_ns=RTT // 2,
            payload=4096,
            sack_bytes=16384,
            switches=switches,
            **config,
        )
        for sender in range(SENDERS, 2 * SENDERS):
            clos.stream(sender, 0, message=256 * 1024)
        clos.run(WARM * RTT)
        before = clos.total("last", "trimmed"), clos.total("last", "data")
        clos.run((rtts - WARM) * RTT)
        self.trimmed, whole = clos.total("last", "trimmed") - before[0], clos.total("last", "data") - before[1]
        self.trimmed_share = self.trimmed / (self.trimmed + whole)
        flows: Counter[int] = Counter()
        for row in clos.received(0, since=WARM * RTT):
            flows[row[1]] += row[4]
        rates = list(flows.values())
        assert len(rates) == SENDERS
        seconds = (rtts - WARM) * RTT / 1e9
        self.aggregate = sum(rates) * 8 / seconds / (4 * rate * clos.payload / clos.frame)
        self.jain = sum(rates) ** 2 / (SENDERS * sum(rate * rate for rate in rates))
        self.fates = Counter(Fate(row[7]) for log in clos.logs for row in log.packets)
        self.retired = sum(end.statistics()["evs_retired"] for end in clos.ends)


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
    hosts = 4
    clos = Clos(
        groups=2, hosts_per_t0=hosts, rate_bps=frames_rate(24), delay_ns=RTT // 2, payload=4096, sack_bytes=16384, cc=cc
    )
    for host in range(hosts):
        clos.stream(host, hosts + (host + 1) % hosts, message=256 * 1024)
        clos.stream(hosts + host, (host + 2) % hosts, message=256 * 1024)
    clos.run(60 * RTT)
    waiting = sorted(queue for (kind, *_), port in clos.ports.items() if kind in ("up", "down") for queue in port.queues)
    assert waiting[len(waiting) * 99 // 100] < clos.switches.ecn_max
    assert sum(clos.total(kind, "trimmed") for kind in ("up", "down", "last")) == 0
    got = sum(row[4] for host in range(2 * hosts) for row in clos.received(host, since=WARM * RTT))
    ideal = 2 * hosts * 4 * frames_rate(24) * clos.payload / clos.frame / 8 * (60 - WARM) * RTT / 1e9
    assert got / ideal >= 0.97


class SlowPlane:
    """Four hosts in two groups send to each other; plane 0's ports of one kind become slow. What the other planes keep."""

    def __init__(self, kind: str, factor: float) -> None:
        self.clos = clos = Clos(
            groups=2,
            hosts_per_t0=2,
            uplinks=3,
            rate_bps=frames_rate(24),
            delay_ns=RTT // 2,
            payload=4096,
            sack_bytes=16384,
            cc="nscc",
        )
        for source, target in ((0, 3), (1, 2), (2, 0), (3, 1)):
            clos.stream(source, target, message=1 << 20)
        clos.run(30 * RTT)
        self.before = self.rate(15)
        for (name, plane, *_), port in clos.ports.items():
            if name == kind and plane == 0:
                port.slow_down(factor)
        clos.run(70 * RTT)
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
