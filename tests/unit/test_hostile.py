"""Generated histories over a hostile network: every byte arrives once, in place, and the endpoint never hangs.

2,000 histories on the compiled transport, where there is one (test_compiled.py), and fewer on its sources. `make
test-histories` runs 50,000. The environment variable HISTORIES sets the number, HISTORIES_SEED draws others.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

from hypothesis import HealthCheck, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from testbed.host import compiled
from testbed.transport.common.codepoints import Dscp
from testbed.transport.common.events import Fate, LossReason
from testbed.transport.mrc import QueuePairError, requester
from testbed.transport.mrc.ev import TRANSITIONS, Cause, EvState
from testbed.transport.mrc.planes import PLANE_TRANSITIONS, PlaneCause, PlaneState
from testbed.transport.mrc.queue_pair import QP_TRANSITIONS, QpState
from testbed.transport.mrc.trace import Kind
from tests.support.virtual import MS, Packet, Pair, Verdict

IN_CI, ON_SOURCES = 2000, 300
BUILT = Path(compiled.build_for(compiled.fingerprint())).is_dir()
ELSEWHERE = BUILT and not requester.__file__.endswith(".so")  # the compiled build gets its own, longer run
HISTORIES = int(os.environ.get("HISTORIES", ON_SOURCES if ELSEWHERE else IN_CI))
PAYLOAD = 256
LONGEST = 6_000
HEAL_NS = 60_000 * MS
OVERTAKEN_NS = 15 * MS  # less than the least reorder window, half a round trip
SOME_MS = st.integers(1, 300)


class HostileNetwork(RuleBasedStateMachine):
    """Two endpoints write to each other while ports and paths die, and packets are lost, late, doubled, corrupt and cut."""

    @initialize(
        drawn=st.integers(0, 2**32 - 1),
        planes=st.integers(1, 4),
        uplinks=st.integers(1, 4),
        window=st.integers(1, 64),
        policy=st.sampled_from(["mrc", "oblivious", "single_path", "reps"]),
        sack=st.sampled_from([1024, 4096, 16384]),
        depth=st.integers(1, 3),
    )
    def build(self, drawn: int, planes: int, uplinks: int, window: int, policy: str, sack: int, depth: int) -> None:
        self.rng = random.Random(drawn)
        self.pair = Pair(
            planes=planes,
            uplinks=uplinks,
            window_frames=window,
            policy=policy,
            payload=PAYLOAD,
            sack_bytes=sack,
            seed=drawn,
        )
        self.depth = depth
        self.loss = self.duplicate = self.corrupt = self.trim = self.mark = 0.0
        self.extra: dict[int, int] = {}
        self.dead: set[tuple[int, int]] = set()
        self.silent: set[int] = set()
        self.written: tuple[list[tuple[int, bytes]], list[tuple[int, bytes]]] = ([], [])
        self.immediates: tuple[list[int], list[int]] = ([], [])
        self.next_offset = [0, 0]
        self.pair.rule = self.decide
        # Why a data packet of each host may be sent again: it did not arrive whole; later ones may have arrived before it.
        self.disturbed = [0, 0]
        self.overtaken = [0, 0]
        self.go_on(100)

    def decide(self, packet: Packet) -> Verdict:
        draw = self.rng.random
        source, data = packet.source, packet.is_data
        if data:
            planes = self.pair.qps[source].peer.paths.by_plane
            assert planes[packet.plane].state is PlaneState.OPEN, "data on a plane that is not in use"
        portless = {(0, packet.plane), (1, packet.plane)} & self.pair.down
        if source in self.silent or (source, packet.ev) in self.dead or portless or draw() < self.loss:
            self.disturbed[source] += data
            return Verdict(None)
        extra = self.extra.get(packet.ev, 0)
        trim = self.rng.choice((Dscp.TRIMMED, Dscp.TRIMMED_LASTHOP)) if draw() < self.trim else None
        corrupt, copies = draw() < self.corrupt, 2 if draw() < self.duplicate else 1
        if data:
            cut = trim is not None
            # A cut packet has no checksum left: with a wrong number it has another one sent again, beside itself.
            self.disturbed[source] += (copies if corrupt or cut else 0) + (copies if corrupt and cut else 0)
            self.overtaken[source] += extra >= OVERTAKEN_NS
        return Verdict(self.pair.delay_ns + extra, copies=copies, trim=trim, mark=draw() < self.mark, corrupt=corrupt)

    def go_on(self, ms: int) -> None:
        """Let time pass, both hosts busy."""
        for host in (0, 1):
            while len(self.written[host]) < len(self.pair.completed(host)) + self.depth:
                if not self.post(host, self.rng.randrange(1, LONGEST), self.rng.random() < 0.5):
                    break
        self.pair.run(ms * MS)

    def post(self, host: int, size: int, immediate: bool) -> bool:
        if self.next_offset[host] + size > len(self.pair.memory[1 - host]):
            return False
        data = self.rng.randbytes(size)
        number = len(self.written[host])
        self.pair.write(host, data, self.next_offset[host], wr_id=number, immediate=number if immediate else None)
        self.written[host].append((self.next_offset[host], data))
        self.next_offset[host] += size
        if immediate:
            self.immediates[host].append(number)
        return True

    @rule(host=st.integers(0, 1), size=st.integers(1, 20_000), immediate=st.booleans())
    def write(self, host: int, size: int, immediate: bool) -> None:
        self.post(host, size, immediate)

    @rule(ms=SOME_MS)
    def wait(self, ms: int) -> None:
        self.go_on(ms)

    @rule(
        loss=st.sampled_from([0.0, 0.01, 0.1, 0.3]),
        duplicate=st.sampled_from([0.0, 0.05]),
        corrupt=st.sampled_from([0.0, 0.02]),
        trim=st.sampled_from([0.0, 0.1]),
        mark=st.sampled_from([0.0, 0.2]),
        ms=SOME_MS,
    )
    def weather(self, loss: float, duplicate: float, corrupt: float, trim: float, mark: float, ms: int) -> None:
        self.loss, self.duplicate, self.corrupt, self.trim, self.mark = loss, duplicate, corrupt, trim, mark
        self.go_on(ms)

    def path(self, which: int) -> int:
        return self.pair.paths[which % len(self.pair.paths)][0]

    @rule(which=st.integers(0, 15), extra=st.integers(0, 100), ms=SOME_MS)
    def slow(self, which: int, extra: int, ms: int) -> None:
        """Reordering across paths; and on this one, when it becomes faster."""
        ev = self.path(which)
        if extra * MS < self.extra.get(ev, 0):
            for host in (0, 1):
                out = self.pair.qps[host].requester.outstanding.values()
                self.overtaken[host] += sum(packet.path.ev == ev for packet in out)
        self.extra[ev] = extra * MS
        self.go_on(ms)

    @rule(which=st.integers(0, 15), host=st.integers(0, 1), ms=SOME_MS)
    def one_way_death(self, which: int, host: int, ms: int) -> None:
        self.dead.add((host, self.path(which)))
        self.go_on(ms)

    @rule(host=st.integers(0, 1), ms=SOME_MS)
    def silence(self, host: int, ms: int) -> None:
        """Nothing of this host arrives: for the other's data, the whole reverse path is lost."""
        self.silent.add(host)
        self.go_on(ms)

    @rule(host=st.integers(0, 1), which=st.integers(0, 15), up=st.booleans(), ms=SOME_MS)
    def port(self, host: int, which: int, up: bool, ms: int) -> None:
        plane = self.path(which) >> 16
        on_its_way = self.pair.qps[1 - host].requester.outstanding.values()
        self.disturbed[1 - host] += sum(packet.path.plane == plane for packet in on_its_way)
        self.pair.port(host, plane, up=up)
        self.go_on(ms)

    @rule(ms=SOME_MS)
    def repair(self, ms: int) -> None:
        self.heal()
        self.go_on(ms)

    def heal(self) -> None:
        self.dead.clear()
        self.silent.clear()
        for host, plane in sorted(self.pair.down):
            self.pair.port(host, plane, up=True)

    def all_open(self) -> bool:
        return all(plane.open for qp in self.pair.qps for plane in qp.peer.paths.planes)

    @invariant()
    def transitions_are_legal(self) -> None:
        for log in self.pair.log:
            for row in log.states:
                assert TRANSITIONS[EvState(row.before), Cause(row.cause)] == row.after
            log.states.clear()
            for change in log.planes:
                assert PLANE_TRANSITIONS[PlaneState(change.before), PlaneCause(change.cause)] == change.after
            log.planes.clear()

    @invariant()
    def windows_add_up(self) -> None:
        for qp in self.pair.qps:
            out = sum(packet.size for packet in qp.requester.outstanding.values())
            assert qp.peer.window.inflight == out

    def teardown(self) -> None:
        if not hasattr(self, "pair"):
            return
        self.heal()
        self.loss = self.duplicate = self.corrupt = self.trim = self.mark = 0.0
        pair = self.pair
        wanted = [len(written) for written in self.written]

        def done() -> bool:
            return [len(pair.completed(host)) for host in (0, 1)] == wanted

        pair.run(HEAL_NS, until=done)
        assert done(), "deadlock: a healed network did not finish the transfer"
        pair.run(40 * 2 * pair.delay_ns, until=self.all_open)  # the longest pause between updates, and a check
        assert self.all_open(), "a plane did not come back"
        for host in (0, 1):
            self.check(host)

    def check(self, host: int) -> None:
        """Nothing that this host wrote is missing, twice or elsewhere; nothing was sent again without a cause."""
        pair, written = self.pair, self.written[host]
        assert pair.completed(host) == list(range(len(written)))
        assert pair.immediates(1 - host) == self.immediates[host]
        expected = bytearray(len(pair.memory[1 - host]))
        for offset, data in written:
            expected[offset : offset + len(data)] = data
        assert pair.memory[1 - host] == expected
        log = pair.log[host]
        fates = log.fates()
        packets = sum(-(-len(data) // PAYLOAD) for _, data in written)
        acknowledged = [row.psn for row in log.packets if row.fate == Fate.ACKNOWLEDGED]
        assert len(acknowledged) == len(set(acknowledged))
        early = len(log.of(Kind.LATE))  # arrived after all, perhaps before they were sent again
        assert packets - early <= fates[Fate.ACKNOWLEDGED] <= packets
        statistics = pair.ends[host].statistics()
        written_off = sum(row.reason == LossReason.PORT_DOWN for row in log.packets)  # with a port, whatever became of them
        cause = self.disturbed[host] + self.overtaken[host] + written_off + statistics["timeouts"]
        assert statistics["retransmissions"] <= cause
        order = list(QpState)
        assert all((order[row.value >> 8], order[row.value & 0xFF]) in QP_TRANSITIONS for row in log.of(Kind.QP_STATE))
        assert not any(isinstance(event, QueuePairError) for _, event in pair.events)


def _drawn(case: type) -> type:
    chosen = os.environ.get("HISTORIES_SEED")
    case.settings = settings(  # type: ignore[attr-defined]
        max_examples=HISTORIES,
        stateful_step_count=12,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
        derandomize=chosen is None,
        database=None,
    )
    return case if chosen is None else seed(int(chosen))(case)


TestHostileNetwork = _drawn(HostileNetwork.TestCase)
