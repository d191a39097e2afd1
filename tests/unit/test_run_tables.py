"""Raw files made by hand -> tables: the join of sender and receiver rows, and what a killed run leaves behind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from testbed.model.scenario import TopologySpec
from testbed.model.topology import build
from testbed.run import tables
from testbed.run.records import RecordWriter
from testbed.run.tables import Source
from testbed.run.telemetry import COUNTERS, CPU_FIELDS, PORT_FIELDS
from testbed.transport.common import events as mrc_events
from testbed.transport.mrc import ev as mrc_ev
from testbed.transport.mrc import planes as mrc_planes

PACKETS = [
    *(("sent_ns", "<i8"), ("fate_ns", "<i8"), ("qp", "<u4"), ("psn", "<u4"), ("ev", "<u4"), ("bytes", "<u2")),
    *(("retransmission", "u1"), ("fate", "u1"), ("reason", "u1"), ("marked", "u1")),
]
RECEIVED = [
    *(("placed_ns", "<i8"), ("qp", "<u4"), ("psn", "<u4"), ("ev", "<u4"), ("bytes", "<u2"), ("flags", "<u2"), ("plane", "u1")),
]
MESSAGES = [
    *(("flow", "<u4"), ("message", "<u4"), ("role", "u1"), ("bytes", "<u4"), ("start_ns", "<i8"), ("end_ns", "<i8")),
    ("verdict", "u1"),
]
PORT_STATES = [("t_ns", "<i8"), ("plane", "u1"), ("up", "u1")]
PLANE_STATES = [("t_ns", "<i8"), ("peer", "<u2"), ("plane", "u1"), ("before", "u1"), ("after", "u1"), ("reason", "u1")]
EV_STATES = [("t_ns", "<i8"), ("peer", "<u2"), ("ev", "<u4"), ("before", "u1"), ("after", "u1"), ("reason", "u1")]
SAMPLES = [
    *(("t_ns", "<i8"), ("flow", "<u4"), ("plane", "u1"), ("role", "u1"), ("bytes", "<u4"), ("window", "<u4")),
    *(("inflight", "<u4"), ("rtt_ns", "<u4")),
]
LOOP = [
    *(("t_ns", "<i8"), ("lag_ns_max", "<u4"), ("lag_ns_p99", "<u4"), ("cpu_ns", "<u4"), ("wakeups", "<u4"), ("packets", "<u4")),
]
TOPOLOGY = build(TopologySpec(planes=2, t0_groups=2, t1_per_plane=2, hosts_per_t0=2))
CONNECTIONS: list[dict[str, Any]] = [
    {"flow": 0, "job": "permutation", "host": "h0", "peer": "h2", "host_qp": 17, "peer_qp": 40}
    | {"workload": 0, "messages_per_step": None},
    {"flow": 1, "job": "local", "host": "h2", "peer": "h3", "host_qp": 17, "peer_qp": 40}
    | {"workload": 1, "messages_per_step": 2},
]
DELAY = 100
EV = 1 << 16 | 1


class Raw:
    """A raw folder under construction."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, host: str, table: str, fields: Any, rows: list[tuple[Any, ...]]) -> Path:
        folder = self.path / host
        folder.mkdir(exist_ok=True)
        writer = RecordWriter(folder, table, fields)
        writer.write(rows)
        writer.close()
        return folder / f"{table}.rec"

    def source(self) -> Source:
        return Source(self.path, TOPOLOGY, list(CONNECTIONS), DELAY, cores=2)


@pytest.fixture
def raw(tmp_path: Path) -> Raw:
    return Raw(tmp_path)


def sent(at: int, psn: int, *, fate: int = 1, retransmission: int = 0, ev: int = EV, reason: int = 0, qp: int = 17) -> Any:
    return (at, at + 300 if fate else 0, qp, psn, ev, 4096, retransmission, fate, reason, 0)


def got(at: int, psn: int, *, flags: int = 0, ev: int = EV, qp: int = 40) -> Any:
    return (at, qp, psn, ev, 4096, flags, ev >> 16)


