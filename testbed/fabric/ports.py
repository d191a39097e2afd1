"""Every port of the fabric, its settings and its counters, through the port program's shared memory."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import NamedTuple

from testbed.fabric.bpf.layout import constants
from testbed.fabric.bpf.loader import PortProgram
from testbed.fabric.queues import Thresholds, rate_of, thresholds
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
    is on the wire, waiting in the shaper, or lost with a link that went down. A trimmed packet counts in `trimmed` and,
    cut, in `packets` and `control_packets`. `queue_bytes` is the virtual queue now; `queue_bytes_max` the most that an
    arriving packet saw, itself included, since the previous read.
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


# Members that are passed on as they stand in the program's memory, in the order of PortCounters.
_PLAIN = PortCounters._fields[6:]


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
        self._indices = [info.ifindex for info in self.infos]
        self._peers = {info.ifindex: info.peer for info in self.infos}
        self._flags = constants()
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

    def read(self, now_ns: int) -> list[PortCounters]:
        """Counters of every port in the order of `infos`. A few microseconds per port, no system call."""
        array = self._program.counters
        columns = array.columns
        at = [columns[name] for name in _PLAIN]
        high, busy_until = columns["queue_high"], columns["busy_until"]
        delivered_packets, delivered_bytes = columns["delivered_packets"], columns["delivered_bytes"]
        rows = dict(zip(self._indices, array.rows(self._indices), strict=True))
        found: list[PortCounters] = []
        for info in self.infos:
            row, far = rows[info.ifindex], rows[info.peer]
            array.set(info.ifindex, "queue_high", 0)
            waiting = max(0, row[busy_until] - now_ns) * (info.rate_bps // 8) // NS_PER_S
            delivered = (far[delivered_packets], far[delivered_bytes])
            found.append(PortCounters(now_ns, info.ifindex, *delivered, waiting, row[high], *(row[i] for i in at)))
        return found
