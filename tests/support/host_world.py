"""Two hosts' sessions in one process under a virtual clock: the runner's ends of their channels, and a wire between them."""

from __future__ import annotations

import json
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.host.control import Control
from testbed.host.plan import parse
from testbed.host.session import Session
from tests.support.host_fakes import FakeEndpoint, make_nic
from tests.support.host_plans import pair_plan, read_records

MS = 1_000_000
ONE_WAY_NS = 5 * MS


@dataclass
class Host:
    session: Session
    runner: socket.socket

    @property
    def endpoint(self) -> FakeEndpoint:
        assert isinstance(self.session.endpoint, FakeEndpoint)
        return self.session.endpoint

    def told(self) -> list[dict[str, Any]]:
        try:
            data = self.runner.recv(1 << 20, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return []
        return [json.loads(line) for line in data.splitlines()]


class World:
    """Both hosts, a clock, and a wire that takes `ONE_WAY_NS`."""

    def __init__(self, directory: Path, **settings: Any) -> None:
        self.now = 1_000 * MS
        self.wire: list[tuple[int, int, bytes, int]] = []  # (arrival, host, packet, class)
        self.hosts: list[Host] = []
        for index in (0, 1):
            ours, theirs = socket.socketpair()
            plan = parse(pair_plan(directory, index, **settings))
            session = Session(plan, Control(ours), make_nic, self.now)
            session.announce()
            self.hosts.append(Host(session, theirs))

    def connect(self) -> None:
        ready = [host.told()[0]["flows"] for host in self.hosts]
        for host, other in zip(self.hosts, reversed(ready), strict=True):
            self.say(host, {"type": "connect", "flows": other})
            assert host.told() == [{"type": "connected"}]

    def start(self) -> int:
        t0 = self.now + 20 * MS
        for host in self.hosts:
            self.say(host, {"type": "start", "t0_ns": t0})
        return t0

    def say(self, host: Host, message: dict[str, Any]) -> None:
        host.session.on_message(message, self.now)
        self.send()

    def run(self, duration_ns: int) -> None:
        """What the loop does, with the next thing that happens found instead of waited for."""
        end = self.now + duration_ns
        while True:
            due = [arrival for arrival, *_ in self.wire] + [host.session.deadline for host in self.hosts]
            if min(due) > end:
                self.now = end
                return
            self.now = max(self.now, min(due))
            arrived = [entry for entry in self.wire if entry[0] <= self.now]
            self.wire = [entry for entry in self.wire if entry[0] > self.now]
            for _, target, packet, tclass in arrived:
                self.hosts[target].session.endpoint.receive(memoryview(packet), tclass, self.now)
            for host in self.hosts:
                if host.session.deadline <= self.now:
                    host.session.on_timer(self.now)
                host.session.on_events(self.now)
            self.send()

    def send(self) -> None:
        for index, host in enumerate(self.hosts):
            for _, tclass, buffers in host.session.endpoint.transmit(self.now):
                self.wire.append((self.now + ONE_WAY_NS, 1 - index, b"".join(buffers), tclass))

    def finish(self) -> None:
        for host in self.hosts:
            host.session.close()

    def records(self, index: int, table: str) -> Any:
        return read_records(Path(self.hosts[index].session.plan.records) / f"{table}.rec")