def placed(frame: pd.DataFrame) -> list[int | None]:
    return [None if pd.isna(value) else int(value) for value in frame["placed_ns"]]


def test_codes_are_those_of_the_transport() -> None:
    assert [fate.name.lower() for fate in mrc_events.Fate] == list(tables.FATES)
    assert ["", *(reason.name.lower() for reason in list(mrc_events.LossReason)[1:])] == list(tables.REASONS)
    assert [state.name for state in mrc_ev.EvState] == list(tables.EV_STATES)
    assert [cause.name.lower() for cause in mrc_ev.Cause] == list(tables.EV_CAUSES[1:])
    assert [state.name for state in mrc_planes.PlaneState] == list(tables.PLANE_STATES)
    assert [cause.name.lower() for cause in mrc_planes.PlaneCause] == list(tables.PLANE_CAUSES[1:])
    assert mrc_events.RECEIVED_CE == tables.CE
    assert mrc_events.RECEIVED_DUPLICATE == tables.DUPLICATE
    assert mrc_events.RECEIVED_TRIMMED | mrc_events.RECEIVED_TRIMMED_LASTHOP == tables.TRIMMED


def test_one_row_per_transmission_with_names_and_arrival(raw: Raw) -> None:
    raw.write("h0", "packets", PACKETS, [sent(1000, 7), sent(1010, 8, ev=0)])
    raw.write("h2", "received", RECEIVED, [got(1200, 8, ev=0, flags=1), got(1150, 7)])
    frame = tables.packets(raw.source())
    assert placed(frame) == [1150, 1200]
    assert list(frame["fate"]) == ["acknowledged", "marked"]
    assert list(frame["path"]) == ["p1t1-1", "p0t1-0"]
    assert list(frame["plane"]) == [1, 0]
    assert set(frame["host"]) == {"h0"}
    assert set(frame["peer"]) == {"h2"}
    assert list(frame["fate_ns"]) == [1300, 1310]


def test_a_local_path_is_named_after_its_t0(raw: Raw) -> None:
    raw.write("h2", "packets", PACKETS, [sent(1000, 7, ev=1 << 16)])
    frame = tables.packets(raw.source())
    assert list(frame["path"]) == ["p1t0-1"]
    assert list(frame["flow"]) == [1]


def test_a_qp_number_belongs_to_its_host(raw: Raw) -> None:
    """h0 and h2 both send on QP 17, h2 and h3 both receive on QP 40: two flows, not one."""
    raw.write("h0", "packets", PACKETS, [sent(1000, 7)])
    raw.write("h2", "packets", PACKETS, [sent(1005, 7)])
    raw.write("h2", "received", RECEIVED, [got(1150, 7)])
    raw.write("h3", "received", RECEIVED, [got(1155, 7)])
    frame = tables.packets(raw.source())
    assert list(frame["flow"]) == [0, 1]
    assert placed(frame) == [1150, 1155]


def test_qps_of_one_flow_may_use_the_same_psn_on_the_same_path(raw: Raw) -> None:
    """The striped flow's second QP is told from its first by its number; both rows belong to the flow."""
    second = CONNECTIONS[0] | {"stripe": 1, "host_qp": 18, "peer_qp": 41}
    raw.write("h0", "packets", PACKETS, [sent(1000, 7), sent(1002, 7, qp=18)])
    raw.write("h2", "received", RECEIVED, [got(1150, 7, qp=41), got(1190, 7)])
    raw.write("h0", "messages", MESSAGES, [(0, number, 0, 100, 10, 20, 1) for number in range(2)])
    source = raw.source()
    source.connections.insert(1, second)
    frame = tables.packets(source)
    assert list(frame["flow"]) == [0, 0]
    assert list(frame["qp"]) == [17, 18]
    assert placed(frame) == [1190, 1150]
    assert list(tables.messages(source)["message"]) == [0, 1]


