"""The way of control packets under a virtual clock: no path or plane that dies silences acknowledgements."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest

from testbed.transport.common.codepoints import Dscp
from testbed.transport.mrc.codepoints import Opcode
from tests.support.virtual import MS, Packet, Pair, Verdict

RTT = 40 * MS
PLANES = 4
CONTROL = (Opcode.SACK, Opcode.NACK, Opcode.TRANSPORT_ACK)
DETECTED = (PLANES + 2) * RTT + RTT  # each plane's turn to be probed, the wait for its answer, and one RTT of slack


class Stream:
    """Host 0 writes to host 1 without a pause, or both do; what host 1 sends is kept. `dead` acts on host 1's packets.

    Four messages are posted at all times: a lost transport ACK keeps the application waiting, not the network.
    """

    def __init__(self, *, both: bool = False, seed: int = 1) -> None:
        self.pair = Pair(window_frames=36, payload=4096, sack_bytes=16384, seed=seed)
        self.control: list[Packet] = []
        self.probes: list[Packet] = []
        self.dead: set[int] = set()  # EVs
        self.trim = 0
        self.pair.rule = self._rule
        self._hosts = (0, 1) if both else (0,)
        self.posted = [0, 0]
        self._data = bytes(256 * 1024)
        self.run(50)

    def _rule(self, packet: Packet) -> Verdict:
        if packet.source == 1:
            if packet.opcode in CONTROL:
                self.control.append(packet)
            if packet.opcode == Opcode.ENDPOINT_REQUEST and packet.tclass >> 2 == Dscp.CONTROL:
                self.probes.append(packet)
            return Verdict(None if packet.ev in self.dead else self.pair.delay_ns)
        return Verdict(self.pair.delay_ns)

    def run(self, rtts: int) -> None:
        stop = self.pair.now + rtts * RTT
        while self.pair.now < stop:
            for host in self._hosts:
                while self.posted[host] - len(self.pair.completed(host)) < 4:
                    self.pair.write(host, self._data, wr_id=self.posted[host])
                    self.posted[host] += 1
            assert self.pair.step()

    def placed(self, start: int, end: int) -> int:
        return sum(row[4] for row in self.pair.log[1].arrivals if start <= row[0] < end and not row[5] & 2)

    def heard(self, start: int) -> list[int]:
        """Times at which control packets that were not lost left host 1."""
        return [packet.now for packet in self.control if packet.now >= start and packet.ev not in self.dead]


def plane_evs(*planes: int) -> set[int]:
    return {plane << 16 | uplink for plane in planes for uplink in range(6)}


def test_control_packets_take_turns_on_all_planes() -> None:
    stream = Stream()
    counts = Counter(packet.ev >> 16 for packet in stream.control)
    assert set(counts) == set(range(PLANES))
    assert max(counts.values()) - min(counts.values()) <= 2


@pytest.mark.parametrize("alive", range(PLANES))
def test_no_plane_is_needed_and_one_is_enough(alive: int) -> None:
    """The way back dies on all planes but one. Nothing that answers data is sent on them once that can be known."""
    stream = Stream()
    start = stream.pair.now
    stream.dead = plane_evs(*(plane for plane in range(PLANES) if plane != alive))
    stream.run(100)
    end = stream.pair.now
    late = [packet for packet in stream.control if packet.now > start + DETECTED]
    assert late
    assert {packet.ev >> 16 for packet in late} == {alive}
    before = stream.placed(start - 40 * RTT, start) / 40
    assert stream.placed(start, end) / 100 >= 0.95 * before, "what finding out costs included"
    assert stream.pair.ends[0].statistics()["timeouts"] == 0
    stream.dead = set()
    stream.run(DETECTED // RTT)
    back = stream.pair.now
    stream.run(20)
    assert {packet.ev >> 16 for packet in stream.control if packet.now > back} == set(range(PLANES))


@pytest.mark.parametrize("dead", [*(plane_evs(plane) for plane in range(PLANES)), {1 << 16 | 4}])
def test_the_loss_of_a_path_or_a_plane_is_never_silence(dead: set[int]) -> None:
    """From the first moment on: two control packets in a row are never lost, so the longest silence is three intervals."""
    stream = Stream()
    quiet = stream.heard(stream.pair.now - 40 * RTT)
    usual = max(later - earlier for earlier, later in pairwise(quiet))
    start = stream.pair.now
    stream.dead = dead
    stream.run(40)
    times = stream.heard(start)
    assert max(later - earlier for earlier, later in pairwise(times)) <= 3 * usual
    assert not [packet for packet in stream.control if packet.now > start + DETECTED + PLANES * RTT and packet.ev in dead]


def test_who_only_receives_probes_once_each_rtt_and_who_sends_uses_what_was_acknowledged() -> None:
    stream = Stream()
    start = stream.pair.now
    stream.run(40)
    probes = [packet for packet in stream.probes if packet.now >= start]
    assert 35 <= len(probes) <= 41
    counts = Counter(packet.ev >> 16 for packet in probes)
    assert max(counts.values()) - min(counts.values()) <= 1
    assert len({packet.ev for packet in probes}) > 2 * PLANES, "a random EV each time"
    both = Stream(both=True)
    start = both.pair.now
    both.run(40)
    assert not [packet for packet in both.probes if packet.now >= start]
    assert len({packet.ev for packet in both.control if packet.now >= start}) > 2 * PLANES


def test_a_silent_peer_is_not_probed() -> None:
    stream = Stream()
    assert stream.pair.run(100 * RTT, until=lambda: len(stream.pair.completed(0)) == stream.posted[0])
    count = len(stream.probes)
    stream.pair.run(100 * RTT)
    assert len(stream.probes) <= count + 1


def test_the_loser_of_its_own_data_does_not_answer_on_those_planes() -> None:
    """With data both ways the dead planes are known from them; the floor of active EVs leaves one plane's worth."""
    stream = Stream(both=True)
    start = stream.pair.now
    stream.dead = plane_evs(0, 1, 2)
    stream.run(100)
    late = [packet for packet in stream.control if packet.now > start + 2 * DETECTED]
    assert sum(packet.ev in stream.dead for packet in late) <= 0.02 * len(late)


