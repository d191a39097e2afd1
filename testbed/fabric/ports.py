"""Every port of the fabric, its settings and its counters, through the port program's shared memory."""

from __future__ import annotations

import time
from dataclasses import dataclass, fields
from typing import NamedTuple

from testbed.fabric.bpf.layout import constants
from testbed.fabric.bpf.loader import PortProgram
from testbed.fabric.queues import Thresholds, rate_of, shaper_at, thresholds
from testbed.model.scenario import LinkSpec, SwitchSpec
from testbed.model.topology import Link, Port, Tier, Topology

NS_PER_S = 1_000_000_000


@dataclass(frozen=True, slots=True)
class PortInfo:
    """One sending port. `direction` is "up" towards the T1s, "down" towards the hosts; `peer` is the far end's ifindex."""

    node: str
    name: str
    ifindex: int
    neighbour: str
    peer: int
    tier: Tier
    plane: int
    direction: str
    rate_bps: int


class PortCounters(NamedTuple):
    """One reading; a named tuple because hundreds are made every interval and a frozen dataclass costs five times as much.

    Cumulative since bring-up, except the two queue figures. Bytes are charged bytes (frame plus `links.overhead`).

    `packets` and `bytes` were accepted by the port, both classes; `delivered_*` came out at the far end, so the difference
    is on the wire, waiting in the shaper, or lost with a link that went down. What a `loss` or `corrupt` fault hits has
    used the link: it is among the delivered, and again in `dropped_fault` or `corrupted` of the port that sent it. A trimmed
    packet counts in `trimmed` and, cut, in `packets` and `control_packets`. `queue_bytes` is the virtual queue now;
    `queue_bytes_max` the most that an arriving packet saw, itself included, since the previous read.
    """

    t_ns: int
    ifindex: int
    delivered_packets: int
    delivered_bytes: int
    queue_bytes: int
    queue_bytes_max: int
    packets: int
    bytes: int
    control_packets: int
    control_bytes: int
    marked: int
    trimmed: int
    dropped_queue: int
    dropped_fault: int
    helper_failures: int
    corrupted: int


# Members that are passed on as they stand in the program's memory, in the order of PortCounters.
_PLAIN = PortCounters._fields[6:13]
_LIMITS = tuple(member.name for member in fields(Thresholds) if member.name != "rate")
_CERTAIN = (1 << 32) - 1  # a ratio of 1 in `struct port_settings`


def port_infos(topology: Topology, links: LinkSpec) -> tuple[PortInfo, ...]:
    """Both ends of every link, in link order, the lower end first."""
    found: list[PortInfo] = []
    for link in topology.links:
        for here, there, direction in ((link.lower, link.upper, "up"), (link.upper, link.lower, "down")):
            rate = rate_of(link, links)
            info = PortInfo(
                here.node, here.name, here.ifindex, there.node, there.ifindex, link.tier, link.plane, direction, rate
            )
            found.append(info)
    return tuple(found)