def test_lost_and_retransmitted_on_another_path(raw: Raw) -> None:
    raw.write("h0", "packets", PACKETS, [sent(1000, 7, fate=3, reason=1), sent(1400, 7, retransmission=1, ev=0)])
    raw.write("h2", "received", RECEIVED, [got(1600, 7, flags=4, ev=0)])
    frame = tables.packets(raw.source())
    assert placed(frame) == [None, 1600]
    assert list(frame["fate"]) == ["lost", "acknowledged"]
    assert list(frame["reason"]) == ["later_same_path", ""]
    assert list(frame["retransmission"]) == [False, True]


def test_a_spurious_retransmission_is_a_duplicate(raw: Raw) -> None:
    raw.write("h0", "packets", PACKETS, [sent(1000, 7, fate=3, reason=2), sent(1400, 7, retransmission=1)])
    raw.write("h2", "received", RECEIVED, [got(1450, 7), got(1600, 7, flags=2 | 4)])
    frame = tables.packets(raw.source())
    assert placed(frame) == [1450, 1600]
    assert list(frame["duplicate"]) == [False, True]


def test_copies_on_one_path_match_by_rank(raw: Raw) -> None:
    """Two retransmissions of one PSN on one EV, both under way at once: first sent, first received."""
    raw.write("h0", "packets", PACKETS, [sent(1000, 7, retransmission=1), sent(1050, 7, retransmission=1)])
    raw.write("h2", "received", RECEIVED, [got(1300, 7, flags=4), got(1350, 7, flags=6)])
    assert placed(tables.packets(raw.source())) == [1300, 1350]


def test_where_a_copy_was_lost_the_arrival_goes_to_the_latest_possible_one(raw: Raw) -> None:
    """The second of three never arrived; the arrival at 2200 is too early for the one sent at 2150 (one-way 100)."""
    rows = [sent(at, 7, retransmission=1) for at in (1000, 1500, 2050, 2150)]
    raw.write("h0", "packets", PACKETS, rows)
    raw.write("h2", "received", RECEIVED, [got(1150, 7, flags=4), got(2200, 7, flags=6)])
    assert placed(tables.packets(raw.source())) == [1150, None, 2200, None]


def test_a_trimmed_arrival_is_not_a_placement(raw: Raw) -> None:
    raw.write("h0", "packets", PACKETS, [sent(1000, 7, fate=2), sent(1300, 7, retransmission=1)])
    raw.write("h2", "received", RECEIVED, [got(1150, 7, flags=8), got(1500, 7, flags=4)])
    frame = tables.packets(raw.source())
    assert placed(frame) == [None, 1500]
    assert list(frame["fate"]) == ["trimmed", "acknowledged"]


@pytest.mark.parametrize("cut", [1, 20, 33])
def test_truncated_files_give_every_complete_row(raw: Raw, cut: int) -> None:
    """Cut anywhere in the last of two rows; the receiver's table is cut in its header."""
    packets = raw.write("h0", "packets", PACKETS, [sent(1000, 7), sent(1010, 8, fate=0)])
    packets.write_bytes(packets.read_bytes()[:-cut])
    received = raw.write("h2", "received", RECEIVED, [got(1150, 7)])
    received.write_bytes(received.read_bytes()[:20])
    frame = tables.packets(raw.source())
    assert list(frame["psn"]) == [7]
    assert placed(frame) == [None]


def test_arrivals_without_a_sender_row_are_left_out(raw: Raw) -> None:
    raw.write("h0", "packets", PACKETS, [sent(1000, 7)])
    raw.write("h2", "received", RECEIVED, [got(1150, 7), got(1160, 8)])
    assert list(tables.packets(raw.source())["psn"]) == [7]


def test_nothing_recorded_gives_empty_tables(raw: Raw) -> None:
    for make in (tables.packets, tables.messages, tables.events, tables.samples, tables.ports, tables.cpu):
        assert make(raw.source()).empty


