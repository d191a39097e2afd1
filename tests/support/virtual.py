"""A virtual clock and a hostile network for sans-IO endpoints: time jumps to the next thing that happens.

Every path can lose, delay, reorder, duplicate, corrupt, trim and mark; nothing sleeps, and a seed repeats a run exactly.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from testbed.transport.common.codepoints import ECN_CE, Dscp
from testbed.transport.mrc import (
    Endpoint,
    EndpointConfig,
    Event,
    ImmediateReceived,
    PortConfig,
    QpLimits,
    Trace,
    WriteComplete,
)
from testbed.transport.mrc.codepoints import Opcode
from testbed.transport.mrc.packets import BTH_OFFSET, Datagram

MS = 1_000_000
TRIM_INNER = 128 - 14 - 40  # what a 128-byte trim leaves of the inner packet
DATA = range(Opcode.WRITE_FIRST, Opcode.WRITE_ONLY_IMM + 1)


@dataclass
class Packet:
    """One packet in flight, as a path's rule sees it."""

    source: int
    ev: int
    tclass: int
    data: bytes
    now: int

    @property
    def opcode(self) -> int:
        return self.data[BTH_OFFSET]

    @property
    def is_data(self) -> bool:
        return self.opcode in DATA

    @property
    def plane(self) -> int:
        return self.ev >> 16

    @property
    def psn(self) -> int:
        return int.from_bytes(self.data[BTH_OFFSET + 9 : BTH_OFFSET + 12], "big")


@dataclass
class Verdict:
    """What happens to a packet. `delay_ns` None: lost."""

    delay_ns: int | None
    copies: int = 1
    trim: Dscp | None = None
    mark: bool = False
    corrupt: bool = False


Rule = Callable[[Packet], Verdict]


def inner(host: int) -> bytes:
    return bytes.fromhex("fd00") + bytes(12) + host.to_bytes(2, "big")


