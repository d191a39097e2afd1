"""The trace: every decision of an endpoint as rows that tests assert on and the analysis can plot.

Transmissions and their fates, arrivals and changes of ports, planes and EVs are recorded in any run (`events.Recorder`).
What else is decided goes to the recorder's `decision`, when it has one: then they together are the trace. Without it nothing
is computed or written. `Trace` is the recorder that keeps all of it in memory; a host writes the same rows to files.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from testbed.transport.common.events import Fate, LossReason
from testbed.transport.mrc.ev import Cause, EvState
from testbed.transport.mrc.planes import PlaneCause, PlaneState


class Kind(IntEnum):
    """What was decided or met, beside packets' fates and EV transitions; in brackets the meaning of a row's `value`."""

    EVIDENCE = 1  # `psn` is taken for lost [PSN of the latest arrival that proves it; -1: a reliability probe's]
    LATE = 2  # `psn`, declared lost, has arrived after all [the reorder window now, ns]
    PASSED_OVER = 3  # a path with an overdue packet lost its turn; `psn` would have gone there
    WINDOW = 4  # the window towards this destination has changed; `psn` is the oldest unacknowledged [payload bytes]
    TIMEOUT = 5  # the retransmission timeout; `psn` likewise [how many in a row]
    PROBE = 6  # a reliability probe was sent; `psn` is its number
    PROBE_ANSWERED = 7
    EV_PROBE = 8  # a background probe was sent, `qp` 2, `psn` its number [the destination's index]
    EV_PROBE_ANSWERED = 9
    NACK = 10  # a NACK came [its reason]
    NACK_SENT = 11  # a NACK was sent [its reason]
    QP_STATE = 12  # [state left << 8 | state entered, in the order of QpState]; `t_ns` 0: during set-up


class Transmission(NamedTuple):
    """`Recorder.packet`'s row."""

    sent_ns: int
    fate_ns: int
    qp: int
    psn: int
    ev: int
    size: int
    retransmission: int
    fate: int
    reason: int
    marked: int


class Arrival(NamedTuple):
    """`Recorder.received`'s row."""

    placed_ns: int
    qp: int
    psn: int
    ev: int
    size: int
    flags: int
    plane: int


class Transition(NamedTuple):
    """`Recorder.ev_state`'s row."""

    t_ns: int
    peer: int
    ev: int
    before: int
    after: int
    cause: int


class PortChange(NamedTuple):
    """`Recorder.port_state`'s row."""

    t_ns: int
    plane: int
    up: int


class PlaneTransition(NamedTuple):
    """`Recorder.plane_state`'s row."""

    t_ns: int
    peer: int
    plane: int
    before: int
    after: int
    cause: int


class Decision(NamedTuple):
    """`Recorder.decision`'s row."""

    t_ns: int
    kind: int
    qp: int
    psn: int
    ev: int
    value: int


class Step(NamedTuple):
    """One line of the history. `what`: a Kind, `sent`, a Fate, `marked`, `ev_state` or `plane_state`, in small letters.

    `psn` -1: none.
    """

    t_ns: int
    what: str
    qp: int
    psn: int
    ev: int
    detail: str


@dataclass
class Trace:
    """A Recorder that keeps everything, in order of recording."""

    packets: list[Transmission] = field(default_factory=list)
    arrivals: list[Arrival] = field(default_factory=list)
    states: list[Transition] = field(default_factory=list)
    ports: list[PortChange] = field(default_factory=list)
    planes: list[PlaneTransition] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)

    def packet(
        self,
        sent_ns: int,
        fate_ns: int,
        qp: int,
        psn: int,
        ev: int,
        size: int,
        retransmission: int,
        fate: int,
        reason: int,
        marked: int,
    ) -> None:
        self.packets.append(Transmission(sent_ns, fate_ns, qp, psn, ev, size, retransmission, fate, reason, marked))

    def received(self, placed_ns: int, qp: int, psn: int, ev: int, size: int, flags: int, plane: int) -> None:
        self.arrivals.append(Arrival(placed_ns, qp, psn, ev, size, flags, plane))

    def ev_state(self, t_ns: int, peer: int, ev: int, before: int, after: int, reason: int) -> None:
        self.states.append(Transition(t_ns, peer, ev, before, after, reason))

    def port_state(self, t_ns: int, plane: int, up: int) -> None:
        self.ports.append(PortChange(t_ns, plane, up))

    def plane_state(self, t_ns: int, peer: int, plane: int, before: int, after: int, reason: int) -> None:
        self.planes.append(PlaneTransition(t_ns, peer, plane, before, after, reason))

    def decision(self, t_ns: int, kind: int, qp: int, psn: int, ev: int, value: int) -> None:
        self.decisions.append(Decision(t_ns, kind, qp, psn, ev, value))

    def fates(self) -> Counter[int]:
        return Counter(row.fate for row in self.packets)

    def of(self, kind: Kind) -> list[Decision]:
        return [row for row in self.decisions if row.kind == kind]

    def history(self) -> list[Step]:
        """Everything the sender sent, learnt and decided, in order of time; at one moment, what was learnt comes first."""
        return sorted((*self._learnt(), *self._sent()), key=lambda step: step.t_ns)

    def _learnt(self) -> Iterator[Step]:
        for t_ns, kind, qp, psn, ev, value in self.decisions:
            yield Step(t_ns, Kind(kind).name.lower(), qp, psn, ev, str(value))
        for row in self.packets:
            if row.fate != Fate.UNKNOWN:
                what = "marked" if row.marked else Fate(row.fate).name.lower()
                reason = LossReason(row.reason).name.lower() if row.reason else ""
                yield Step(row.fate_ns, what, row.qp, row.psn, row.ev, reason)
        for t_ns, _, ev, before, after, cause in self.states:
            detail = f"{EvState(before).name} to {EvState(after).name}: {Cause(cause).name.lower()}"
            yield Step(t_ns, "ev_state", 0, -1, ev, detail)
        for t_ns, _, plane, before, after, cause in self.planes:
            detail = f"plane {plane}: {PlaneState(before).name} to {PlaneState(after).name}: {PlaneCause(cause).name.lower()}"
            yield Step(t_ns, "plane_state", 0, -1, 0, detail)

    def _sent(self) -> Iterator[Step]:
        for row in self.packets:
            yield Step(row.sent_ns, "sent", row.qp, row.psn, row.ev, "retransmission" if row.retransmission else "")