def test_messages_are_ok_only_when_both_ends_say_so(raw: Raw) -> None:
    mib = 1 << 20
    raw.write(
        "h0",
        "messages",
        MESSAGES,
        [(0, 0, 0, mib, 10, 90, 1), (0, 1, 0, mib, 20, 0, 0), (0, 2, 0, mib, 30, 95, 1), (0, 3, 0, mib, 40, 0, 0)],
    )
    raw.write("h2", "messages", MESSAGES, [(0, 0, 1, mib, 15, 80, 1), (0, 1, 1, mib, 25, 85, 1), (0, 2, 1, mib, 35, 88, 2)])
    frame = tables.messages(raw.source())
    assert list(frame["verdict"]) == ["ok", "incomplete", "corrupt", "incomplete"]
    assert list(frame["checked_ns"].fillna(-1)) == [80, 85, 88, -1]
    assert list(frame["complete_ns"].fillna(-1)) == [90, -1, 95, -1]
    assert list(frame["post_ns"]) == [10, 20, 30, 40]
    assert set(frame["job"]) == {"permutation"}
    assert list(frame["bytes"]) == [mib] * 4


def test_messages_of_one_end_only(raw: Raw) -> None:
    """The receiver died with its records: nothing says the message arrived."""
    raw.write("h0", "messages", MESSAGES, [(0, 0, 0, 4096, 10, 90, 1)])
    assert list(tables.messages(raw.source())["verdict"]) == ["incomplete"]


POSTS = [("flow", "<u4"), ("message", "<u4"), ("bytes", "<u4"), ("t_ns", "<i8")]


def test_what_a_killed_sender_had_posted_is_a_message(raw: Raw) -> None:
    """One that it completed, one that arrived and was not acknowledged in time, one that nobody else knows of."""
    raw.write("h0", "posts", POSTS, [(0, 0, 100, 10), (0, 1, 200, 20), (0, 2, 300, 30)])
    raw.write("h0", "messages", MESSAGES, [(0, 0, 0, 100, 10, 90, 1)])
    raw.write("h2", "messages", MESSAGES, [(0, 0, 1, 100, 15, 80, 1), (0, 1, 1, 200, 25, 85, 1)])
    frame = tables.messages(raw.source())
    assert list(frame["verdict"]) == ["ok", "incomplete", "incomplete"]
    assert list(frame["post_ns"]) == [10, 20, 30]
    assert list(frame["bytes"]) == [100, 200, 300]
    assert list(frame["complete_ns"].isna()) == [False, True, True]
    assert set(frame["host"]) == {"h0"}


def test_posts_alone_are_messages(raw: Raw) -> None:
    raw.write("h0", "posts", POSTS, [(0, 0, 100, 10)])
    assert list(tables.messages(raw.source())["verdict"]) == ["incomplete"]


def test_events_merge_faults_and_ev_states_in_order(raw: Raw) -> None:
    live = raw.path / "run"
    live.mkdir()
    fault = {
        "t_ns": 500,
        "planned_ns": 499,
        "kind": "fault_start",
        "fault": 0,
        "where": "p0t0-0:p0t1-1",
        "action": "down",
        "plane": 0,
    }
    (live / "events.jsonl").write_text(json.dumps(fault) + "\n" + json.dumps(fault | {"t_ns": 900})[:30])
    raw.write("h0", "ev_states", EV_STATES, [(600, 2, EV, 0, 2, 3), (400, 2, EV, 0, 1, 1)])
    frame = tables.events(raw.source())
    assert list(frame["kind"]) == ["ev_state", "fault_start", "ev_state"]
    assert list(frame["after"].fillna("")) == ["SKIP", "", "ASSUMED_BAD"]
    assert list(frame["reason"].fillna("")) == ["marked", "", "lost"]
    assert list(frame["peer"].fillna("")) == ["h2", "", "h2"]
    assert frame["fault"].dtype == "Int64"
    assert list(frame["planned_ns"].fillna(-1)) == [-1, 499, -1]


