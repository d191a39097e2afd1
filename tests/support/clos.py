"""A two-tier Clos of planes under a virtual clock, with real endpoints: ports that queue, mark and trim as docs/switch.md says.

No kernel and no sleeping: what congestion control does over hundreds of round trips is known in seconds, and a seed repeats it.
Hosts take no time and delay is exact, so whatever is uneven here is the protocol's.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from testbed.transport.common.codepoints import ECN_CE, Dscp
from testbed.transport.mrc import Endpoint, EndpointConfig, PortConfig, Trace, WriteComplete
from testbed.transport.mrc.packets import Datagram
from tests.support.virtual import MS, inner

S = 1000 * MS
HEADERS = 142  # in front of the payload, Ethernet included
OVERHEAD = 24
TRIMMED = 128 + OVERHEAD
CONTROL = frozenset({Dscp.CONTROL, Dscp.TRIMMED, Dscp.TRIMMED_LASTHOP})
TRIMMABLE = frozenset({Dscp.TRIMMABLE, Dscp.TRIMMABLE_RETX})


@dataclass(frozen=True)
class Switches:
    """Thresholds in full frames, as in a scenario's `switch` section."""

    ecn: bool = True
    ecn_min: float = 2
    ecn_max: float = 6
    trim: float = 8
    trim_last_hop: float = 12


class Frame:
    """One packet on its way: `hops` are the ports still ahead."""

    __slots__ = ("data", "hops", "target", "tclass")

    def __init__(self, data: bytes, tclass: int, hops: deque[Port], target: int) -> None:
        self.data = data
        self.tclass = tclass
        self.hops = hops
        self.target = target

    @property
    def charged(self) -> int:
        return len(self.data) + 14 + 40 + OVERHEAD


class Port:
    """One port: a virtual queue that decides, two strict bands that wait, a bucket that lets a lone frame pass at once."""

    def __init__(self, clos: Clos, rate_bps: int, *, trim: float | None, ecn: bool, last_hop: bool) -> None:
        self._clos = clos
        self._byte_ns = 8 * S / rate_bps
        self._trim = trim
        self._ecn = ecn
        self._last_hop = last_hop
        self._bands: tuple[deque[Frame], deque[Frame]] = (deque(), deque())
        self._busy = False
        self._tokens = float(clos.burst)
        self._refilled = 0
        self._virtual = 0.0  # bytes waiting, as of `_since`
        self._since = 0
        self.whole_bytes = 0
        self.counts: Counter[str] = Counter()
        self.queues: list[float] = []  # frames found waiting by each data packet
        self._cut = False

    def cut(self) -> None:
        """Swallow everything from now on."""
        self._cut = True

    def slow_down(self, factor: float) -> None:
        """Drain at 1 / `factor` of the rate from now on; thresholds stay."""
        self._byte_ns *= factor

    def offer(self, frame: Frame) -> None:
        if self._cut:
            return
        clos = self._clos
        now = clos.now
        self._virtual = max(0.0, self._virtual - (now - self._since) / self._byte_ns)
        self._since = now
        dscp = frame.tclass >> 2
        if dscp not in CONTROL:
            waiting = self._virtual / clos.frame
            self.queues.append(waiting)
            if self._trim is not None and dscp in TRIMMABLE and self._virtual + frame.charged > self._trim * clos.frame:
                frame.data = frame.data[: TRIMMED - 14 - 40 - OVERHEAD]
                frame.tclass = (Dscp.TRIMMED_LASTHOP if self._last_hop else Dscp.TRIMMED) << 2
                self.counts["trimmed"] += 1
            else:
                self.counts["data"] += 1
                switches = clos.switches
                chance = (waiting - switches.ecn_min) / (switches.ecn_max - switches.ecn_min)
                if self._ecn and clos.rng.random() < chance:
                    frame.tclass |= ECN_CE
                    self.counts["marked"] += 1
        self._virtual += frame.charged
        self._bands[frame.tclass >> 2 not in CONTROL].append(frame)
        if not self._busy:
            self._serve()

    def _serve(self) -> None:
        band = self._bands[0] or self._bands[1]
        self._busy = bool(band)
        if band:
            frame = band.popleft()
            clos = self._clos
            self._tokens = min(clos.burst, self._tokens + (clos.now - self._refilled) / self._byte_ns)
            self._refilled = clos.now
            self._tokens -= frame.charged
            clos.at(clos.now + max(0, int(-self._tokens * self._byte_ns)), self._sent, frame)

    def _sent(self, frame: Frame) -> None:
        if frame.tclass >> 2 not in CONTROL:
            self.whole_bytes += frame.charged
        clos = self._clos
        if frame.hops:
            frame.hops.popleft().offer(frame)
        else:
            clos.at(clos.now + clos.delay_ns, clos.arrive, frame)
        self._serve()


