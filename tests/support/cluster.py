"""All hosts of a scenario in one process, under a virtual clock, over a wire that takes `ONE_WAY_NS`: the host room without a
network. The transport is `host_fakes`', or with `real=True` the scenario's own.
"""

from __future__ import annotations

import heapq
import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from testbed.host import nic
from testbed.host.control import Control
from testbed.host.nic import MakeNic
from testbed.host.plan import parse
from testbed.host.session import Session
from testbed.model import load
from testbed.model.flows import flows
from testbed.model.topology import build
from testbed.run.plan import host_plans
from tests.support.host_fakes import HEADER, make_nic
from tests.support.host_plans import read_records

MS = 1_000_000
ONE_WAY_NS = 5 * MS


class Cluster:
    """`damage` may change a packet on its way: called with (target, packet), it returns the packet or None."""

    def __init__(self, directory: Path, scenario: str, *, real: bool = False) -> None:
        self.now = 1_000 * MS
        self.scenario = load.load_text(scenario, "cluster.yaml")
        topology = build(self.scenario.topology)
        self.flows = flows(self.scenario, topology)
        self.sessions: dict[int, Session] = {}
        self._killed: dict[int, Session] = {}
        self.channels: list[socket.socket] = []
        self.controls: list[Control] = []
        self.damage: Any = lambda target, packet: packet
        self._make: MakeNic = nic.build if real else make_nic
        self._by_address: dict[bytes, int] | None = {} if real else None
        self._wire: list[tuple[int, int, int, bytes, int]] = []
        self._order = 0
        for raw in host_plans(self.scenario, topology, self.flows, directory):
            ours, theirs = socket.socketpair()
            theirs.setblocking(False)
            self.channels.append(theirs)
            self.controls.append(Control(ours))
            plan = parse(json.loads(json.dumps(raw)))
            self.sessions[plan.index] = Session(plan, self.controls[-1], self._make, self.now)
            if self._by_address is not None:
                self._by_address[plan.inner] = plan.index

    def connect(self) -> None:
        ends: dict[int, dict[int, list[dict[str, Any]]]] = {}
        for index, session in self.sessions.items():
            of_host = ends[index] = {}
            for entry in session._ready:
                of_host.setdefault(int(entry["flow"] or 0), []).append(entry)
        for index, session in self.sessions.items():
            mine = [flow for flow in self.flows if index in (flow.source, flow.target)]
            others = [end for flow in mine for end in ends[flow.target if flow.source == index else flow.source][flow.id]]
            session.on_message({"type": "connect", "flows": others}, self.now)

    def say(self, message: dict[str, Any]) -> None:
        for session in self.sessions.values():
            session.on_message(message, self.now)
        self._send()

    def run(self, duration_ns: int) -> None:
        """What the hosts' loops do, with the next thing that happens found instead of waited for."""
        end = self.now + duration_ns
        while True:
            sessions = self.sessions.values()
            timers = [at for session in sessions if (at := session.endpoint.next_timer()) is not None]
            due = min([session.deadline for session in sessions] + timers + [entry[0] for entry in self._wire[:1]])
            if due > end:
                self.now = end
                return
            self.now = max(self.now, due)
            while self._wire and self._wire[0][0] <= self.now:
                _, _, target, packet, tclass = heapq.heappop(self._wire)
                if target in self.sessions:
                    self.sessions[target].endpoint.receive(memoryview(packet), tclass, self.now)
            for session in self.sessions.values():
                timer = session.endpoint.next_timer()
                if timer is not None and timer <= self.now:
                    session.endpoint.on_timer(self.now)
                if session.deadline <= self.now:
                    session.on_timer(self.now)
                session.on_events(self.now)
            self._send()
            for channel in self.channels:
                try:
                    channel.recv(1 << 20)
                except BlockingIOError:
                    continue

    def kill(self, host: int) -> None:
        """Nothing of this host ever happens again; what it had recorded stays."""
        self._killed[host] = self.sessions.pop(host)

    def records(self, host: int, table: str) -> Any:
        """A table as it is on the disk; while the host lives, up to its last flush."""
        return read_records(Path((self.sessions | self._killed)[host].plan.records) / f"{table}.rec")

    def close(self) -> None:
        for session in (self.sessions | self._killed).values():
            session.close()

    def _target(self, packet: bytes) -> int:
        """The fake's header says it; a real packet's inner destination address does."""
        return int(HEADER.unpack_from(packet)[0]) if self._by_address is None else self._by_address[packet[24:40]]

    def _send(self) -> None:
        for session in self.sessions.values():
            for _, tclass, buffers in session.endpoint.transmit(self.now):
                packet = b"".join(buffers)
                target = self._target(packet)
                packet = self.damage(target, packet)
                if packet is None:
                    continue
                self._order += 1
                heapq.heappush(self._wire, (self.now + ONE_WAY_NS, self._order, target, packet, tclass))


@contextmanager
def cluster(directory: Path, scenario: str, *, real: bool = False) -> Iterator[Cluster]:
    """A connected cluster whose records are closed at the end."""
    made = Cluster(directory, scenario, real=real)
    try:
        made.connect()
        yield made
        made.close()
    finally:
        for control in made.controls:
            control.close()
        for channel in made.channels:
            channel.close()
