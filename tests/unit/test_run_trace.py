"""The trace that a run leaves is the one that an endpoint tells: the same history through raw files and tables."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pandas as pd

from testbed.host import records
from testbed.model.scenario import TopologySpec
from testbed.model.topology import build
from testbed.run import trace
from testbed.run.records import RecordWriter
from testbed.run.tables import Source
from testbed.transport.common.codepoints import Dscp
from testbed.transport.mrc import Trace
from testbed.transport.mrc.queue_pair import QpState
from testbed.transport.mrc.trace import Kind
from tests.support.virtual import MS, Packet, Pair, Verdict

TOPOLOGY = build(TopologySpec(planes=4, t0_groups=2, t1_per_plane=6, hosts_per_t0=1))


def stormy() -> Pair:
    """Two hosts whose packets are lost, trimmed, marked and late, and one port of whose is down for a time."""
    pair = Pair(window_frames=30)
    rng = random.Random(5)

    def rule(packet: Packet) -> Verdict:
        draw = rng.random()
        if draw < 0.03:
            return Verdict(None)
        late = 40 * MS if draw > 0.97 else 0
        return Verdict(pair.delay_ns + late, mark=0.1 < draw < 0.15, trim=Dscp.TRIMMED if 0.2 < draw < 0.22 else None)

    pair.rule = rule
    data = rng.randbytes(200_000)
    pair.write(0, data, wr_id=0)
    pair.write(1, data, wr_id=0)
    pair.run(50 * MS)
    pair.rule = lambda packet: Verdict(None)  # silence, which is probed
    pair.run(100 * MS)
    pair.rule = rule
    pair.port(0, 3, up=False)
    pair.run(100 * MS)
    pair.port(0, 3, up=True)
    assert pair.run(100_000 * MS, until=lambda: bool(pair.completed(0) and pair.completed(1)))
    return pair


def source(folder: Path, pair: Pair) -> Source:
    """The records that two hosts with this history would have left."""
    for host in (0, 1):
        where = folder / f"h{host}"
        where.mkdir()
        log: Trace = pair.log[host]
        rows: dict[str, Any] = {
            "packets": log.packets,
            "ev_states": log.states,
            "plane_states": log.planes,
            "trace": log.decisions,
        }
        for table, values in rows.items():
            writer = RecordWriter(where, table, records.TABLES[table])
            writer.write(values)
            writer.close()
    connections = [
        {"flow": host, "host": f"h{host}", "peer": f"h{1 - host}", "host_qp": own.number, "peer_qp": pair.qps[1 - host].number}
        for host, own in enumerate(pair.qps[:1])
    ]
    return Source(folder, TOPOLOGY, connections, pair.delay_ns, cores=1)


def test_codes_are_those_of_the_transport() -> None:
    assert ["", *(kind.name.lower() for kind in Kind)] == list(trace.KINDS)
    assert [state.name for state in QpState] == list(trace.QP_STATES)


def test_the_table_tells_what_the_endpoint_told(tmp_path: Path) -> None:
    pair = stormy()
    frame = trace.trace(source(tmp_path, pair))
    mine = frame[frame["host"] == "h0"]
    told = pair.log[0].history()
    assert list(mine["kind"]) == [step.what for step in told]
    assert list(mine["t_ns"]) == [step.t_ns for step in told]
    known = {"sent", "lost", "trimmed", "marked", "acknowledged", "evidence", "late", "ev_state", "plane_state", "ev_probe"}
    assert known | {"nack", "nack_sent", "qp_state", "probe", "passed_over", "window"} <= set(mine["kind"])
    of_packets = mine["kind"].isin(["sent", "lost", "evidence", "nack"])
    asked = [step for step in told if step.what in {"sent", "lost", "evidence", "nack"}]
    assert list(mine[of_packets][["psn", "ev"]].itertuples(index=False, name=None)) == [(step.psn, step.ev) for step in asked]
    assert list(mine[mine["kind"] == "lost"]["reason"]) == [step.detail for step in told if step.what == "lost"]


def test_a_loss_is_told_with_its_evidence(tmp_path: Path) -> None:
    pair = stormy()
    frame = trace.trace(source(tmp_path, pair))
    mine = frame[(frame["host"] == "h0") & (frame["flow"] == 0)]
    lost, evidence = mine[mine["kind"] == "lost"], mine[mine["kind"] == "evidence"]
    assert len(lost) > 5
    lost = lost[lost["reason"] != "port_down"]  # needs no evidence
    assert set(zip(lost["t_ns"], lost["psn"], strict=True)) == set(zip(evidence["t_ns"], evidence["psn"], strict=True))
    arrived = mine[mine["kind"].isin(["acknowledged", "marked"])].set_index("psn")["t_ns"]
    for row in evidence.itertuples():
        if row.value != -1:
            assert arrived[row.value] <= row.t_ns


def test_what_belongs_to_a_pair_of_hosts_names_both(tmp_path: Path) -> None:
    frame = trace.trace(source(tmp_path, stormy()))
    probes = frame[frame["kind"] == "ev_probe"]
    assert set(zip(probes["host"], probes["peer"], strict=True)) == {("h0", "h1"), ("h1", "h0")}
    assert probes["qp"].isna().all()
    assert probes["flow"].isna().all()
    assert probes["plane"].notna().all()
    states = frame[frame["kind"] == "qp_state"]
    assert list(states[states["host"] == "h0"]["after"]) == ["INIT", "RTR", "RTS"]
    assert (states["t_ns"] == 0).all()


def test_a_run_without_rows_has_no_trace(tmp_path: Path) -> None:
    assert trace.trace(Source(tmp_path, TOPOLOGY, [], 1, cores=1)).equals(pd.DataFrame())
