"""Jobs on a handful of hosts in one process: what collectives compute, in which order, and what wrong bytes lead to."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from testbed.host import lanes
from testbed.host.collectives import Rings
from testbed.host.flows import Stripe
from testbed.host.poisson import Sizes
from testbed.model import flows as model_flows
from tests.support.cluster import MS, ONE_WAY_NS, Cluster, cluster
from tests.support.host_fakes import DATA, HEADER

HEAD = """\
name: jobs
topology: {planes: 2, t0_groups: 2, t1_per_plane: 2, hosts_per_t0: 3}
links: {rate: 50mbit, delay: 5ms, mtu: 2000}
transport: {payload: 1024B}
seed: 5
workload:
"""


def run(directory: Path, *workload: str, ms: int = 400, drain_ms: int = 300, qps: int = 1) -> Cluster:
    head = HEAD.replace("payload: 1024B", f"payload: 1024B, qps: {qps}")
    with cluster(directory, head + "".join(f"  - {{{entry}}}\n" for entry in workload)) as made:
        made.say({"type": "start", "t0_ns": made.now + 20 * MS})
        made.run(ms * MS)
        made.say({"type": "stop"})
        made.run(drain_ms * MS)
        assert all(session.workloads.drained for session in made.sessions.values())
    return made


def test_lanes_are_as_wide_as_the_model_says() -> None:
    assert lanes.LANE_BYTES == model_flows.LANE_BYTES


@pytest.mark.parametrize("ranks", [2, 3, 7, 64])
def test_sums_of_lanes_are_what_numpy_says(ranks: int) -> None:
    inputs = lanes.Inputs("seed", ranks)
    drawn = [np.frombuffer(inputs.period(rank), "<u4").astype(np.uint64) for rank in range(ranks)]
    assert len({period.tobytes() for period in drawn}) == ranks
    sums = inputs.sums(1, ranks)
    assert len(sums) == ranks
    for count, period in enumerate(sums, 1):
        expected = np.sum([drawn[(1 - back) % ranks] for back in range(count)], axis=0)
        assert np.array_equal(np.frombuffer(period, "<u4"), expected)
        assert expected.max() < 2**32


def test_pattern_slices_wrap_and_move_with_the_step() -> None:
    period = random.Random(1).randbytes(lanes.PERIOD)
    pattern = lanes.Pattern(period, 3 * lanes.PERIOD)
    long = pattern.slice(0, 4, 2 * lanes.PERIOD)
    assert bytes(long) == (period + period + period)[4 : 4 + 2 * lanes.PERIOD]
    assert bytes(pattern.slice(1, 0, 64)) == bytes(pattern.slice(0, lanes.STEP_LANES * 4, 64))


@pytest.mark.parametrize(("hosts", "message"), [("all", "60KiB"), ("[h4, h0]", "10001B"), ("[h5, h0, h3]", "12B")])
def test_every_rank_of_a_ring_ends_with_the_sum_of_all(tmp_path: Path, hosts: str, message: str) -> None:
    made = run(tmp_path, f"kind: ring_allreduce, hosts: {hosts}, message: {message}", ms=900)
    spec = made.scenario.workload[0]
    ranks = len(spec.hosts)
    assert [(flow.source, flow.target) for flow in made.flows] == list(
        zip(spec.hosts, spec.hosts[1:] + spec.hosts[:1], strict=True)
    )
    for host in spec.hosts:
        steps = made.records(host, "steps")
        assert len(steps) > 3
        assert steps["step"].tolist() == list(range(len(steps)))
        assert set(steps["verdict"]) == {1}
        assert (steps["ready_ns"] == steps["start_ns"]).all()
        assert (steps["start_ns"][1:] == steps["end_ns"][:-1]).all()
        messages = made.records(host, "messages")
        assert set(messages["verdict"]) == {1}
        assert set(messages["bytes"]) == {made.flows[0].message}
        got = messages[messages["role"] == 1]
        assert len(got) >= len(steps) * 2 * (ranks - 1)
        assert (got["start_ns"] > 0).all()
        # nothing can be faster than the latency steps
        assert (steps["end_ns"] - steps["start_ns"] >= 2 * (ranks - 1) * ONE_WAY_NS)[1:].all()


def test_the_result_is_the_sum_of_the_inputs(tmp_path: Path) -> None:
    """Worked out with numpy from the inputs, not from the patterns the host compares with."""
    made = run(tmp_path, "kind: ring_allreduce, hosts: h0-h3, message: 16000B, iterations: 3")
    for host in range(4):
        (workload,) = made.sessions[host].workloads.active
        ring = workload._collective  # type: ignore[attr-defined]
        result = b"".join(ring._result)
        inputs = lanes.Inputs(f"{made.scenario.seed} 0", 4)
        places = (np.arange(4000) + 2 * lanes.STEP_LANES) % lanes.PERIOD_LANES
        expected = sum(np.frombuffer(inputs.period(rank), "<u4").astype(np.uint64)[places] for rank in range(4))
        assert np.array_equal(np.frombuffer(result, "<u4"), expected)
        assert len(made.records(host, "steps")) == 3


def test_with_several_qps_each_carries_a_ring_over_its_part_of_the_buffer(tmp_path: Path) -> None:
    """Of 16,000 bytes and four ranks, three rings of 4 x 1,336: the last one's end is padding. Worked out with numpy."""
    made = run(tmp_path, "kind: ring_allreduce, hosts: h0-h3, message: 16000B, iterations: 3", qps=3)
    assert {flow.message for flow in made.flows} == {1336}
    for host in range(4):
        (workload,) = made.sessions[host].workloads.active
        rings = workload._collective._rings  # type: ignore[attr-defined]
        result = b"".join(chunk for ring in rings for chunk in ring._result)
        inputs = lanes.Inputs(f"{made.scenario.seed} 0", 4)
        places = (np.arange(len(result) // 4) + 2 * lanes.STEP_LANES) % lanes.PERIOD_LANES
        expected = sum(np.frombuffer(inputs.period(rank), "<u4").astype(np.uint64)[places] for rank in range(4))
        assert len(result) == 3 * 4 * 1336
        assert np.array_equal(np.frombuffer(result, "<u4"), expected)
        assert set(made.records(host, "steps")["verdict"]) == {1}
        sent = made.records(host, "messages")
        assert sorted(sent[sent["role"] == 0]["message"]) == list(range(3 * 3 * 6))
        assert len(made.sessions[host].workloads.senders) == len(set(made.records(host, "packets")["qp"])) == 3


def test_a_ring_over_several_qps_goes_on_when_the_parts_of_all_have_come() -> None:
    taken: list[tuple[int, bytes]] = []

    class Ring:
        def __init__(self, place: int) -> None:
            self.place = place

        def take(self, data: bytes, right: bool, now: int) -> None:
            taken.append((self.place, data))

    class Receiver:
        def __init__(self, place: int) -> None:
            self.stripe = Stripe(place, 2)

        def content(self, number: int) -> bytes:
            return b"%d" % number

    rings = Rings([Ring(0), Ring(1)])  # type: ignore[list-item]
    for place, number in ((0, 0), (0, 1), (1, 0), (1, 1)):
        rings.on_received(Receiver(place), number, True, 0)  # type: ignore[arg-type]
        assert len(taken) == {(0, 0): 0, (0, 1): 0, (1, 0): 2, (1, 1): 4}[place, number]
    assert taken == [(0, b"0"), (1, b"0"), (0, b"1"), (1, b"1")]


def test_with_several_qps_an_all_to_all_cuts_each_part_into_a_message_for_each(tmp_path: Path) -> None:
    made = run(tmp_path, "kind: all_to_all, hosts: h0-h2, message: 10001B", qps=4)
    assert {flow.message for flow in made.flows} == {2501}
    for host in range(3):
        steps = made.records(host, "steps")
        assert len(steps) > 3
        assert set(steps["verdict"]) == {1}
        sent = made.records(host, "messages")
        sent = sent[(sent["role"] == 0) & (sent["flow"] == 2 * host)]
        assert sorted(sent["message"]) == list(range(len(sent)))
        assert len(sent) >= 4 * len(steps)


def test_with_several_qps_each_keeps_depth_messages_outstanding_and_none_waits_for_another(tmp_path: Path) -> None:
    text = HEAD.replace("payload: 1024B", "payload: 1024B, qps: 4")
    with cluster(tmp_path, text + "  - {kind: stream, from: h0, to: h3, message: 8KiB, depth: 3}\n") as made:
        stuck, *others = made.sessions[0].workloads.senders
        remote = made.sessions[0].endpoint.pairs[stuck].remote  # type: ignore[attr-defined]
        made.damage = lambda target, packet: None if (target, HEADER.unpack_from(packet)[1]) == (3, remote) else packet
        made.say({"type": "start", "t0_ns": made.now + 20 * MS})
        made.run(21 * MS)
        posted = made.sessions[0].endpoint.posted  # type: ignore[attr-defined]
        assert [wr_id for _, wr_id, *_ in posted] == [0, 1, 2] * 4
        made.run(300 * MS)
        senders = made.sessions[0].workloads.senders
        assert senders[stuck].completed == 0
        assert min(senders[qp].completed for qp in others) > 10
    rows = made.records(3, "messages")
    assert set(rows["verdict"]) == {1}, "each message is the one its number in the flow says"
    assert set(rows["message"] % 4) == {1, 2, 3}
    samples = made.records(0, "samples")
    sent = samples[samples["role"] == 0]
    assert len(sent) == 2 * len(np.unique(sent["t_ns"])), "one row per plane, whatever the number of QPs"


def test_all_to_all_moves_every_part_once_per_step(tmp_path: Path) -> None:
    made = run(tmp_path, "kind: all_to_all, hosts: h0-h3, message: 8KiB")
    assert len(made.flows) == 12
    for host in range(4):
        steps = made.records(host, "steps")
        assert len(steps) > 3
        assert set(steps["verdict"]) == {1}
        got = made.records(host, "messages")
        got = got[got["role"] == 1]
        last = steps["end_ns"][-1]
        assert (np.unique(got[got["end_ns"] <= last]["message"], return_counts=True)[1] >= 3).all()


def test_a_training_step_computes_and_then_communicates(tmp_path: Path) -> None:
    made = run(tmp_path, "kind: training, hosts: all, message: 24KiB, compute: 40ms, steps: 3, start: 10ms", ms=1000)
    t0 = 1_000 * MS + 20 * MS
    for host in range(6):
        steps = made.records(host, "steps")
        assert len(steps) == 3
        assert steps["start_ns"][0] == t0 + 10 * MS
        assert (steps["ready_ns"] - steps["start_ns"] == 40 * MS).all()
        assert set(steps["verdict"]) == {1}


def test_a_rank_that_is_late_holds_all_others_and_loses_nothing(tmp_path: Path) -> None:
    """Its predecessor runs ahead by as many messages as a ring lets it, into two slots."""
    with cluster(tmp_path, HEAD + "  - {kind: ring_allreduce, hosts: all, message: 24KiB}\n") as made:
        made.say({"type": "start", "t0_ns": made.now + 20 * MS})
        late = made.sessions[2].workloads.active[0]
        late._deadline += 200 * MS  # type: ignore[attr-defined]
        made.sessions[2].workloads._update()
        made.sessions[2]._update_deadline()
        made.run(200 * MS)
        assert made.sessions[2].workloads.receivers.popitem()[1].checked == 5
        assert late._step == 0  # type: ignore[attr-defined]
    made = run(tmp_path, "kind: ring_allreduce, hosts: all, message: 24KiB")
    assert set(made.records(2, "steps")["verdict"]) == {1}


@pytest.mark.parametrize("kind", ["ring_allreduce", "all_to_all"])
def test_a_wrong_byte_makes_the_message_and_the_step_wrong(tmp_path: Path, kind: str) -> None:
    text = HEAD + f"  - {{kind: {kind}, hosts: h0-h3, message: 32KiB}}\n"
    with cluster(tmp_path, text) as made:
        hit: list[int] = []

        def damage(target: int, packet: bytes) -> bytes:
            if hit or target != 1 or HEADER.unpack_from(packet)[7] != DATA or len(packet) < 1000:
                return packet
            hit.append(target)
            return packet[:-100] + bytes([packet[-100] ^ 4]) + packet[-99:]

        made.damage = damage
        made.say({"type": "start", "t0_ns": made.now + 20 * MS})
        made.run(500 * MS)
    assert hit
    messages = made.records(1, "messages")
    assert messages[messages["role"] == 1]["verdict"].tolist().count(2) >= 1
    assert made.records(1, "steps")["verdict"][0] == 2
    assert set(made.records(1, "steps")["verdict"][1:]) == {1}


@pytest.mark.parametrize("qps", [1, 3])
def test_poisson_offers_its_load_in_drawn_sizes(tmp_path: Path, qps: int) -> None:
    made = run(tmp_path, "kind: poisson, hosts: h0-h2, load: 0.05, sizes: [1KiB, 4KiB, 31KiB], depth: 8", ms=6000, qps=qps)
    rows = [made.records(host, "messages") for host in range(3)]
    sent = np.concatenate([host[host["role"] == 0] for host in rows])
    got = np.concatenate([host[host["role"] == 1] for host in rows])
    assert len(sent) == len(got) > 100
    assert set(sent["verdict"]) == set(got["verdict"]) == {1}
    assert set(sent["bytes"]) == {1024, 4096, 31 * 1024}
    for flow in made.flows:
        sizes = Sizes("5", flow.id, (1024, 4096, 31 * 1024))
        mine = np.sort(sent[sent["flow"] == flow.id], order="message")
        assert mine["bytes"].tolist() == [sizes.of(number) for number in range(len(mine))]
    offered = 0.05 * 3 * 2 * 50e6 * 1024 / (1024 + 142 + 24) / 8 * 5.98
    assert 0.7 * offered < sent["bytes"].sum() < 1.4 * offered
    gaps = np.diff(np.sort(sent[sent["flow"] == 0]["start_ns"]))
    assert 0.5 < gaps.std() / gaps.mean() < 1.6  # 1 for exponential gaps


def test_two_jobs_on_the_same_hosts_do_not_mix(tmp_path: Path) -> None:
    made = run(
        tmp_path,
        "kind: training, hosts: [h0, h3, h1], message: 24KiB, compute: 10ms, job: one",
        "kind: training, hosts: [h1, h3], message: 24KiB, compute: 10ms, collective: all_to_all, job: other",
        "kind: stream, from: h1, to: h3, message: 8KiB",
    )
    rows = made.records(3, "steps")
    assert set(rows["job"]) == {0, 1}
    assert set(rows["verdict"]) == {1}
    assert set(made.records(3, "messages")["verdict"]) == {1}
    assert len(made.sessions[1].workloads.active) == 3
