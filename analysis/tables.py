"""Every Parquet table of a results folder, column by column, with units; docs/results-format.md repeats it, and a test keeps
the two equal.

Times are CLOCK_MONOTONIC nanoseconds of one kernel (DESIGN 4.3). A table that is missing loads as empty with these columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

SCHEMA = 1  # of a results folder; manifest["schema"]; a killed run may leave no manifest


class Kind(StrEnum):
    """How a column is held in memory."""

    INT = "int64"
    NULLABLE_INT = "Int64"  # a time that may never have come; pandas' masked integers, exact to the nanosecond
    FLOAT = "float64"  # NaN: not measured
    BOOL = "bool"
    TEXT = "str"  # "" where a row has none


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    kind: Kind
    meaning: str
    optional: bool = False  # a table without it still loads: the column is then empty
    alias: str = ""  # another name the column may have in the file


@dataclass(frozen=True, slots=True)
class Table:
    name: str
    meaning: str
    columns: tuple[Column, ...]
    on_request: bool = False  # only there when the scenario asked for it

    @property
    def file(self) -> str:
        return f"{self.name}.parquet"


_I, _N, _F, _B, _T = Kind.INT, Kind.NULLABLE_INT, Kind.FLOAT, Kind.BOOL, Kind.TEXT

PACKETS = Table(
    "packets",
    "one row per transmission of a data packet",
    (
        Column("host", _T, "sending host"),
        Column("peer", _T, "receiving host"),
        Column("flow", _I, "flow id, unique in the run"),
        Column("qp", _I, "sender's QP number", optional=True),
        Column("psn", _I, "packet sequence number, 24 bit"),
        Column("ev", _I, "entropy value: plane << 16 | uplink"),
        Column("plane", _I, "plane, from 0"),
        Column("path", _T, "the T1 crossed, or the T0 when local", optional=True),
        Column("bytes", _I, "payload bytes"),
        Column("sent_ns", _I, "departure from the host's port by the sender's own clock of that port, ns"),
        Column("fate_ns", _N, "when the sender learnt the fate, ns", optional=True),
        Column("placed_ns", _N, "payload placed at the receiver, ns; null when it never arrived whole"),
        Column("fate", _T, "acknowledged | marked | trimmed | lost | refused (a NACK for another reason) | unknown"),
        Column(
            "reason", _T, "why it was called lost: later_same_path | reorder_window | rto | probe | port_down", optional=True
        ),
        Column("retransmission", _B, "not the first transmission of its PSN"),
        Column("duplicate", _B, "arrived although its PSN had been placed before: the retransmission was spurious"),
    ),
)
MESSAGES = Table(
    "messages",
    "one row per posted message",
    (
        Column("flow", _I, "flow id"),
        Column("job", _T, "job the flow belongs to", optional=True),
        Column("host", _T, "sending host"),
        Column("peer", _T, "receiving host"),
        Column("message", _I, "message number within the flow"),
        Column("bytes", _I, "message size in bytes"),
        Column("post_ns", _N, "posted by the sender, ns"),
        Column("complete_ns", _N, "completion seen by the sender, ns; null when it never came"),
        Column("checked_ns", _N, "content checked by the receiver, ns; null when it never was"),
        Column("verdict", _T, "ok | corrupt | incomplete"),
        Column("step", _N, "step of its job that the message belongs to; null outside collectives", optional=True),
        Column("phase", _N, "place of the message in that step's collective on its flow, from 0", optional=True),
    ),
)
STEPS = Table(
    "steps",
    "one row per host and completed step of a job in lock step (training, ring_allreduce, all_to_all)",
    (
        Column("workload", _I, "place of the job in the scenario, from 0"),
        Column("job", _T, "its name"),
        Column("host", _T, "rank that wrote the row"),
        Column("step", _I, "step, from 0"),
        Column("start_ns", _I, "the rank entered the step, ns"),
        Column("ready_ns", _I, "its computing was over and its collective began, ns"),
        Column("end_ns", _I, "its collective was complete, ns"),
        Column("verdict", _T, "ok | corrupt: whether the result was bit for bit what it must be"),
    ),
)
EVENTS = Table(
    "events",
    "faults, and what hosts noted of their ports, of planes to a peer and of EVs",
    (
        Column("t_ns", _I, "when, confirmed by the kernel for faults, ns"),
        Column("planned_ns", _N, "when it was meant to happen, ns", optional=True),
        Column("kind", _T, "fault_start | fault_end | port_state | plane_state | ev_state"),
        Column("fault", _N, "index of the planned fault", optional=True),
        Column("where", _T, "link `lower:upper`, switch, or port", optional=True),
        Column("action", _T, "what was done", optional=True, alias="what"),
        Column("host", _T, "host whose port, plane or EV changed", optional=True),
        Column("peer", _T, "destination of that plane or EV", optional=True),
        Column("ev", _N, "entropy value", optional=True),
        Column("plane", _N, "plane, from 0", optional=True),
        Column("before", _T, "state left", optional=True),
        Column("after", _T, "state entered", optional=True),
        Column("reason", _T, "why", optional=True),
    ),
)
SAMPLES = Table(
    "samples",
    "per interval, flow side and plane; a live process writes a row even when nothing moved",
    (
        Column("t_ns", _I, "end of the interval, ns"),
        Column("host", _T, "host that wrote the row"),
        Column("flow", _I, "flow id; its QPs count together"),
        Column("plane", _I, "plane, from 0; -1 where it is not known, or of a whole flow"),
        Column("role", _T, "sender | receiver; stream: of tcp and mptcp the whole flow, in order, at its receiver"),
        Column("bytes", _I, "payload bytes sent, or newly placed, in the interval"),
        Column("window", _I, "bytes the sender may have in flight; a window that QPs share counts once", optional=True),
        Column("inflight", _I, "bytes in flight", optional=True),
        Column("rtt_us", _F, "latest smoothed RTT in microseconds, of several QPs the mean; NaN or 0 when none", optional=True),
        Column("segments", _I, "tcp and mptcp: segments with data sent in the interval, as the kernel counts", optional=True),
        Column("retransmissions", _I, "tcp and mptcp: segments sent again in the interval", optional=True),
    ),
)
PORTS = Table(
    "ports",
    "per interval and port; counts are deltas of the interval",
    (
        Column("t_ns", _I, "end of the interval, ns"),
        Column("node", _T, "node the port belongs to"),
        Column("port", _T, "port name"),
        Column("neighbour", _T, "node at the far end"),
        Column("tier", _T, "nic-t0 | t0-t1"),
        Column("direction", _T, "up (towards the T1s) | down"),
        Column("plane", _I, "plane, from 0"),
        Column("rate_bps", _I, "configured rate in bit/s of charged bytes"),
        Column("packets", _I, "packets accepted", optional=True),
        Column("bytes", _I, "charged bytes accepted (frame + overhead)", optional=True),
        Column("delivered_packets", _I, "packets that came out at the far end", optional=True),
        Column("delivered_bytes", _I, "charged bytes that came out at the far end"),
        Column("control_packets", _I, "SACK, NACK, ACK, probe and trimmed packets", optional=True),
        Column("marked", _I, "data packets marked CE", optional=True),
        Column("trimmed", _I, "data packets trimmed", optional=True),
        Column("dropped_queue", _I, "packets dropped for want of room", optional=True),
        Column("dropped_fault", _I, "packets swallowed by a fault", optional=True),
        Column("corrupted", _I, "packets delivered with one byte changed by a fault", optional=True),
        Column("queue_bytes_max", _I, "largest virtual queue of the interval in charged bytes", optional=True),
        Column("queue_bytes", _I, "virtual queue at the end of the interval in charged bytes", optional=True),
    ),
)
CPU = Table(
    "cpu",
    "per interval: the machine, each host process, the runner and the delay line",
    (
        Column("t_ns", _I, "end of the interval, ns"),
        Column("who", _T, "machine | h0, h1, ... | run | delay"),
        Column("busy", _F, "0..1 of all cores; NaN where it does not apply"),
        Column("steal", _F, "0..1 of all cores taken by the hypervisor", optional=True),
        Column("lag_ms_max", _F, "largest lateness of a timer, or of the delay line, in ms", optional=True),
        Column("lag_ms_p99", _F, "99th percentile of the same in ms", optional=True),
    ),
)

TRACE = Table(
    "trace",
    "everything the endpoints sent, learnt and decided; `measure.trace: true`",
    (
        Column("t_ns", _I, "when, ns; at one moment, what was learnt comes before what was sent; 0: during set-up"),
        Column("host", _T, "host that decided"),
        Column("peer", _T, "host at the other end"),
        Column("flow", _N, "flow id; null where a row belongs to a pair of hosts"),
        Column("qp", _N, "QP number at `host`; null likewise"),
        Column(
            "kind",
            _T,
            "sent | acknowledged | marked | trimmed | lost | refused | evidence (for the loss that follows) | late "
            "(called lost, but arrived) | passed_over (a turn) | window | timeout | probe | probe_answered | ev_probe | "
            "ev_probe_answered | nack | nack_sent | ev_state | plane_state | qp_state",
        ),
        Column(
            "psn",
            _N,
            "packet sequence number, 24 bit; a probe's number; of window and timeout the oldest unacknowledged",
        ),
        Column("ev", _N, "entropy value; null likewise"),
        Column("plane", _N, "plane, from 0; null likewise"),
        Column("before", _T, "state left"),
        Column("after", _T, "state entered"),
        Column(
            "reason",
            _T,
            "of a loss as in packets, of the state of an EV or a plane as in events, `retransmission` of what was sent",
        ),
        Column(
            "value",
            _N,
            "sent: payload bytes; evidence: PSN of the arrival that proves it, -1 a probe's; late: reorder window in ns; "
            "window: bytes; timeout: how many in a row; nack, nack_sent: the reason's code",
        ),
    ),
    on_request=True,
)

TABLES: tuple[Table, ...] = (PACKETS, MESSAGES, STEPS, EVENTS, SAMPLES, PORTS, CPU, TRACE)