def test_nacks_go_the_same_way() -> None:
    stream = Stream()
    stream.dead = plane_evs(0, 1, 3)
    stream.run(DETECTED // RTT)
    kept = stream.pair.rule
    turn = iter(range(1 << 30))

    def rule(packet: Packet) -> Verdict:
        verdict = kept(packet)
        if packet.source == 0 and packet.is_data and next(turn) % 10 == 0:
            verdict.trim = Dscp.TRIMMED
        return verdict

    stream.pair.rule = rule
    start = stream.pair.now
    stream.run(40)
    nacks = [packet for packet in stream.control if packet.opcode == Opcode.NACK and packet.now >= start]
    assert len(nacks) > 20
    assert {packet.ev >> 16 for packet in nacks} == {2}


def test_a_denied_path_carries_no_control_packet_even_where_no_other_is_trusted() -> None:
    stream = Stream()
    pair = stream.pair
    left = 1 << 16 | 4
    for ev in plane_evs(0, 1, 2, 3) - {left}:
        pair.ends[1].deny(0, ev, pair.now)
    stream.dead = {left}
    stream.control.clear()
    stream.run(20)
    pair.port(1, 1, up=False)
    stream.run(2)
    pair.port(1, 1, up=True)
    stream.run(20)
    assert {packet.ev for packet in stream.control} == {left}


def test_who_hears_nothing_is_answered_by_turns_the_way_the_question_came() -> None:
    """Never on a denied path, nor on one that is not known here: then it is the turn's, as for any control packet."""
    stream = Stream()
    end, now = stream.pair.ends[1], stream.pair.now
    (peer,) = end._core.peers.values()
    ev = 2 << 16 | 3
    assert [peer.reverse.answer(ev, now).ev == ev for _ in range(6)].count(True) >= 3
    assert ev not in {peer.reverse.answer(9 << 16, now).ev for _ in range(8)}
    end.deny(0, ev, now)
    assert ev not in {peer.reverse.answer(ev, now).ev for _ in range(8)}
