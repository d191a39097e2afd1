"""iperf3's results whatever they are (pitfall H-12), and flows that are only called by the name of what they were."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from testbed.host.records import Table
from testbed.iperf.plan import Flow, HostPlan
from testbed.iperf.result import parse
from testbed.iperf.sampling import RECEIVER, SENDER, STREAM, Sampler
from testbed.iperf.sockets import Info, Whole
from testbed.model import load, tcp
from testbed.model.flows import flows
from testbed.model.paths import paths
from testbed.model.scenario import Scenario
from testbed.model.topology import build
from testbed.run import iperf
from testbed.run.records import read

GOOD = '{"start": {}, "end": {"sum_sent": {"bytes": 10, "retransmits": 2}, "sum_received": {"bytes": 9}}}'
BAD = {
    "nothing": ("", "iperf3 said nothing"),
    "text": ("iperf3: error - unable to connect", "iperf3 gave no JSON: 'iperf3: error - unable to connect'"),
    "half": (GOOD[:30], "iperf3 gave no JSON"),
    "trailing text": (
        GOOD + "\niperf3: interrupt - the server has terminated",
        "iperf3 added to its result: 'iperf3: interrupt",
    ),
    "error and empty end": (
        '{"start": {}, "intervals": [], "end": {}, "error": "the server has terminated"}',
        "iperf3: the server",
    ),
    "empty end": ('{"start": {}, "intervals": [], "end": {}}', "iperf3's result has no end"),
    "end is no mapping": ('{"end": [1]}', "iperf3's result has no end"),
    "no bytes": ('{"end": {"sum_sent": {"bytes": 0}, "sum_received": {"bytes": 0}}}', "no byte was carried"),
    "not a mapping": ("[1, 2]", "iperf3 gave no result"),
    "NaN": ('{"end": {"sum_sent": {"bytes": NaN}, "sum_received": {"bytes": nan}}}', "iperf3 gave no JSON"),
    "only NaN": ('{"end": {"sum_sent": {"bytes": NaN}, "sum_received": {"bytes": -Infinity}}}', "iperf3's result has no end"),
}


@pytest.mark.parametrize("name", BAD)
def test_h12_what_is_no_result_is_a_reason_and_never_a_traceback(name: str) -> None:
    text, reason = BAD[name]
    assert parse(text).failure.startswith(reason)


def test_h12_a_number_that_is_none_is_not_one() -> None:
    assert parse(GOOD).failure == ""
    assert (parse(GOOD).sent_bytes, parse(GOOD).retransmits, parse(GOOD).cpu_percent) == (10, 2, None)
    mixed = parse('{"end": {"sum_sent": {"bytes": NaN, "retransmits": "3"}, "sum_received": {"bytes": 7}}}')
    assert (mixed.failure, mixed.sent_bytes, mixed.received_bytes, mixed.retransmits) == ("", None, 7, None)


TWO = """
name: two
topology: {planes: 2, t0_groups: 2, t1_per_plane: 2, hosts_per_t0: 2}
links: {rate: 5mbit, delay: 20ms}
transport: {kind: mptcp}
workload:
  - {kind: permutation, message: 64KiB}
