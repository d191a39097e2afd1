"""Background probes: what their interval and the answers asked for cost and bring, under the virtual clock.

    python -m benchmarks probes

One of 24 paths dies for 40 base round trips, or loses a share of its packets for the whole run; a host writes all the time. The
table of docs/protocol.md, "EV states", is what this prints. Nothing depends on the machine.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from statistics import mean

from testbed.host import compiled
from testbed.transport.common.events import Fate
from testbed.transport.mrc.trace import Kind
from tests.support.virtual import MS, Packet, Pair, Verdict

RTT = 40 * MS
BAD = 1 << 16 | 2
DIES, REPAIRED, ENDS = 20 * RTT, 60 * RTT, 160 * RTT
INTERVALS, ANSWERS, LOSSES, SEEDS = (1, 2, 4), (1, 3, 5), (0.2, 0.01), range(3)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Probes per data packet until the repair, round trips from it to the path's use; losses and restorations of bad paths."""

    overhead: float
    restored_rtts: float
    lost: float
    restorations: float


def main(arguments: list[str]) -> int:
    """Print one line per setting."""
    del arguments
    compiled.use({})
    shares = " | ".join(f"{share:.0%} lossy: lost of all, back in use per 100 RTTs" for share in LOSSES)
    print(f"| interval, RTTs | answers | probes per data packet, one path dead | back after, RTTs | {shares} |")
    for interval in INTERVALS:
        for answers in ANSWERS:
            dead = average(interval, answers, None)
            lossy = [average(interval, answers, share) for share in LOSSES]
            cells = " | ".join(f"{one.lost:.3%}, {one.restorations:.1f}" for one in lossy)
            print(f"| {interval} | {answers} | {dead.overhead:.2%} | {dead.restored_rtts:.1f} | {cells} |", flush=True)
    return 0


def average(interval: int, answers: int, loss: float | None) -> Outcome:
    """Over the seeds; `loss` None is a path that dies and is repaired."""
    runs = [run(interval, answers, loss, seed) for seed in SEEDS]
    return Outcome(*(mean(getattr(one, name) for one in runs) for name in Outcome.__slots__))


def run(interval: int, answers: int, loss: float | None, seed: int) -> Outcome:
    """One run of 160 round trips."""
    pair = Pair(seed=seed, window_frames=120, probe_interval_ns=interval * RTT, probe_answers=answers)
    draw, start = random.Random(seed).random, pair.now

    def rule(packet: Packet) -> Verdict:
        gone = DIES <= packet.now - start < REPAIRED if loss is None else draw() < loss
        return Verdict(None if packet.ev == BAD and gone else pair.delay_ns)

    pair.rule = rule
    data = random.Random(seed).randbytes(1 << 18)
    posted = 0
    while pair.now < start + ENDS:
        while posted < len(pair.completed(0)) + 3:
            pair.write(0, data, (posted % 3) << 18, wr_id=posted)
            posted += 1
        pair.step()
    log = pair.log[0]
    back = [row.t_ns for row in log.states if row.ev == BAD and row.after == 0 and row.before == 2]
    until = start + REPAIRED if loss is None else pair.now
    probes = sum(start + DIES <= row.t_ns < until for row in log.of(Kind.EV_PROBE))
    sent = sum(start + DIES <= row.sent_ns < until for row in log.packets)
    lost = sum(row.fate == Fate.LOST for row in log.packets) / len(log.packets)
    first = next((t_ns for t_ns in back if t_ns >= start + REPAIRED), pair.now)
    return Outcome(probes / sent, (first - start - REPAIRED) / RTT, lost, len(back) * 100 * RTT / ENDS)