class Ports:
    """Settings in, counters out, for all ports at once."""

    def __init__(self, program: PortProgram, topology: Topology, links: LinkSpec, switch: SwitchSpec) -> None:
        self.infos = port_infos(topology, links)
        self._program = program
        self._links = links
        self._indices = [info.ifindex for info in self.infos]
        self._peers = {info.ifindex: info.peer for info in self.infos}
        self._flags = constants()
        self._rates = {info.ifindex: info.rate_bps // 8 for info in self.infos}
        for link in topology.links:
            for port in (link.lower, link.upper):
                self._apply(port, link, links, switch)

    def _apply(self, port: Port, link: Link, links: LinkSpec, switch: SwitchSpec) -> None:
        wanted = thresholds(port, link, links, switch)
        for member in fields(Thresholds):
            self._program.settings.set(port.ifindex, member.name, getattr(wanted, member.name))

    def flag(self, ifindex: int, name: str, *, on: bool) -> None:
        """Set or clear FLAG_DOWN or FLAG_BLACKHOLE of one port. The next packet sees it."""
        flags = self._program.settings.get(ifindex, "flags")
        bit = self._flags[name]
        self._program.settings.set(ifindex, "flags", flags | bit if on else flags & ~bit)

    def set_loss(self, ifindex: int, ratio: float) -> None:
        """Lose this share (0 to 1) of what the port sends, on the wire behind its shaper; counted as `dropped_fault`."""
        self._program.settings.set(self._peers[ifindex], "loss", _threshold(ratio))

    def set_corrupt(self, ifindex: int, ratio: float) -> None:
        """Change one byte behind the outer header in this share (0 to 1) of what the port sends; counted as `corrupted`."""
        self._program.settings.set(self._peers[ifindex], "corrupt", _threshold(ratio))

    def set_rate(self, ifindex: int, bytes_per_s: int, limits: Thresholds | None = None) -> None:
        """The virtual queue drains at this rate from now on; what waits in it still waits. The shaper is `queues.set_rate`'s.

        `limits` replaces the port's thresholds, its `rate` aside; None keeps them (they count bytes, not time).
        """
        counters, now = self._program.counters, time.monotonic_ns()
        waiting = max(0, counters.get(ifindex, "busy_until") - now) * self._rates[ifindex] // NS_PER_S
        for member in () if limits is None else _LIMITS:
            self._program.settings.set(ifindex, member, getattr(limits, member))
        self._program.settings.set(ifindex, "rate", bytes_per_s)
        if waiting:
            waiting = max(0, waiting - shaper_at(8 * bytes_per_s, self._links).burst)  # a changed TBF starts with a full bucket
            counters.set(ifindex, "busy_until", now + waiting * NS_PER_S // bytes_per_s)
        self._rates[ifindex] = bytes_per_s

    def problems(self, topology: Topology, links: LinkSpec, switch: SwitchSpec) -> list[str]:
        """Where the program's settings are not those of the plan, as "node: what": what a fault left behind."""
        found = []
        for link in topology.links:
            for port in (link.lower, link.upper):
                wanted = thresholds(port, link, links, switch)
                planned = {member.name: getattr(wanted, member.name) for member in fields(Thresholds)}
                for name, value in {**planned, "flags": 0, "loss": 0, "corrupt": 0}.items():
                    there = self._program.settings.get(port.ifindex, name)
                    if there != value:
                        found.append(f"{port.node}: {name} of {port.name} is {there}, planned {value}")
        return found

    def forget_queue(self, ifindex: int) -> None:
        """The port's real queue has been emptied; so is the virtual one."""
        self._program.counters.set(ifindex, "busy_until", time.monotonic_ns())

    def read(self, now_ns: int) -> list[PortCounters]:
        """Counters of every port in the order of `infos`. A few microseconds per port, no system call."""
        array = self._program.counters
        columns = array.columns
        at = [columns[name] for name in _PLAIN]
        high, busy_until = columns["queue_high"], columns["busy_until"]
        delivered_packets, delivered_bytes = columns["delivered_packets"], columns["delivered_bytes"]
        dropped, lost, failures = columns["dropped_fault"], columns["wire_lost"], columns["helper_failures"]
        corrupted = columns["wire_corrupted"]
        rows = dict(zip(self._indices, array.rows(self._indices), strict=True))
        found: list[PortCounters] = []
        for info in self.infos:
            row, far = rows[info.ifindex], rows[info.peer]
            array.set(info.ifindex, "queue_high", 0)
            waiting = max(0, row[busy_until] - now_ns) * self._rates[info.ifindex] // NS_PER_S
            delivered = (far[delivered_packets], far[delivered_bytes])
            rest = [*(row[i] for i in at), row[dropped] + far[lost], row[failures], far[corrupted]]
            found.append(PortCounters(now_ns, info.ifindex, *delivered, waiting, row[high], *rest))
        return found


def _threshold(ratio: float) -> int:
    if not 0 <= ratio <= 1:
        raise ValueError(f"a ratio must be between 0 and 1, not {ratio}")
    return 0 if ratio == 0 else max(1, round(ratio * (_CERTAIN + 1)) - 1)