measure: {warmup: 15s, duration: 20s}
"""


def two(*overrides: str) -> Scenario:
    return load.load_text(TWO, "two.yaml", overrides)


def test_over_srv6_every_tunnel_is_a_path_of_its_pair_and_ports_are_one_flow_s() -> None:
    for scenario, per_way in ((two(), 2), (two("transport.kind=tcp"), 1)):
        topology = build(scenario.topology)
        every = flows(scenario, topology)
        found = tcp.connections(scenario, topology, every)
        assert len({one.port for one in found}) == len({one.client_port for one in found}) == len(every)
        tunnels = tcp.tunnels(scenario, topology, every)
        for one in found:
            there = [tunnel for tunnel in tunnels if tunnel.host == one.flow.source and tunnel.target == one.target]
            known = {path.address for path in paths(topology, one.flow.source, one.flow.target)}
            assert len({tunnel.plane for tunnel in there}) == len({tunnel.metric for tunnel in there}) == per_way
            assert {tunnel.segment for tunnel in there} <= known
            assert [path.address for path in one.paths] == [tunnel.segment for tunnel in there]
            back = {tunnel.target for tunnel in tunnels if tunnel.host == one.flow.target}
            assert {tcp.address(scenario, plane, one.flow.source) for plane in range(2)} <= back
    assert tcp.tunnels(two("routing=ecmp"), build(two().topology), ()) == ()


def end(**changes: Any) -> dict[str, Any]:
    sound = {"flow": 0, "failure": "", "subflows": {"a": 1, "b": 1}, "segments": 5, "retransmissions": 0, "placed_bytes": 9}
    return sound | {"iperf3": {}, "congestion": "cubic"} | changes


def test_h14_a_flow_with_fewer_subflows_than_planes_has_failed() -> None:
    scenario = two("workload=[{kind: stream, from: h0, to: h2, message: 64KiB}]")
    topology = build(scenario.topology)
    found = tcp.connections(scenario, topology, flows(scenario, topology))

    def failure(sender: dict[str, Any] | None, receiver: dict[str, Any]) -> str:
        byes = {"h2": {"flows": [receiver]}} | ({} if sender is None else {"h0": {"flows": [sender]}})
        (report,) = iperf.outcome(scenario, found, {0: []}, byes)
        return str(report["failure"])

    assert failure(end(), end()) == ""
    assert failure(end(subflows={"a": 1}), end()) == "h0 had 1 subflows on 1 of 2 planes"
    assert failure(end(), end(subflows={"a": 2})) == "h2 had 2 subflows on 1 of 2 planes"
    assert failure(end(failure="MPTCP fell back to TCP"), end()) == "h0: MPTCP fell back to TCP"
    assert failure(None, end()) == "h0 did not live to tell"


def info(local: str, remote: str, ports: tuple[int, int], token: int, sent: int = 0, received: int = 0) -> Info:
    return Info(local, ports[0], remote, ports[1], token, 1000, 10, 2, 500, 1, 7, sent, received, "cubic")


class Kernel:
    """What sock_diag would say."""

    def __init__(self) -> None:
        self.tcp: list[Info] = []
        self.whole: list[Whole] = []

    def connections(self) -> list[Info]:
        return self.tcp

    def mptcp(self) -> list[Whole]:
        return self.whole


def test_samples_follow_subflows_by_their_token_and_a_fallback_is_seen(tmp_path: Path) -> None:
    flow = Flow(3, True, "t", "a0", "", 5204, 30000, 0, 5)
    taking = Flow(4, False, "t", "a0", "", 5205, 30001, 0, 5)
    plan = HostPlan("h0", str(tmp_path), 100, 100, True, "cubic", {"a0": 0, "a1": 1, "b1": 1}, {}, (flow, taking))
    kernel, table = Kernel(), Table(str(tmp_path), "connections")
    sampler = Sampler(plan, table, kernel)  # type: ignore[arg-type]
    sampler.sample(1000)
    kernel.whole = [Whole(30000, 5204, False, 77, 0), Whole(40000, 5204, False, 78, 0), Whole(5205, 30001, True, 79, 5000)]
    kernel.tcp = [info("a0", "t", (30000, 5204), 77, sent=100), info("a1", "t", (41000, 5204), 77, sent=40)]
    kernel.tcp += [info("a0", "t", (40000, 5204), 78, sent=9), info("t", "b1", (5205, 30001), 79, received=30)]
    sampler.sample(2000)
    kernel.tcp[0] = kernel.tcp[0]._replace(sent=150, congestion="bbr")
    sampler.sample(3000)
    table.close()
    rows = read(tmp_path / "connections.rec")
    assert rows is not None
    sent = [(int(row["t_ns"]), int(row["plane"]), int(row["bytes"])) for row in rows if row["role"] == SENDER]
    assert sent == [(2000, 0, 100), (2000, 1, 40), (3000, 0, 50), (3000, 1, 0)]
    assert [int(row["bytes"]) for row in rows if row["role"] == STREAM] == [0, 30, 0]
    assert [int(row["plane"]) for row in rows if row["role"] == RECEIVER] == [1, 1]
    assert (sampler.seen[3].congestion, sampler.seen[4].congestion) == ({"bbr", "cubic"}, {"cubic"})
    assert sampler.seen[3].subflows == {"a0": 1, "a1": 1}
    assert (sampler.seen[3].mptcp, sampler.seen[3].fell_back) == (True, False)
    assert (sampler.seen[4].mptcp, sampler.seen[4].fell_back) == (False, True)
