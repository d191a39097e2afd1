"""Incast, permutation and two flows on one path, under the virtual clock: the tables of docs/protocol.md.

    python -m benchmarks congestion [incast | permutation | two-flows]

Real endpoints, simulated ports (tests/support/clos.py). Nothing depends on the machine, except how long it takes.
"""

from __future__ import annotations

import sys
from statistics import mean

from testbed.host import compiled
from testbed.transport.common.events import Fate
from testbed.transport.mrc import nscc, skip
from tests.support.clos import Switches
from tests.support.loads import Incast, Permutation, TwoFlows

UEC_FAIR, FAIR = 5.0, nscc.FAIR
ONE_TURN, RESTS = 1 << 30, skip.PERSISTENT
CASES = ((8.0, 12.0), (24.0, 12.0), (96.0, 12.0), (96.0, 36.0))
SEEDS = (1, 2, 3, 4)


def main(arguments: list[str]) -> int:
    """Print the tables that were asked for, or all."""
    compiled.use({})
    tables = {"incast": incast, "permutation": permutation, "two-flows": two_flows}
    if any(name not in tables for name in arguments):
        print(f"usage: python -m benchmarks congestion [{' | '.join(tables)}]", file=sys.stderr)
        return 2
    for name in arguments or tables:
        tables[name]()
    return 0


def incast() -> None:
    """7:1 over 250 round trips: shares trimmed with UEC's fair increase and with ours, and what else ours gives."""
    print("| BDP, frames | trim_last_hop | back-pressure | trimmed, fair 5a | trimmed, ours | Jain, ours | port in use, ours |")
    for bdp, trim in CASES:
        for backpressure in (False, True):
            found = []
            for fair in (UEC_FAIR, FAIR):
                nscc.FAIR = fair
                found.append(Incast(bdp, 250, cc="nscc", backpressure=backpressure, switches=Switches(trim_last_hop=trim)))
            theirs, ours = found
            print(
                f"| {bdp:.0f} | {trim:.0f} | {'on' if backpressure else 'off'} | {theirs.trimmed_share:.1%} "
                f"| {ours.trimmed_share:.1%} | {ours.jain:.2f} | {ours.aggregate:.3f} |",
                flush=True,
            )


def permutation() -> None:
    """A fabric with spare uplinks, one without, and that with an uplink of one plane dead; SKIP of one turn and ours."""
    print("| T1s for four hosts | SKIP | goodput | queue p99, frames | trimmed | lost | EVs retired |")
    for uplinks, dead in ((6, False), (4, False), (4, True)):
        for name, persistent in (("one turn", ONE_TURN), ("rests", RESTS)):
            skip.PERSISTENT = persistent
            runs = [Permutation(uplinks, 100, dead=dead, cc="nscc", seed=seed) for seed in SEEDS[:2]]
            sent = [sum(run.fates.values()) for run in runs]
            trimmed = mean(run.trimmed / all_of for run, all_of in zip(runs, sent, strict=True))
            lost = mean(run.fates[Fate.LOST] / all_of for run, all_of in zip(runs, sent, strict=True))
            print(
                f"| {uplinks}{', one dead' if dead else ''} | {name} | {mean(run.goodput for run in runs):.3f} "
                f"| {mean(run.queue_p99 for run in runs):.1f} | {trimmed:.2%} | {lost:.3%} "
                f"| {mean(run.retired for run in runs):.0f} |",
                flush=True,
            )
    skip.PERSISTENT = RESTS


def two_flows() -> None:
    """Figure 14 at two BDPs, thresholds as they are and in proportion."""
    print("| BDP, frames | ecn_min, ecn_max, trim | SKIP | first | second | first's share on the shared path | queue, frames |")
    for bdp, switches in ((6, Switches()), (24, Switches()), (24, Switches(ecn_min=5, ecn_max=19, trim=24, trim_last_hop=36))):
        for name, persistent in (("one turn", ONE_TURN), ("rests", RESTS)):
            skip.PERSISTENT = persistent
            runs = [TwoFlows(bdp, 340, cc="nscc", seed=seed, switches=switches) for seed in SEEDS]
            first, second = ([run.first for run in runs], [run.second for run in runs])
            print(
                f"| {bdp} | {switches.ecn_min:.0f}, {switches.ecn_max:.0f}, {switches.trim:.0f} | {name} "
                f"| {min(first):.2f}-{max(first):.2f} | {min(second):.2f}-{max(second):.2f} "
                f"| {mean(run.share_on_shared for run in runs):.1%} | {mean(run.queue for run in runs):.1f} |",
                flush=True,
            )
    skip.PERSISTENT = RESTS
