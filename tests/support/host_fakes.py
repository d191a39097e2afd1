"""A transport small enough to see through, for tests of the host only: no loss recovery, one packet after another.

Same API as `testbed.transport.mrc`. A packet is `HEADER + payload`, an acknowledgement is a header without payload.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from testbed.host.nic import Nic
from testbed.host.plan import HostPlan
from testbed.host.rawsocket import Datagram
from testbed.host.recorder import Recorder

# target host, target QP, PSN, EV, region key, address, immediate, kind
HEADER = struct.Struct("<HIIIIQIB")
DATA, DATA_LAST, DATA_LAST_IMM, ACK = range(4)
REGION_BASE = 1 << 32


class WriteComplete(NamedTuple):
    qp: int
    wr_id: int
    now: int


class ImmediateReceived(NamedTuple):
    qp: int
    value: int
    now: int


class QueuePairError(NamedTuple):
    qp: int
    reason: str


class FakeRegion(NamedTuple):
    rkey: int
    address: int
    length: int


@dataclass
class FakeWindow:
    limit: int = 8
    inflight: int = 0


@dataclass
class FakeRequester:
    sent_bytes: dict[int, int] = field(default_factory=dict)
    rtt_ns: dict[int, int] = field(default_factory=dict)
    window: FakeWindow = field(default_factory=FakeWindow)


class FakePair:
    def __init__(self, number: int, peer: int) -> None:
        self.number = number
        self.psn = 100 * number
        self.peer = peer
        self.remote = 0
        self.next_psn = self.psn
        self.queue: deque[tuple[int, bytes, memoryview, bool, int]] = deque()  # (wr_id, header, payload, last, psn)
        self.out: dict[int, tuple[int, int, int, bool, int]] = {}  # psn -> (sent, ev, wr_id, last, size)
        self.requester = FakeRequester()


class FakeEndpoint:
    """Up to `window` packets of each QP in flight, spread over the paths in turn."""

    def __init__(self, index: int, payload: int, recorder: Recorder) -> None:
        self.index = index
        self.payload = payload
        self.recorder = recorder
        self.denied: list[tuple[int, int]] = []
        self.undeniable = ""  # why not, where `deny` is to be refused
        self.regions: dict[int, memoryview] = {}
        self.pairs: dict[int, FakePair] = {}
        self.paths: dict[int, Sequence[tuple[int, int, str]]] = {}
        self.pending: list[Any] = []
        self.acks: list[Datagram] = []
        self.turn = 0
        self.posted: list[tuple[int, int, int, int | None, int]] = []
        self.timer: int | None = None
        self.placed_bytes = 0
        self.acked_bytes = 0
        self.sent = 0
        self.flushed = False

    def register(self, buffer: memoryview) -> FakeRegion:
        rkey = len(self.regions) + 1
        self.regions[rkey] = buffer
        return FakeRegion(rkey, rkey * REGION_BASE, len(buffer))

    def add_peer(self, index: int, inner: bytes, paths: Sequence[tuple[int, int, str]]) -> None:
        assert len(inner) == 16
        self.paths[index] = paths

    def deny(self, peer_index: int, ev: int, now: int) -> None:
        if self.undeniable:
            raise ValueError(self.undeniable)
        self.denied.append((peer_index, ev))

    def allow(self, peer_index: int, ev: int, now: int) -> None:
        self.denied.remove((peer_index, ev))

    def create_qp(self, peer_index: int) -> FakePair:
        pair = FakePair(len(self.pairs) + 3, peer_index)
        self.pairs[pair.number] = pair
        return pair

    def connect_qp(self, number: int, remote_number: int, remote_psn: int) -> None:
        self.pairs[number].remote = remote_number
        assert remote_psn >= 0

    def post_write(
        self, number: int, wr_id: int, data: memoryview, remote_address: int, rkey: int, immediate: int | None, now: int
    ) -> None:
        pair = self.pairs[number]
        self.posted.append((number, wr_id, remote_address, immediate, now))
        for at in range(0, len(data), self.payload):
            piece = data[at : at + self.payload]
            last = at + self.payload >= len(data)
            kind = DATA if not last else DATA_LAST if immediate is None else DATA_LAST_IMM
            psn = pair.next_psn
            pair.next_psn += 1
            header = HEADER.pack(pair.peer, pair.remote, psn, 0, rkey, remote_address + at, immediate or 0, kind)
            pair.queue.append((wr_id, header, piece, last, psn))

    def port_state(self, plane: int, up: bool, now: int) -> None:
        self.recorder.port_state(now, plane, up)

    def receive(self, packet: memoryview, tclass: int, now: int) -> None:
        target, qp, psn, ev, rkey, address, immediate, kind = HEADER.unpack_from(packet)
        if target != self.index:
            return
        pair = self.pairs[qp]
        plane = next(plane for path_ev, plane, _ in self.paths[pair.peer] if path_ev == ev)
        if kind == ACK:
            sent, sent_ev, wr_id, last, size = pair.out.pop(psn)
            self.acked_bytes += size
            pair.requester.window.inflight -= 1
            self.recorder.packet(sent, now, qp, psn, sent_ev, size, 0, 1, 0, int(tclass & 3 == 3))
            if last:
                self.pending.append(WriteComplete(qp, wr_id, now))
            return
        payload = packet[HEADER.size :]
        start = address - rkey * REGION_BASE
        self.regions[rkey][start : start + len(payload)] = payload
        self.placed_bytes += len(payload)
        self.recorder.received(now, qp, psn, ev, len(payload), 0, plane)
        if kind == DATA_LAST_IMM:
            self.pending.append(ImmediateReceived(qp, immediate, now))
        back = next(address for path_ev, _, address in self.paths[pair.peer] if path_ev == ev)
        header = HEADER.pack(pair.peer, pair.remote, psn, ev, 0, 0, 0, ACK)
        self.acks.append(((back, 0, 0, 0), 46 << 2, [header]))

    def transmit(self, now: int) -> list[Datagram]:
        ready, self.acks = self.acks, []
        for pair in self.pairs.values():
            while pair.queue and len(pair.out) < pair.requester.window.limit:
                wr_id, header, piece, last, psn = pair.queue.popleft()
                paths = self.paths[pair.peer]
                ev, plane, address = paths[self.turn % len(paths)]
                self.turn += 1
                fields = list(HEADER.unpack(header))
                fields[3] = ev
                pair.out[psn] = (now, ev, wr_id, last, len(piece))
                pair.requester.window.inflight += 1
                pair.requester.sent_bytes[plane] = pair.requester.sent_bytes.get(plane, 0) + len(piece)
                self.sent += 1
                ready.append(((address, 0, ev & 0xFFFF, 0), 18, [HEADER.pack(*fields), piece]))
        return ready

    def next_timer(self) -> int | None:
        return self.timer

    def on_timer(self, now: int) -> None:
        assert self.timer is not None
        assert now >= self.timer
        self.timer = None

    def events(self) -> list[Any]:
        drained, self.pending = self.pending, []
        return drained

    def flush(self) -> None:
        self.flushed = True

    def statistics(self) -> dict[str, int]:
        return {
            "placed_bytes": self.placed_bytes,
            "packets_sent": self.sent,
            "retransmissions": 0,
        }


def make_nic(plan: HostPlan, recorder: Recorder) -> Nic:
    endpoint = FakeEndpoint(plan.index, plan.payload, recorder)
    for peer in plan.peers:
        endpoint.add_peer(peer.index, peer.inner, peer.paths)
    return Nic(endpoint, WriteComplete, ImmediateReceived, QueuePairError)
