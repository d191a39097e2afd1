"""The trace: each decision is there with its reason, and without a taker nothing is handed out."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from testbed.transport.common.codepoints import Dscp
from testbed.transport.common.events import Fate
from testbed.transport.mrc import QpLimits
from testbed.transport.mrc.codepoints import NackReason
from testbed.transport.mrc.ev import Cause, EvState
from testbed.transport.mrc.loss import PROBED
from testbed.transport.mrc.queue_pair import QpState
from testbed.transport.mrc.trace import Decision, Kind, Trace
from tests.support import virtual
from tests.support.virtual import MS, Packet, Pair, Verdict

RTT = 40 * MS
DEAD = 2 << 16 | 3


def transfer(pair: Pair, size: int = 200_000) -> None:
    pair.write(0, random.Random(1).randbytes(size), wr_id=0)
    assert pair.run(60_000 * MS, until=lambda: bool(pair.completed(0)))


def once(pair: Pair, wanted: Callable[[Packet], bool], verdict: Verdict) -> list[Packet]:
    """The first packet of host 0 that is `wanted` meets `verdict`; returns it when it has."""
    met: list[Packet] = []

    def rule(packet: Packet) -> Verdict:
        if not met and packet.source == 0 and wanted(packet):
            met.append(packet)
            return verdict
        return Verdict(pair.delay_ns)

    pair.rule = rule
    return met


def test_a_loss_names_the_arrival_that_proves_it_and_the_path_that_pays() -> None:
    pair = Pair()
    lost = once(pair, lambda packet: packet.is_data and packet.ev == DEAD, Verdict(None))
    transfer(pair)
    pair.run(20 * RTT)  # the path comes back
    log = pair.log[0]
    (evidence,) = log.of(Kind.EVIDENCE)
    assert (evidence.psn, evidence.ev) == (lost[0].psn, DEAD)
    proof = next(row for row in log.packets if row.psn == evidence.value)
    assert proof.fate == Fate.ACKNOWLEDGED
    assert proof.sent_ns > lost[0].now
    plain = ("sent", "acknowledged", "passed_over")
    story = [(step.what, step.psn) for step in log.history() if step.ev == DEAD and step.what not in plain]
    assert story[:3] == [("evidence", lost[0].psn), ("lost", lost[0].psn), ("ev_state", -1)]
    assert [what for what, _ in story[3:]] == ["ev_probe", "ev_probe_answered"] * 3 + ["ev_state"]
    again = [step for step in log.history() if step.psn == lost[0].psn and step.what == "sent"]
    assert [step.detail for step in again] == ["", "retransmission"]
    assert again[1].ev != DEAD


def test_a_lost_tail_is_proved_by_a_probe() -> None:
    pair = Pair()
    last = (pair.qps[0].psn + 4) & 0xFFFFFF
    once(pair, lambda packet: packet.is_data and packet.psn == last, Verdict(None))
    transfer(pair, 5 * 1024)
    log = pair.log[0]
    (probe,), (answered,), (evidence,) = log.of(Kind.PROBE), log.of(Kind.PROBE_ANSWERED), log.of(Kind.EVIDENCE)
    assert (probe.qp, probe.psn, probe.ev) == (answered.qp, answered.psn, answered.ev)
    assert answered.t_ns - probe.t_ns == RTT
    assert (evidence.t_ns, evidence.psn, evidence.value) == (answered.t_ns, last, PROBED)


def test_a_late_packet_shows_the_window_it_widens() -> None:
    pair = Pair()
    late = once(pair, lambda packet: packet.is_data and packet.ev == DEAD, Verdict(RTT))
    transfer(pair)
    (row,) = pair.log[0].of(Kind.LATE)
    assert (row.psn, row.ev, row.value) == (late[0].psn, DEAD, RTT)


@pytest.mark.parametrize(("dscp", "reason"), [(Dscp.TRIMMED, 1), (Dscp.TRIMMED_LASTHOP, 2)])
def test_a_trim_is_told_by_both_ends(dscp: Dscp, reason: int) -> None:
    pair = Pair()
    cut = once(pair, lambda packet: packet.is_data and packet.ev == DEAD, Verdict(pair.delay_ns, trim=dscp))
    transfer(pair)
    (sent,), (got,) = pair.log[1].of(Kind.NACK_SENT), pair.log[0].of(Kind.NACK)
    assert (sent.psn, sent.ev, sent.value) == (got.psn, got.ev, got.value) == (cut[0].psn, DEAD, reason)
    assert got.value in (NackReason.TRIMMED, NackReason.TRIMMED_LASTHOP)
    retired = [row for row in pair.log[0].states if row.after == EvState.ASSUMED_BAD]
    assert not retired


def test_silence_and_the_end_of_a_queue_pair() -> None:
    pair = Pair(limits=QpLimits(linear=2, exponential=1))
    pair.rule = lambda packet: Verdict(None)
    pair.write(0, b"x" * 3000, wr_id=0)
    pair.run(60_000 * MS, until=lambda: not pair.qps[0].requester.outstanding)
    log = pair.log[0]
    assert [row.value for row in log.of(Kind.TIMEOUT)] == [1, 2, 3, 4]
    order = list(QpState)
    states = [(order[row.value >> 8], order[row.value & 0xFF]) for row in log.of(Kind.QP_STATE)]
    assert states == [
        (QpState.RESET, QpState.INIT),
        (QpState.INIT, QpState.RTR),
        (QpState.RTR, QpState.RTS),
        (QpState.RTS, QpState.ERROR),
    ]
    assert log.of(Kind.QP_STATE)[-1].t_ns == pair.now


def test_a_change_of_the_window_is_seen_once() -> None:
    pair = Pair()
    transfer(pair)
    first = pair.log[0].of(Kind.WINDOW)[0]
    assert first.value == pair.qps[0].peer.window.limit
    before = len(pair.log[0].of(Kind.WINDOW))
    pair.qps[0].peer.window.limit -= 1024
    pair.write(0, bytes(5000), wr_id=1)
    assert pair.run(60_000 * MS, until=lambda: len(pair.completed(0)) == 2)
    assert pair.log[0].of(Kind.WINDOW)[before].value == first.value - 1024


def test_an_overdue_path_passes_its_turn() -> None:
    pair = Pair(uplinks=2, planes=2)
    slow = 1 << 16 | 1
    pair.rule = lambda packet: Verdict(pair.delay_ns + (RTT * 3 // 8 if packet.ev == slow and packet.is_data else 0))
    transfer(pair)
    passed = pair.log[0].of(Kind.PASSED_OVER)
    assert passed
    assert {row.ev for row in passed} == {slow}
    assert not [row for row in pair.log[0].states if row.cause == Cause.LOST]


def test_without_a_taker_nothing_changes_but_the_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    class Silent:
        """Takes what any run records, and no more."""

        decision = None

        def __init__(self) -> None:
            kept = Trace()
            self.packets, self.arrivals, self.states, self.decisions = kept.packets, kept.arrivals, kept.states, kept.decisions
            self.packet, self.received, self.ev_state = kept.packet, kept.received, kept.ev_state
            self.port_state, self.plane_state = kept.port_state, kept.plane_state

    def story() -> tuple[list[object], list[Decision]]:
        pair = Pair(seed=4)
        rng = random.Random(4)
        pair.rule = lambda packet: Verdict(None if rng.random() < 0.05 else pair.delay_ns)
        transfer(pair)
        return [pair.log[0].packets, pair.log[0].states, pair.log[1].arrivals, pair.sent, pair.now], pair.log[0].decisions

    told, decisions = story()
    monkeypatch.setattr(virtual, "Trace", Silent)
    silent, nothing = story()
    assert told == silent
    assert decisions
    assert not nothing
