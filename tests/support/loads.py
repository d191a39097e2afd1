"""Loads for the Clos under a virtual clock that tests and benchmarks share: an incast, a permutation, two flows on one path."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import Any

from testbed.transport.common.events import Fate
from tests.support.clos import Clos, Switches
from tests.support.virtual import MS

PAYLOAD, SACK_BYTES = 4096, 16384
FRAME = PAYLOAD + 142 + 24
RTT = 50 * MS
WARM = 20  # round trips that do not count
SENDERS = 7


def frames_rate(bdp_frames: float, planes: int = 4) -> int:
    """The rate per plane at which a round trip over all planes holds so many full frames."""
    return int(bdp_frames / planes * 8 * FRAME * 1000 * MS / RTT)


def clos(bdp_frames: float = 24, *, planes: int = 4, **settings: Any) -> Clos:
    """A Clos whose round trip of `RTT` holds `bdp_frames` over all planes."""
    rate = frames_rate(bdp_frames, planes)
    return Clos(planes=planes, rate_bps=rate, delay_ns=RTT // 2, payload=PAYLOAD, sack_bytes=SACK_BYTES, **settings)


def goodput(made: Clos, hosts: range, since: int) -> float:
    """What `hosts` received since then, over the payload that their ports could carry."""
    got = sum(row[4] for host in hosts for row in made.received(host, since))
    return got / (len(hosts) * made.line_bytes(made.now - since))


class Incast:
    """Seven hosts of one T0 group send to one of the other, across nine T1s: the last hop alone is short."""

    def __init__(self, bdp_frames: float, rtts: int, *, switches: Switches | None = None, **config: Any) -> None:
        self.clos = made = clos(bdp_frames, groups=2, hosts_per_t0=SENDERS, uplinks=9, switches=switches, **config)
        for sender in range(SENDERS, 2 * SENDERS):
            made.stream(sender, 0, message=256 * 1024)
        made.run(WARM * RTT)
        before = made.total("last", "trimmed"), made.total("last", "data")
        made.run((rtts - WARM) * RTT)
        self.trimmed, whole = made.total("last", "trimmed") - before[0], made.total("last", "data") - before[1]
        self.trimmed_share = self.trimmed / (self.trimmed + whole)
        flows: Counter[int] = Counter()
        for row in made.received(0, since=WARM * RTT):
            flows[row[1]] += row[4]
        rates = list(flows.values())
        assert len(rates) == SENDERS
        self.aggregate = goodput(made, range(1), WARM * RTT)
        self.jain = sum(rates) ** 2 / (SENDERS * sum(rate * rate for rate in rates))
        self.fates = fates(made)
        self.retired = retired(made)


class Permutation:
    """Four hosts of each of two T0s send to the other T0's. `dead`: one uplink of the first T0 in plane 0 is not used."""

    HOSTS = 4

    def __init__(self, uplinks: int, rtts: int, *, dead: bool = False, **config: Any) -> None:
        hosts = self.HOSTS
        self.clos = made = clos(groups=2, hosts_per_t0=hosts, uplinks=uplinks, **config)
        for host in range(hosts):
            made.stream(host, hosts + (host + 1) % hosts, message=1 << 20)
            made.stream(hosts + host, (host + 2) % hosts, message=1 << 20)
        if dead:
            for sender in made.ends:
                for peer in range(2 * hosts):
                    with suppress(StopIteration):
                        sender.deny(peer, 0, 0)
        made.run(WARM * RTT)
        for port in made.ports.values():
            port.queues.clear()
        made.run((rtts - WARM) * RTT)
        self.goodput = goodput(made, range(2 * hosts), WARM * RTT)
        waiting = sorted(queue for (kind, *_), port in made.ports.items() if kind in ("up", "down") for queue in port.queues)
        self.queue_p99 = waiting[len(waiting) * 99 // 100]
        self.trimmed = sum(made.total(kind, "trimmed") for kind in ("up", "down", "last"))
        self.fates = fates(made)
        self.retired = retired(made)


class TwoFlows:
    """Figure 14 of the paper: one plane, two T1s, two flows on both paths until one of them is confined to the first."""

    SETTLED = 90  # round trips

    def __init__(self, bdp_frames: float, rtts: int, **config: Any) -> None:
        self.clos = made = clos(bdp_frames, planes=1, groups=3, hosts_per_t0=2, uplinks=2, **config)
        made.stream(0, 4, message=256 * 1024)
        made.stream(2, 5, message=256 * 1024)
        made.run(30 * RTT)
        made.ends[2].deny(5, 1, made.now)
        made.run((self.SETTLED - 30) * RTT)
        shared = made.ports["down", 0, 0, 2]
        shared.queues.clear()
        since = made.now
        made.run((rtts - self.SETTLED) * RTT)
        self.first, self.second = (goodput(made, range(host, host + 1), since) for host in (4, 5))
        sent = [row for row in made.logs[0].packets if row[0] >= since]
        self.share_on_shared = sum(row[4] & 0xFFFF == 0 for row in sent) / len(sent)
        self.queue = sum(shared.queues) / len(shared.queues)
        self.trimmed_share = made.total("down", "trimmed") / made.total("down", "data")
        self.retired = retired(made)


class ManyDeadLinks:
    """Two hosts of each of two T0s send to the other T0's over 256 paths; 160 of 512 links are cut after ten round trips."""

    PLANES, UPLINKS, DEAD = 8, 32, 160
    HOSTS = range(4)

    def __init__(self, bdp_frames: float, seed: int) -> None:
        self.clos = made = clos(
            bdp_frames, planes=self.PLANES, groups=2, hosts_per_t0=2, uplinks=self.UPLINKS, cc="nscc", seed=seed
        )
        for source, target in ((0, 2), (1, 3), (2, 0), (3, 1)):
            made.stream(source, target, message=1 << 20, depth=3)
        made.run(10 * RTT)
        links = [(plane, group, uplink) for plane in range(self.PLANES) for group in (0, 1) for uplink in range(self.UPLINKS)]
        for plane, group, uplink in made.rng.sample(links, self.DEAD):
            made.port("up", plane, group, uplink).cut()
            made.port("down", plane, uplink, group).cut()

    def goodput(self, rtts: int) -> list[float]:
        """Run so many round trips more: each host's over them."""
        since = self.clos.now
        self.clos.run(rtts * RTT)
        return [goodput(self.clos, range(host, host + 1), since) for host in self.HOSTS]


class UplinksRemoved:
    """One host sends to one of another T0 over four T1s in each of four planes; three of each four links are cut."""

    def __init__(self, bdp_frames: float, seed: int) -> None:
        self.clos = made = clos(bdp_frames, groups=2, hosts_per_t0=1, uplinks=4, cc="nscc", seed=seed)
        made.stream(0, 1, message=1 << 20)
        made.run(2 * WARM * RTT)
        for plane in range(made.planes):
            for uplink in range(3):
                made.port("up", plane, 0, uplink).cut()
                made.port("down", plane, uplink, 0).cut()

    def goodput(self, rtts: int) -> float:
        """Run so many round trips more: over them."""
        since = self.clos.now
        self.clos.run(rtts * RTT)
        return goodput(self.clos, range(1, 2), since)


def fates(made: Clos) -> Counter[Fate]:
    """Of all transmissions so far."""
    return Counter(Fate(row[7]) for log in made.logs for row in log.packets)


def retired(made: Clos) -> int:
    """Paths taken out of use so far."""
    return sum(end.statistics()["evs_retired"] for end in made.ends)
