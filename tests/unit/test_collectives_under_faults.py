"""Collectives over the real transports while packets are lost and damaged and a rank is killed: what is counted as done is
right bit for bit, whatever it took.
"""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from tests.support.cluster import MS, Cluster, cluster

HEAD = """\
name: faults
topology: {{planes: 2, t0_groups: 2, t1_per_plane: 2, hosts_per_t0: 2}}
links: {{rate: 50mbit, delay: 5ms, mtu: 2000}}
transport: {{kind: {kind}, payload: 1024B, qps: {qps}}}
seed: 5
workload:
  - {{{job}}}
"""
JOBS = {
    "ring": "kind: ring_allreduce, hosts: all, message: 24KiB",
    "all_to_all": "kind: all_to_all, hosts: all, message: 8KiB",
    "training": "kind: training, hosts: all, message: 24KiB, compute: 5ms",
}


def started(made: Cluster) -> None:
    made.say({"type": "start", "t0_ns": made.now + 20 * MS})


def verdicts(made: Cluster) -> list[int]:
    """Every step that a rank completed, after a check that every message and every step of it is right."""
    done = []
    for host in range(4):
        steps, messages = made.records(host, "steps"), made.records(host, "messages")
        assert set(steps["verdict"]) <= {1}
        assert set(messages["verdict"]) <= {0, 1}, "unfinished, or right"
        assert steps["step"].tolist() == list(range(len(steps)))
        done.append(len(steps))
    return done


@pytest.mark.parametrize(("kind", "qps"), [("mrc", 1), ("mrc", 3), ("rc", 3)])
@pytest.mark.parametrize("job", JOBS)
def test_lost_and_damaged_packets_change_no_result(tmp_path: Path, job: str, kind: str, qps: int) -> None:
    draw = random.Random(f"{job} {kind} {qps}")
    hurt = {"lost": 0, "damaged": 0}
    with cluster(tmp_path, HEAD.format(kind=kind, qps=qps, job=JOBS[job]), real=True) as made:

        def damage(_target: int, packet: bytes) -> bytes | None:
            drawn = draw.random()
            if drawn < 0.01:
                hurt["lost"] += 1
                return None
            if drawn < 0.02:
                hurt["damaged"] += 1
                at = draw.randrange(40, len(packet))
                return packet[:at] + bytes((packet[at] ^ 1 << draw.randrange(8),)) + packet[at + 1 :]
            return packet

        made.damage = damage
        started(made)
        made.run(1200 * MS)
        made.damage = lambda _target, packet: packet
        made.say({"type": "stop"})
        made.run(2500 * MS)
        assert all(session.workloads.drained for session in made.sessions.values())
    assert min(verdicts(made)) >= 3
    assert min(hurt.values()) > 3
    assert sum(int(np.sum(made.records(host, "packets")["retransmission"])) for host in range(4)) > 3


@pytest.mark.parametrize(("kind", "qps"), [("mrc", 1), ("rc", 3)])
@pytest.mark.parametrize("job", JOBS)
def test_a_killed_rank_stops_the_job_and_spoils_nothing(tmp_path: Path, job: str, kind: str, qps: int) -> None:
    with cluster(tmp_path, HEAD.format(kind=kind, qps=qps, job=JOBS[job]), real=True) as made:
        started(made)
        made.run(400 * MS)
        made.kill(2)
        made.run(300 * MS)
        before = [session.workloads.messages for session in made.sessions.values()]
        made.run(500 * MS)
        assert [session.workloads.messages for session in made.sessions.values()] == before, "nobody goes on without it"
    done = verdicts(made)
    assert min(done) >= 3
    assert max(done) - min(done) <= 1
