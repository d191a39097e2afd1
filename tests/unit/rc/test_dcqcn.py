"""DCQCN under a virtual clock: what cuts a rate, and how it comes back."""

from __future__ import annotations

from itertools import pairwise

import pytest

from testbed.transport.rc.dcqcn import ADDITIVE, CNP_RTTS, FAST_RECOVERY, HYPER, INCREASE_RTTS, Dcqcn, G
from tests.support.rc_pair import MS, PAYLOAD, Pair, Verdict, opcode
from tests.unit.rc.test_rc import RTT, noise


def test_marks_become_cnps_and_cnps_cut_the_rate() -> None:
    pair = Pair()
    requester = pair.pairs[0][0].requester
    assert requester.dcqcn is not None
    mark_until = pair.now + 1000 * MS
    pair.rule = lambda source, packet, now: Verdict(pair.delay_ns, mark=now < mark_until)
    pair.write(0, noise(1000 * PAYLOAD), wr_id=1)
    pair.run(1000 * MS)
    cnps = [now for now, host, packet in pair.sent if host == 1 and opcode(packet) == 0x81]
    assert len(cnps) == pair.ends[0].counters["cnps"] + (pair.now - cnps[-1] < pair.delay_ns)
    assert all(later - sooner >= CNP_RTTS * RTT for sooner, later in pairwise(cnps))
    slow, limit = requester.dcqcn.rate, requester.window.limit
    assert slow < 0.3 * 5e6
    got = [row for row in pair.log[0].packets if row[1] > pair.now - 500 * MS]
    assert sum(row[5] for row in got) * 8 / 0.5 < 1.2 * 2.5e6
    pair.run(8000 * MS)
    assert requester.dcqcn.rate > 2 * slow, "the rate comes back"
    assert requester.window.limit > 2 * limit, "and with it the window that samples show"


def test_dcqcn_recovers_halfway_to_its_target_and_then_adds() -> None:
    line, rtt = 5_000_000, RTT
    cc = Dcqcn(line, rtt)
    assert not cc.limited
    cc.congested(0)
    assert cc.rate == line / 2, "alpha begins at 1"
    assert cc.alpha == 1.0
    step = INCREASE_RTTS * rtt
    for stage in range(1, FAST_RECOVERY + 1):
        cc.advance(stage * step)
        assert cc.rate == pytest.approx(line * (1 - 0.5 ** (stage + 1)))
    cc = Dcqcn(line, rtt)
    cc.congested(0)
    cc.congested(1)
    target, rate = line / 2, line / 4
    for _ in range(FAST_RECOVERY):
        rate = (rate + target) / 2
    cc.advance(1 + FAST_RECOVERY * step)
    assert cc.rate == pytest.approx(rate)
    cc.advance(1 + (FAST_RECOVERY + 1) * step)
    assert cc.rate == pytest.approx((rate + target + ADDITIVE * line) / 2)
    assert cc.alpha == pytest.approx((1 - G) ** (FAST_RECOVERY + 1))


def test_dcqcn_increases_hyper_some_hundred_round_trips_after_the_last_cut() -> None:
    """Once the timer and the byte counter have both passed fast recovery: the target rises by HYPER, then by twice as much."""
    line = 5_000_000
    cc = Dcqcn(line, RTT)
    cc.congested(0)
    cc.congested(1)
    rises = []
    for turn in range(300):
        before = cc._target
        cc.advance(turn * RTT)
        cc.sent(int(cc.rate * RTT / 8e9))
        rises.append((cc._target - before) / line)
    hyper = [turn for turn, rise in enumerate(rises) if rise >= HYPER]
    assert hyper, "never"
    assert max(rises[: hyper[0]]) <= 2 * ADDITIVE + 1e-9, "before that at most one step each of timer and counter"
    assert not cc.limited, "and so the QP is back at line rate"