class Clos:
    """Hosts with endpoints, connected on demand by `stream`. `uplinks` T1s per plane; rates in bit/s."""

    def __init__(
        self,
        *,
        groups: int,
        hosts_per_t0: int,
        planes: int = 4,
        uplinks: int = 6,
        rate_bps: int = 5_000_000,
        delay_ns: int = 20 * MS,
        switches: Switches | None = None,
        seed: int = 1,
        **config: Any,
    ) -> None:
        self.now = 0
        self.delay_ns = delay_ns
        self.switches = switches or Switches()
        self.rng = random.Random(seed)
        self.planes, self.uplinks, self.hosts_per_t0 = planes, uplinks, hosts_per_t0
        self._rate_bps = rate_bps
        self._events: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._order = 0
        self.ports: dict[tuple[str, int, int, int], Port] = {}
        base = EndpointConfig(
            host=0,
            inner=inner(0),
            payload=1024,
            policy="mrc",
            window_bytes=0,
            sack_bytes=4096,
            rtt_base_ns=2 * delay_ns,
            probes=True,
            reshuffle=True,
            ports=(),
            overhead_bytes=OVERHEAD,
            bdp_bytes=1,
        )
        base = replace(base, **config)
        self.payload = base.payload
        self.frame = base.payload + HEADERS + OVERHEAD
        self.burst = self.frame * 3 // 2
        self.bdp_frames = planes * rate_bps * 2 * delay_ns / S / (8 * self.frame)
        base = replace(
            base,
            ports=tuple(PortConfig(plane, rate_bps, self.burst) for plane in range(planes)),
            bdp_bytes=round(self.bdp_frames * base.payload),
            window_bytes=base.window_bytes or round(1.5 * self.bdp_frames) * base.payload,
        )
        hosts = groups * hosts_per_t0
        self.logs = [Trace() for _ in range(hosts)]
        self.ends = [
            Endpoint(replace(base, host=host, inner=inner(host)), self.logs[host], f"{seed}:{host}") for host in range(hosts)
        ]
        self._timers: list[int | None] = [None] * hosts
        self._routes: dict[str, tuple[int, int, int, int]] = {}
        self._streams: dict[tuple[int, int], Callable[[], None]] = {}
        self._known: set[tuple[int, int]] = set()

    def port(self, kind: str, plane: int, a: int, b: int) -> Port:
        found = self.ports.get((kind, plane, a, b))
        if found is None:
            switches = self.switches
            trim = {"nic": None, "last": switches.trim_last_hop}.get(kind, switches.trim)
            ecn = switches.ecn and kind in ("up", "down")
            found = Port(self, self._rate_bps, trim=trim, ecn=ecn, last_hop=kind == "last")
            self.ports[kind, plane, a, b] = found
        return found

    def _paths(self, source: int, target: int) -> list[tuple[int, int, str]]:
        local = source // self.hosts_per_t0 == target // self.hosts_per_t0
        found = []
        for plane in range(self.planes):
            for uplink in range(1 if local else self.uplinks):
                address = f"5f00:{plane}:{uplink:x}:{source:x}:{target:x}::"
                self._routes[address] = (plane, -1 if local else uplink, source, target)
                found.append((plane << 16 | uplink, plane, address))
        return found

    def stream(self, source: int, target: int, *, message: int, depth: int = 2) -> None:
        """Messages from `source` to `target`, `depth` outstanding, from now on."""
        for here, there in ((source, target), (target, source)):
            if (here, there) in self._known:
                continue
            self._known.add((here, there))
            self.ends[here].add_peer(there, inner(there), self._paths(here, there))
        one, other = self.ends[source].create_qp(target), self.ends[target].create_qp(source)
        self.ends[source].connect_qp(one.number, other.number, other.psn)
        self.ends[target].connect_qp(other.number, one.number, one.psn)
        region = self.ends[target].register(memoryview(bytearray(message)))
        data = memoryview(bytes(message))

        def post() -> None:
            self.ends[source].post_write(one.number, 0, data, region.address, region.rkey, 7, self.now)

        self._streams[source, one.number] = post
        for _ in range(depth):
            post()
        self.at(self.now, self._flush, source)

    def at(self, when: int, what: Callable[..., None], *arguments: Any) -> None:
        self._order += 1
        heapq.heappush(self._events, (when, self._order, what, arguments))

    def arrive(self, frame: Frame) -> None:
        self.ends[frame.target].receive(memoryview(frame.data), frame.tclass, self.now)
        self._flush(frame.target)

    def _flush(self, host: int) -> None:
        end = self.ends[host]
        while True:
            for datagram in end.transmit(self.now):
                self._send(datagram)
            events = [event for event in end.events() if isinstance(event, WriteComplete)]
            for event in events:
                self._streams[host, event.qp]()
            if not events:
                break
        wake = end.next_timer()
        if wake is not None and (self._timers[host] is None or wake < (self._timers[host] or 0)):
            wake = max(wake, self.now)
            self._timers[host] = wake
            self.at(wake, self._timer, host, wake)

    def _timer(self, host: int, due: int) -> None:
        if self._timers[host] == due:
            self._timers[host] = None
            self.ends[host].on_timer(self.now)
            self._flush(host)

    def _send(self, datagram: Datagram) -> None:
        destination, tclass, buffers = datagram
        plane, uplink, source, target = self._routes[destination[0]]
        group = self.hosts_per_t0
        hops = deque([self.port("nic", plane, source, 0)])
        if uplink >= 0:
            hops += [
                self.port("up", plane, source // group, uplink),
                self.port("down", plane, uplink, target // group),
            ]
        hops.append(self.port("last", plane, target, 0))
        hops.popleft().offer(Frame(b"".join(buffers), tclass, hops, target))

    def run(self, for_ns: int) -> None:
        stop = self.now + for_ns
        while self._events and self._events[0][0] <= stop:
            when, _, what, arguments = heapq.heappop(self._events)
            self.now = when
            what(*arguments)
        self.now = stop

    def received(self, host: int, since: int = 0) -> Sequence[tuple[int, ...]]:
        """Rows of the data packets that `host` has taken whole, once each."""
        return [row for row in self.logs[host].arrivals if row[0] >= since and not row[5] & (2 | 8)]

    def line_bytes(self, for_ns: int) -> float:
        """Payload bytes that all ports of a host carry in that time."""
        return self.planes * self._rate_bps / 8 * self.payload / self.frame * for_ns / S

    def total(self, kind: str, what: str) -> int:
        return sum(port.counts[what] for (name, *_), port in self.ports.items() if name == kind)
