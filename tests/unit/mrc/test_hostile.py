"""Generated histories over a hostile network: every byte arrives once, in place, and the endpoint never hangs.

`HISTORIES=50000 pytest tests/unit/mrc/test_hostile.py` runs more of them than the default.
"""

from __future__ import annotations

import os
import random

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from testbed.transport.mrc.codepoints import Dscp
from testbed.transport.mrc.ev import TRANSITIONS, Cause, EvState
from testbed.transport.mrc.events import Fate
from testbed.transport.mrc.planes import PLANE_TRANSITIONS, PlaneCause, PlaneState
from tests.support.virtual import MS, Packet, Pair, Verdict

HISTORIES = int(os.environ.get("HISTORIES", "250"))
PAYLOAD = 256
HEAL_NS = 60_000 * MS


class HostileNetwork(RuleBasedStateMachine):
    """Two endpoints write to each other while ports and paths die, and packets are lost, late, doubled, corrupt and cut."""

    @initialize(
        seed=st.integers(0, 2**32 - 1),
        planes=st.integers(1, 4),
        uplinks=st.integers(1, 4),
        window=st.integers(1, 64),
        policy=st.sampled_from(["mrc", "oblivious", "single_path"]),
        sack=st.sampled_from([1024, 4096, 16384]),
    )
    def build(self, seed: int, planes: int, uplinks: int, window: int, policy: str, sack: int) -> None:
        self.rng = random.Random(seed)
        self.pair = Pair(
            planes=planes,
            uplinks=uplinks,
            window_frames=window,
            policy=policy,
            payload=PAYLOAD,
            sack_bytes=sack,
            seed=seed,
        )
        self.loss = self.duplicate = self.corrupt = self.trim = self.mark = 0.0
        self.extra: dict[int, int] = {}
        self.dead: set[tuple[int, int]] = set()
        self.silent: set[int] = set()
        self.written: tuple[list[tuple[int, bytes]], list[tuple[int, bytes]]] = ([], [])
        self.next_offset = [0, 0]
        self.pair.rule = self.decide
        self.losses = 0

    def decide(self, packet: Packet) -> Verdict:
        if packet.is_data:
            planes = self.pair.qps[packet.source].peer.paths.by_plane
            assert planes[packet.plane].state is PlaneState.OPEN, "data on a plane that is not in use"
        draw = self.rng.random
        if packet.source in self.silent or (packet.source, packet.ev) in self.dead or draw() < self.loss:
            self.losses += 1
            return Verdict(None)
        delay = self.pair.delay_ns + self.extra.get(packet.ev, 0)
        trim = self.rng.choice((Dscp.TRIMMED, Dscp.TRIMMED_LASTHOP)) if draw() < self.trim else None
        return Verdict(
            delay, copies=2 if draw() < self.duplicate else 1, trim=trim, mark=draw() < self.mark, corrupt=draw() < self.corrupt
        )

    @rule(host=st.integers(0, 1), size=st.integers(1, 20_000), immediate=st.booleans())
    def write(self, host: int, size: int, immediate: bool) -> None:
        if self.next_offset[host] + size > len(self.pair.memory[1 - host]):
            return
        data = self.rng.randbytes(size)
        number = len(self.written[host])
        self.pair.write(host, data, self.next_offset[host], wr_id=number, immediate=number if immediate else None)
        self.written[host].append((self.next_offset[host], data))
        self.next_offset[host] += size

    @rule(ms=st.integers(1, 400))
    def wait(self, ms: int) -> None:
        self.pair.run(ms * MS)

    @rule(
        loss=st.sampled_from([0.0, 0.01, 0.1, 0.3]),
        duplicate=st.sampled_from([0.0, 0.05]),
        corrupt=st.sampled_from([0.0, 0.02]),
        trim=st.sampled_from([0.0, 0.1]),
        mark=st.sampled_from([0.0, 0.2]),
    )
    def weather(self, loss: float, duplicate: float, corrupt: float, trim: float, mark: float) -> None:
        self.loss, self.duplicate, self.corrupt, self.trim, self.mark = loss, duplicate, corrupt, trim, mark

    @rule(data=st.data(), ms=st.integers(0, 100))
    def slow(self, data: st.DataObject, ms: int) -> None:
        ev, _ = data.draw(st.sampled_from(self.pair.paths))
        self.extra[ev] = ms * MS

    @rule(data=st.data(), host=st.integers(0, 1))
    def one_way_death(self, data: st.DataObject, host: int) -> None:
        ev, _ = data.draw(st.sampled_from(self.pair.paths))
        self.dead.add((host, ev))

    @rule(host=st.integers(0, 1))
    def silence(self, host: int) -> None:
        self.silent.add(host)

    @rule(data=st.data(), host=st.integers(0, 1), up=st.booleans())
    def port(self, data: st.DataObject, host: int, up: bool) -> None:
        _, plane = data.draw(st.sampled_from(self.pair.paths))
        self.pair.port(host, plane, up=up)

    @rule()
    def repair(self) -> None:
        self.dead.clear()
        self.silent.clear()
        for host, plane in sorted(self.pair.down):
            self.pair.port(host, plane, up=True)

    @invariant()
    def transitions_are_legal(self) -> None:
        for log in self.pair.log:
            for _, _, _, before, after, cause in log.states:
                assert TRANSITIONS[EvState(before), Cause(cause)] == after
            log.states.clear()
            for _, _, _, before, after, cause in log.planes:
                assert PLANE_TRANSITIONS[PlaneState(before), PlaneCause(cause)] == after
            log.planes.clear()

    def all_open(self) -> bool:
        return all(plane.open for qp in self.pair.qps for plane in qp.peer.paths.planes)

    @invariant()
    def windows_add_up(self) -> None:
        for qp in self.pair.qps:
            out = sum(packet.size for packet in qp.requester.outstanding.values())
            assert qp.peer.window.inflight == out

    def teardown(self) -> None:
        if not hasattr(self, "pair"):
            return
        self.repair()
        self.weather(0.0, 0.0, 0.0, 0.0, 0.0)
        pair = self.pair
        wanted = [len(written) for written in self.written]

        def done() -> bool:
            return [len(pair.completed(host)) for host in (0, 1)] == wanted

        pair.run(HEAL_NS, until=done)
        assert done(), "deadlock: a healed network did not finish the transfer"
        pair.run(40 * 2 * pair.delay_ns, until=self.all_open)  # the longest pause between updates, and a check
        assert self.all_open(), "a plane did not come back"
        for host in (0, 1):
            assert pair.completed(host) == list(range(wanted[host]))
            immediates = pair.immediates(1 - host)
            assert immediates == sorted(immediates)
            expected = bytearray(len(pair.memory[1 - host]))
            for offset, data in self.written[host]:
                expected[offset : offset + len(data)] = data
            assert pair.memory[1 - host] == expected
            fates = pair.log[host].fates()
            packets = sum(-(-len(data) // PAYLOAD) for _, data in self.written[host])
            early = pair.qps[host].requester.losses.reorder.count  # arrived after all, before they were sent again
            assert packets - early <= fates[Fate.ACKNOWLEDGED] <= packets


TestHostileNetwork = HostileNetwork.TestCase
TestHostileNetwork.settings = settings(
    max_examples=HISTORIES,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    derandomize=True,
)