class Pair:
    """Two connected endpoints, 0 and 1, over `planes` x `uplinks` paths, and the network between them."""

    def __init__(
        self,
        *,
        planes: int = 4,
        uplinks: int = 6,
        delay_ns: int = 20 * MS,
        rate_bps: int = 5_000_000,
        window_frames: int = 40,
        seed: int = 1,
        policy: str = "mrc",
        own_policy: Callable[[Any], object] | None = None,
        payload: int = 1024,
        sack_bytes: int = 4096,
        active_evs: int = 0,
        probes: bool = True,
        probe_interval_ns: int = 0,
        probe_answers: int = 3,
        limits: QpLimits | None = None,
        qps: int = 1,
    ) -> None:
        self.now = 1_000 * MS
        self.delay_ns = delay_ns
        self.rule: Rule = lambda packet: Verdict(self.delay_ns)
        self.log = (Trace(), Trace())
        self.rng = random.Random(seed)
        self.events: list[tuple[int, Event]] = []
        self.sent: Counter[int] = Counter()
        self.down: set[tuple[int, int]] = set()  # (host, plane) of ports without carrier
        self._queue: list[tuple[int, int, int, int, bytes, int]] = []
        self._order = 0
        self._ev: dict[tuple[int, str], int] = {}
        self.ends = tuple(
            Endpoint(
                EndpointConfig(
                    host=host,
                    inner=inner(host),
                    payload=payload,
                    policy=policy,
                    own_policy=own_policy,
                    window_bytes=window_frames * payload,
                    sack_bytes=sack_bytes,
                    rtt_base_ns=2 * delay_ns,
                    probes=probes,
                    probe_interval_ns=probe_interval_ns,
                    probe_answers=probe_answers,
                    reshuffle=True,
                    ports=tuple(PortConfig(plane, rate_bps) for plane in range(planes)),
                    overhead_bytes=24,
                    active_evs=active_evs,
                    limits=limits or QpLimits(),
                ),
                self.log[host],
                seed * 2 + host,
            )
            for host in (0, 1)
        )
        self.paths = [(plane << 16 | uplink, plane) for plane in range(planes) for uplink in range(uplinks)]
        for host, end in enumerate(self.ends):
            routes = [(ev, plane, f"5f00:{plane}:{ev & 0xFFFF:x}:{1 - host}::") for ev, plane in self.paths]
            end.add_peer(1 - host, inner(1 - host), routes)
            self._ev.update({(host, address): ev for ev, _, address in routes})
        pairs = [tuple(end.create_qp(1 - host) for host, end in enumerate(self.ends)) for _ in range(qps)]
        for pair in pairs:
            for host, end in enumerate(self.ends):
                end.connect_qp(pair[host].number, pair[1 - host].number, pair[1 - host].psn)
        self.qps = pairs[0]
        self.all_qps = pairs
        self.memory = (bytearray(1 << 20), bytearray(1 << 20))
        self.regions = tuple(end.register(memoryview(buffer)) for end, buffer in zip(self.ends, self.memory, strict=True))

    def write(self, source: int, data: bytes, offset: int = 0, *, wr_id: int = 0, immediate: int | None = None) -> None:
        region = self.regions[1 - source]
        end, qp = self.ends[source], self.qps[source]
        end.post_write(qp.number, wr_id, memoryview(data), region.address + offset, region.rkey, immediate, self.now)
        self.flush(source)

    def port(self, host: int, plane: int, *, up: bool) -> None:
        """A NIC port loses or gets its carrier, and its host learns of it. What arrives at a dead port is lost."""
        (self.down.discard if up else self.down.add)((host, plane))
        self.ends[host].port_state(plane, up, self.now)
        self.flush(host)

    def flush(self, host: int) -> None:
        for datagram in self.ends[host].transmit(self.now):
            self._carry(host, datagram)
        self.events.extend((host, event) for event in self.ends[host].events())

    def _carry(self, source: int, datagram: Datagram) -> None:
        destination, tclass, buffers = datagram
        data = b"".join(buffers)
        ev = self._ev[source, destination[0]]
        self.sent[ev] += 1
        packet = Packet(source, ev, tclass, data, self.now)
        verdict = self.rule(packet)
        if (source, packet.plane) in self.down:
            return
        if verdict.delay_ns is None:
            return
        if verdict.mark and tclass & 3:
            tclass |= ECN_CE
        if verdict.trim is not None and packet.is_data:
            data, tclass = data[:TRIM_INNER], verdict.trim << 2
        if verdict.corrupt:
            place = self.rng.randrange(len(data))
            data = data[:place] + bytes([data[place] ^ 0x10]) + data[place + 1 :]
        for copy in range(verdict.copies):
            self._order += 1
            due = self.now + verdict.delay_ns + copy * MS
            heapq.heappush(self._queue, (due, self._order, 1 - source, packet.plane, data, tclass))

    def step(self) -> bool:
        """Let the next thing happen; False when nothing ever will."""
        timers = [(at, host) for host, end in enumerate(self.ends) if (at := end.next_timer()) is not None]
        first = min(timers, default=None)
        if self._queue and (first is None or self._queue[0][0] <= first[0]):
            due, _, host, plane, data, tclass = heapq.heappop(self._queue)
            self.now = max(self.now, due)
            if (host, plane) in self.down:
                return True
            self.ends[host].receive(memoryview(data), tclass, self.now)
        elif first is not None:
            self.now = max(self.now, first[0])
            host = first[1]
            self.ends[host].on_timer(self.now)
        else:
            return False
        self.flush(host)
        return True

    def run(self, for_ns: int, *, until: Callable[[], bool] = lambda: False) -> bool:
        """Run for a time or until a condition holds; returns whether it does."""
        stop = self.now + for_ns
        steps, since = 0, self.now
        while self.now < stop and not until():
            if not self.step():
                break
            steps = steps + 1 if self.now == since else 0
            since = self.now
            assert steps < 10_000, "time stands still: a timer that is due does not go away"
        return until()

    def completed(self, host: int) -> list[int]:
        return [event.wr_id for end, event in self.events if end == host and isinstance(event, WriteComplete)]

    def immediates(self, host: int) -> list[int]:
        return [event.value for end, event in self.events if end == host and isinstance(event, ImmediateReceived)]
