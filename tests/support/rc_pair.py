"""Two endpoints of the baseline under a virtual clock, and a network that loses, reorders, duplicates, corrupts and marks."""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

from testbed.transport.common.codepoints import ECN_CE
from testbed.transport.rc import (
    Endpoint,
    EndpointConfig,
    ImmediateReceived,
    PortConfig,
    QpLimits,
    QueuePairError,
    WriteComplete,
    wire,
)

MS = 1_000_000
PAYLOAD = 1024


class Log:
    """A Recorder that keeps rows in the order of its arguments."""

    decision = None

    def __init__(self) -> None:
        self.packets: list[tuple[int, ...]] = []
        self.arrivals: list[tuple[int, ...]] = []
        self.ports: list[tuple[int, ...]] = []

    def packet(self, *row: int) -> None:
        self.packets.append(row)

    def received(self, *row: int) -> None:
        self.arrivals.append(row)

    def ev_state(self, *row: int) -> None:
        raise AssertionError("rc has no EV states")

    def port_state(self, *row: int) -> None:
        self.ports.append(row)

    def plane_state(self, *row: int) -> None:
        raise AssertionError("rc knows nothing of its peers' ports")

    def fates(self) -> Counter[int]:
        return Counter(row[7] for row in self.packets)


def inner(host: int) -> bytes:
    """A host's own address."""
    return bytes.fromhex("fd00") + bytes(12) + host.to_bytes(2, "big")


class Verdict:
    """What happens to a packet: copies arrive after these delays, marked or with a byte changed."""

    def __init__(self, *delays_ns: int, mark: bool = False, corrupt: bool = False) -> None:
        self.delays_ns = delays_ns
        self.mark = mark
        self.corrupt = corrupt


Rule = Callable[[int, bytes, int], Verdict]  # source, packet, now


def opcode(packet: bytes) -> int:
    return packet[wire.BTH_AT]


def is_data(packet: bytes) -> bool:
    return opcode(packet) in wire.WRITES


def psn(packet: bytes) -> int:
    return int.from_bytes(packet[wire.BTH_AT + 9 : wire.BTH_AT + 12], "big")


class Pair:
    """Hosts 0 and 1 over `planes` x `uplinks` equal-cost paths."""

    def __init__(
        self,
        *,
        planes: int = 4,
        uplinks: int = 6,
        delay_ns: int = 20 * MS,
        rate_bps: int = 5_000_000,
        seed: int = 1,
        cc: str = "dcqcn",
        window_bytes: int = 0,
        qps: int = 1,
        limits: QpLimits | None = None,
        ack_bytes: int = 4 * PAYLOAD,
    ) -> None:
        self.now = 1_000 * MS
        self.delay_ns = delay_ns
        self.rule: Rule = lambda source, packet, now: Verdict(self.delay_ns)
        self.rng = random.Random(seed)
        self.log = (Log(), Log())
        self.sent: list[tuple[int, int, bytes]] = []  # (time, source, packet)
        self.events: list[tuple[int, Any]] = []
        self._queue: list[tuple[int, int, int, bytes, int]] = []
        self._order = 0
        self.ends = tuple(
            Endpoint(
                EndpointConfig(
                    host=host,
                    inner=inner(host),
                    payload=PAYLOAD,
                    ack_bytes=ack_bytes,
                    rtt_base_ns=2 * delay_ns,
                    ports=tuple(PortConfig(plane, rate_bps) for plane in range(planes)),
                    overhead_bytes=24,
                    cc=cc,
                    window_bytes=window_bytes,
                    limits=limits or QpLimits(),
                ),
                self.log[host],
                seed * 2 + host,
            )
            for host in (0, 1)
        )
        for host, end in enumerate(self.ends):
            paths = [(plane << 16 | up, plane, f"5f00:{plane}:{up:x}::") for plane in range(planes) for up in range(uplinks)]
            end.add_peer(1 - host, inner(1 - host), paths)
        self.pairs = [tuple(end.create_qp(1 - host) for host, end in enumerate(self.ends)) for _ in range(qps)]
        for pair in self.pairs:
            for host, end in enumerate(self.ends):
                end.connect_qp(pair[host].number, pair[1 - host].number, pair[1 - host].psn)
        self.memory = (bytearray(1 << 20), bytearray(1 << 20))
        self.regions = tuple(end.register(memoryview(buffer)) for end, buffer in zip(self.ends, self.memory, strict=True))

    def write(
        self, source: int, data: bytes, at: int = 0, *, wr_id: int = 0, immediate: int | None = None, qp: int = 0
    ) -> None:
        region = self.regions[1 - source]
        number = self.pairs[qp][source].number
        self.ends[source].post_write(number, wr_id, memoryview(data), region.address + at, region.rkey, immediate, self.now)
        self.flush()

    def flush(self) -> None:
        for host, end in enumerate(self.ends):
            for _, tclass, buffers in end.transmit(self.now):
                packet = b"".join(buffers)
                self.sent.append((self.now, host, packet))
                verdict = self.rule(host, packet, self.now)
                for delay in verdict.delays_ns:
                    changed = packet
                    if verdict.corrupt:
                        place = self.rng.randrange(wire.BODY_AT, len(packet))
                        changed = packet[:place] + bytes([packet[place] ^ 0x20]) + packet[place + 1 :]
                    self._order += 1
                    outer = tclass | ECN_CE if verdict.mark and tclass & 3 else tclass
                    heapq.heappush(self._queue, (self.now + delay, self._order, 1 - host, changed, outer))

    def run(self, duration_ns: int, until: Callable[[], bool] = lambda: False) -> bool:
        """Let time pass; whether `until` came true."""
        stop, turns = self.now + duration_ns, 0
        while not until():
            due = [at for end in self.ends if (at := end.next_timer()) is not None] + [entry[0] for entry in self._queue[:1]]
            if not due or min(due) > stop:
                self.now = stop
                return until()
            turns = turns + 1 if min(due) <= self.now else 0
            assert turns < 10_000, "time stands still"
            self.now = max(self.now, min(due))
            while self._queue and self._queue[0][0] <= self.now:
                _, _, target, packet, tclass = heapq.heappop(self._queue)
                self.ends[target].receive(memoryview(packet), tclass, self.now)
            for host, end in enumerate(self.ends):
                at = end.next_timer()
                if at is not None and at <= self.now:
                    end.on_timer(self.now)
                self.events += [(host, event) for event in end.events()]
            self.flush()
        return True

    def completed(self, host: int) -> list[int]:
        return [event.wr_id for end, event in self.events if end == host and isinstance(event, WriteComplete)]

    def immediates(self, host: int) -> list[int]:
        return [event.value for end, event in self.events if end == host and isinstance(event, ImmediateReceived)]

    def errors(self) -> list[str]:
        return [event.reason for _, event in self.events if isinstance(event, QueuePairError)]

    def data_sent(self, source: int) -> list[int]:
        """Wire PSNs of data packets in the order sent."""
        return [psn(packet) for _, host, packet in self.sent if host == source and is_data(packet)]
