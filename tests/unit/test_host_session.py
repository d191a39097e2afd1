"""Two hosts in one process, under a virtual clock: the runner's messages, flows, calibration, records."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from testbed.host.control import Control, ControlError
from testbed.host.flows import FlowError
from testbed.host.plan import PlanError, parse
from testbed.host.samples import Lag
from testbed.host.session import Phase, Session
from tests.support.host_fakes import HEADER, FakeEndpoint, ImmediateReceived, QueuePairError, WriteComplete, make_nic
from tests.support.host_plans import pair_plan
from tests.support.host_world import MS, ONE_WAY_NS, World

Make = Callable[..., World]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    with ExitStack() as stack:

        def build(**settings: Any) -> World:
            world = World(tmp_path, **settings)
            for host in world.hosts:
                stack.enter_context(host.runner)
                stack.callback(host.session.control.close)
            return world

        yield build


@pytest.fixture
def world(make: Make) -> World:
    return make()


def test_ready_gives_regions_on_the_receiving_side_only(world: World) -> None:
    for index, host in enumerate(world.hosts):
        (ready,) = host.told()
        assert ready["type"] == "ready"
        for entry in ready["flows"]:
            assert set(entry) == {"flow", "stripe", "qpn", "psn", "port", "rkey", "va", "length"}
            sending = entry["flow"] == index
            assert (entry["rkey"] is None) == sending
            assert entry["length"] == (None if sending else 2 * 10_000)


def test_decisions_are_recorded_where_the_plan_asks_for_them(make: Make) -> None:
    for trace in (False, True):
        world = make(trace=trace)
        recorder = world.hosts[0].session.recorder
        assert (recorder.decision is not None) == trace
        if recorder.decision is not None:
            recorder.decision(5, 1, 16, 7, 65537, -1)
        world.finish()
        left = Path(world.hosts[0].session.plan.records) / "trace.rec"
        assert left.exists() == trace
    assert world.records(0, "trace").tolist() == [(5, 1, 16, 7, 65537, -1)]


def test_messages_flow_and_are_checked_on_both_sides(world: World) -> None:
    world.connect()
    t0 = world.start()
    world.run(500 * MS)
    assert world.hosts[0].endpoint.posted[0][4] == t0
    for host in world.hosts:
        world.say(host, {"type": "stop"})
    world.run(200 * MS)
    world.finish()
    for index, host in enumerate(world.hosts):
        told = host.told()
        assert [message["type"] for message in told].count("drained") == 1
        progress = [message for message in told if message["type"] == "progress"]
        assert set(progress[0]) == {
            *(
                "type",
                "t_ns",
                "placed_bytes",
                "acked_bytes",
                "packets_sent",
                "retransmissions",
                "messages",
                "lag_ns_max",
                "counters",
            )
        }
        assert progress[-1]["counters"]["placed_bytes"] == progress[-1]["placed_bytes"] > 0
        assert progress[-1]["counters"]["messages_completed"] == progress[-1]["messages"]
        rows = world.records(index, "messages")
        sent, got = rows[rows["role"] == 0], rows[rows["role"] == 1]
        assert len(sent) > 10
        assert sent["message"].tolist() == list(range(len(sent)))
        assert got["message"].tolist() == list(range(len(got)))
        assert set(rows["verdict"]) == {1}
        assert set(rows["bytes"]) == {10_000}
        assert (sent["end_ns"] - sent["start_ns"] >= 2 * ONE_WAY_NS).all()
        assert (got["start_ns"] > 0).all()
        assert (got["start_ns"] <= got["end_ns"]).all()
        assert host.session.workloads.counters()["messages_completed"] == len(sent)
        assert host.endpoint.flushed


def test_depth_bounds_what_is_outstanding_and_slots_are_used_in_turn(make: Make) -> None:
    world = make(depth=3, both=False)
    world.connect()
    world.start()
    world.run(20 * MS)
    endpoint = world.hosts[0].endpoint
    assert [(wr_id, immediate) for _, wr_id, _, immediate, _ in endpoint.posted] == [(0, 0), (1, 1), (2, 2)]
    world.run(300 * MS)
    base = endpoint.posted[0][2]
    assert [address - base for _, _, address, _, _ in endpoint.posted[:7]] == [0, 10_000, 20_000, 0, 10_000, 20_000, 0]


def test_a_flow_stops_posting_at_its_own_stop(make: Make) -> None:
    world = make(both=False, stop_ns=100 * MS)
    world.connect()
    t0 = world.start()
    world.run(400 * MS)
    assert world.hosts[0].endpoint.posted[-1][4] < t0 + 100 * MS
    assert world.hosts[0].session.workloads.senders.popitem()[1].drained
    assert "drained" not in {message["type"] for message in world.hosts[0].told()}
    world.say(world.hosts[0], {"type": "stop"})
    assert {"type": "drained"} in world.hosts[0].told()


def test_a_host_without_sends_is_drained_at_once(make: Make) -> None:
    world = make(both=False)
    world.connect()
    world.start()
    world.say(world.hosts[1], {"type": "stop"})
    assert world.hosts[1].told() == [{"type": "drained"}]


def test_the_denylist_of_the_plan_and_of_the_runner_reaches_the_endpoint(tmp_path: Path) -> None:
    raw = pair_plan(tmp_path, 0)
    raw["peers"][0]["denied"] = [1 << 16]
    ours, theirs = socket.socketpair()
    with ours, theirs:
        session = Session(parse(raw), Control(ours), make_nic, 0)
        assert isinstance(session.endpoint, FakeEndpoint)
        assert session.endpoint.denied == [(1, 1 << 16)]
        with pytest.raises(ControlError, match="'deny' while ready"):
            session.on_message({"type": "deny", "evs": [[1, 0]]}, 0)
        session.phase = Phase.RUNNING
        session.on_message({"type": "allow", "evs": [[1, 1 << 16]]}, 0)
        session.on_message({"type": "deny", "evs": [[1, 0]]}, 0)
        assert session.endpoint.denied == [(1, 0)]


def test_the_last_path_is_not_denied_and_the_log_says_so(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    world.connect()
    world.start()
    world.hosts[0].endpoint.undeniable = "the last usable path to a destination cannot be denied"
    world.say(world.hosts[0], {"type": "deny", "evs": [[1, 65536]]})
    assert "h0: EV 0x10000 towards peer 1 stays in use: the last usable path" in capsys.readouterr().err


@pytest.mark.parametrize("damage", ["flip", "lost", "other place"])
def test_a_message_that_is_not_right_is_corrupt(make: Make, damage: str, capsys: pytest.CaptureFixture[str]) -> None:
    world = make(both=False)
    world.connect()
    world.start()
    world.run(22 * MS)
    at = next(index for index, (_, target, packet, _) in enumerate(world.wire) if target == 1 and len(packet) > 1000)
    arrival, target, packet, tclass = world.wire[at]
    changed = bytearray(packet)
    if damage == "flip":
        changed[-7] ^= 0x10
    elif damage == "lost":
        del changed[HEADER.size :]
    else:
        fields = list(HEADER.unpack_from(packet))
        fields[5] += 1024
        changed[: HEADER.size] = HEADER.pack(*fields)
    world.wire[at] = (arrival, target, bytes(changed), tclass)
    world.run(300 * MS)
    world.finish()
    rows = world.records(1, "messages")
    assert rows["verdict"].tolist()[:3] == [2, 1, 1]
    assert world.hosts[1].session.workloads.counters()["messages_corrupt"] == 1
    assert capsys.readouterr().err.startswith("h1: flow 0: message 0 differs from byte ")


def test_a_message_said_to_be_there_twice_is_corrupt(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    world.connect()
    world.start()
    world.run(300 * MS)
    receiver = world.hosts[1].session.workloads.receivers.popitem()[1]
    world.hosts[1].session.workloads.receivers[receiver.qp] = receiver
    world.hosts[1].endpoint.pending.append(ImmediateReceived(receiver.qp, receiver.checked - 1, world.now))
    world.hosts[1].session.on_events(world.now)
    assert receiver.corrupt == 1
    assert "was next" in capsys.readouterr().err


def test_what_was_under_way_is_recorded_as_incomplete(make: Make) -> None:
    world = make(both=False, message=40_000)
    world.connect()
    t0 = world.start()
    world.run(28 * MS)
    world.finish()
    sent, got = world.records(0, "messages"), world.records(1, "messages")
    assert sent[["role", "message", "start_ns", "end_ns", "verdict"]].tolist() == [(0, 0, t0, 0, 0), (0, 1, t0, 0, 0)]
    assert got[["role", "message", "start_ns", "end_ns", "verdict"]].tolist() == [(1, 0, t0 + ONE_WAY_NS, 0, 0)]


def test_calibration_reports_the_round_trip_of_each_plane(world: World) -> None:
    world.connect()
    sender = world.hosts[0]
    world.say(sender, {"type": "calibrate", "flow": 0, "count": 8})
    with pytest.raises(ControlError, match="while calibrating"):
        world.say(sender, {"type": "start", "t0_ns": world.now})
    world.run(200 * MS)
    (answer,) = sender.told()
    assert answer["type"] == "calibrated"
    assert [entry["plane"] for entry in answer["rtts"]] == [0, 1] * 4
    assert {entry["rtt_ns"] for entry in answer["rtts"]} == {2 * ONE_WAY_NS}
    # The calibration's writes do not count as messages, and the first bytes of message 0 are still told apart.
    t0 = world.start()
    world.run(300 * MS)
    world.finish()
    rows = world.records(1, "messages")
    got = rows[(rows["role"] == 1) & (rows["flow"] == 0)]
    assert got["start_ns"][0] == t0 + ONE_WAY_NS
    assert got["verdict"][:10].tolist() == [1] * 10


def test_samples_add_up_to_the_bytes_of_both_sides(world: World) -> None:
    world.connect()
    world.start()
    world.run(1000 * MS)
    for host in world.hosts:
        host.session.sampler.on_timer(world.now)
    world.finish()
    for index, host in enumerate(world.hosts):
        rows = world.records(index, "samples")
        assert set(rows["plane"]) == {0, 1}
        assert rows[rows["role"] == 1]["bytes"].sum() == host.endpoint.placed_bytes
        assert rows[rows["role"] == 0]["bytes"].sum() == sum(
            sum(pair.requester.sent_bytes.values()) for pair in host.endpoint.pairs.values()
        )
        loop = world.records(index, "loop")
        assert len(loop) >= 10
        assert (loop["lag_ns_max"] >= loop["lag_ns_p99"]).all()


def test_records_are_on_disk_before_the_end(world: World) -> None:
    world.connect()
    world.start()
    world.run(3000 * MS)
    for index in (0, 1):
        assert world.now - world.records(index, "packets")["fate_ns"].max() < 1000 * MS
        assert world.now - world.records(index, "loop")["t_ns"].max() < 1000 * MS


def test_a_queue_pair_in_error_ends_its_flow_only(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    world.connect()
    world.start()
    world.run(100 * MS)
    host = world.hosts[0]
    (qp,) = host.session.workloads.senders
    posted = len(host.endpoint.posted)
    completed = host.session.workloads.senders[qp].completed
    world.wire.clear()  # what is on the way belongs to messages whose completion is made up here
    host.endpoint.pending = [WriteComplete(qp, completed, world.now), QueuePairError(qp, "retries exceeded")]
    host.session.on_events(world.now)
    assert host.session.workloads.senders[qp].completed == completed + 1
    world.run(100 * MS)
    assert len(host.endpoint.posted) == posted
    assert "retries exceeded" in capsys.readouterr().err
    world.say(host, {"type": "stop"})
    assert {"type": "drained"} in host.told()
    assert host.session.workloads.counters()["qp_errors"] == 1


def test_a_queue_pair_in_error_before_its_flow_begins_leaves_no_timer(world: World) -> None:
    world.connect()
    host = world.hosts[0]
    world.start()
    assert host.session.workloads.deadline is not None
    (qp,) = host.session.workloads.senders
    host.endpoint.pending = [QueuePairError(qp, "retries exceeded")]
    host.session.on_events(world.now)
    assert host.session.workloads.deadline is None


def test_a_completion_out_of_order_is_not_accepted(world: World) -> None:
    world.connect()
    world.start()
    world.run(22 * MS)
    (sender,) = world.hosts[0].session.workloads.senders.values()
    with pytest.raises(FlowError, match="message 1 completed, 0 was next"):
        sender.on_complete(1, world.now)


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ({"type": "dance"}, "unknown message 'dance'"),
        ({"type": "start", "t0_ns": 1}, "'start' while ready"),
        ({"type": "connect"}, "malformed 'connect': KeyError 'flows'"),
        ({"type": "connect", "flows": [{"flow": 9, "stripe": 0}]}, "malformed 'connect': KeyError 9"),
        ({"type": "connect", "flows": []}, r"leaves out flows \[0, 1\]"),
    ],
)
def test_wrong_messages_are_refused(world: World, message: dict[str, Any], text: str) -> None:
    with pytest.raises(ControlError, match=text):
        world.say(world.hosts[0], message)


def test_a_region_that_is_too_short_is_refused(world: World) -> None:
    flows = world.hosts[1].told()[0]["flows"]
    for entry in flows:
        entry["length"] = 19_999
    with pytest.raises(FlowError, match="too short"):
        world.say(world.hosts[0], {"type": "connect", "flows": flows})


def test_a_plan_without_a_peer_of_a_flow_is_refused(tmp_path: Path) -> None:
    raw = pair_plan(tmp_path, 0)
    raw["peers"][0]["host"] = "h7"
    ours, theirs = socket.socketpair()
    with ours, theirs, pytest.raises(PlanError, match="flow 0: h1 is not among the peers of h0"):
        Session(parse(raw), Control(ours), make_nic, 0)


def test_lag_is_exact_and_starts_anew_each_interval() -> None:
    lag = Lag()
    assert lag.take() == (0, 0)
    for late in range(1, 201):
        lag.add(late)
    assert lag.take() == (200, 199)
    assert lag.take() == (0, 0)
    lag.add(5)
    assert lag.take() == (5, 5)
    assert lag.take_worst() == 200
    assert lag.take_worst() == 0