def test_events_have_the_changes_of_ports_and_planes(raw: Raw) -> None:
    raw.write("h0", "port_states", PORT_STATES, [(100, 1, 0), (300, 1, 1)])
    raw.write("h0", "plane_states", PLANE_STATES, [(100, 2, 1, 0, 1, 1), (300, 2, 1, 1, 4, 2)])
    raw.write("h2", "plane_states", PLANE_STATES, [(200, 0, 1, 0, 2, 3)])
    frame = tables.events(raw.source())
    rows = frame[["t_ns", "kind", "host", "peer", "plane", "before", "after", "reason"]].fillna("").values.tolist()
    assert sorted(rows) == [
        [100, "plane_state", "h0", "h2", 1, "OPEN", "HERE_DOWN", "port_down"],
        [100, "port_state", "h0", "", 1, "UP", "DOWN", "carrier"],
        [200, "plane_state", "h2", "h0", 1, "OPEN", "THERE_DOWN", "peer_down"],
        [300, "plane_state", "h0", "h2", 1, "HERE_DOWN", "CHECKING", "port_up"],
        [300, "port_state", "h0", "", 1, "DOWN", "UP", "carrier"],
    ]


def test_ports_become_deltas_and_a_missed_sample_widens_an_interval(raw: Raw) -> None:
    live = raw.path / "run"
    live.mkdir()
    about = {
        "node": "h0",
        "port": "h0-eth0",
        "neighbour": "p0t0-0",
        "tier": "nic-t0",
        "plane": 0,
        "direction": "up",
        "rate_bps": 5,
    }
    other = about | {"node": "p0t0-0", "port": "p0t0-0-eth0", "neighbour": "h0", "direction": "down"}
    (live / "ports.json").write_text(json.dumps([about, other]))
    counters = [(100, 7), (110, 7), (150, 9)]
    rows = [
        (at, port, *(value + port for _ in COUNTERS), 60 + port, 5)
        for at, (value, _) in zip((0, 100, 300), counters, strict=True)
        for port in (0, 1)
    ]
    raw.write("run", "ports", PORT_FIELDS, rows)
    frame = tables.ports(raw.source())
    assert list(frame["t_ns"]) == [100, 100, 300, 300]
    assert list(frame["delivered_bytes"]) == [10, 10, 40, 40]
    assert list(frame["queue_bytes_max"]) == [60, 61, 60, 61]
    assert list(frame["port"]) == ["h0-eth0", "p0t0-0-eth0"] * 2
    assert list(frame["direction"]) == ["up", "down"] * 2


def test_cpu_shares_are_of_all_cores(raw: Raw) -> None:
    ms = 1_000_000
    raw.write("run", "cpu", CPU_FIELDS, [(100 * ms, 0, 0.5, 0.01, 0, 0), (100 * ms, 2, float("nan"), float("nan"), 2 * ms, ms)])
    raw.write("h0", "loop", LOOP, [(100 * ms, 5 * ms, ms, 10 * ms, 3, 9), (200 * ms, 5 * ms, ms, 50 * ms, 3, 9)])
    frame = tables.cpu(raw.source())
    assert list(frame["who"]) == ["machine", "delay", "h0", "h0"]
    host = frame[frame["who"] == "h0"]
    assert pd.isna(host["busy"].iloc[0])  # how long its first interval was is not known
    assert host["busy"].iloc[1] == pytest.approx(0.25)  # 50 of 100 ms on one of two cores
    assert list(frame["lag_ms_max"]) == [0, 2, 5, 5]


def test_samples_name_role_and_leave_out_an_unknown_rtt(raw: Raw) -> None:
    raw.write("h0", "samples", SAMPLES, [(100, 0, 1, 0, 4096, 65536, 8192, 40_000_000), (100, 0, 1, 1, 0, 0, 0, 0)])
    frame = tables.samples(raw.source())
    assert list(frame["role"]) == ["sender", "receiver"]
    assert frame["rtt_us"].iloc[0] == pytest.approx(40_000)
    assert pd.isna(frame["rtt_us"].iloc[1])
