"""What an endpoint reports: completions to the application, and a record of every packet's fate to a `Recorder`."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple, Protocol


class WriteComplete(NamedTuple):
    """The WRITE posted as `wr_id`, and all before it, are in the peer's memory, and their buffers are free again."""

    qp: int
    wr_id: int
    now: int


class ImmediateReceived(NamedTuple):
    """A WRITE_WITH_IMM is wholly in memory, and so is every message sent before it on this QP."""

    qp: int
    value: int
    now: int


class QueuePairError(NamedTuple):
    """The QP can carry nothing more."""

    qp: int
    reason: str


Event = WriteComplete | ImmediateReceived | QueuePairError


class Fate(IntEnum):
    """How a transmission ended."""

    UNKNOWN = 0
    ACKNOWLEDGED = 1
    TRIMMED = 2
    LOST = 3
    REFUSED = 4  # a NACK other than for trimming


class LossReason(IntEnum):
    """The evidence on which a packet was declared lost (DESIGN section 6)."""

    NONE = 0
    LATER_SAME_PATH = 1
    REORDER_WINDOW = 2
    RTO = 3
    PROBE = 4
    PORT_DOWN = 5


RECEIVED_CE = 1
RECEIVED_DUPLICATE = 2
RECEIVED_RETRANSMISSION = 4
RECEIVED_TRIMMED = 8
RECEIVED_TRIMMED_LASTHOP = 16
RECEIVED_REFUSED = 32  # whole, but thrown away: out of order where the transport takes packets in order only (rc)


Decide = Callable[[int, int, int, int, int, int], None]  # t_ns, trace.Kind, QP, PSN, EV, value


class Recorder(Protocol):
    """Takes one row per transmission, arrival, and change of a port, a plane or an EV. Times in ns, sizes in payload bytes.

    `decision` takes what else a trace holds (trace.py); None while nobody wants one.
    """

    @property
    def decision(self) -> Decide | None: ...

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
    ) -> None: ...

    def received(self, placed_ns: int, qp: int, psn: int, ev: int, size: int, flags: int, plane: int) -> None: ...

    def port_state(self, t_ns: int, plane: int, up: int) -> None: ...

    def plane_state(self, t_ns: int, peer: int, plane: int, before: int, after: int, reason: int) -> None: ...

    def ev_state(self, t_ns: int, peer: int, ev: int, before: int, after: int, reason: int) -> None: ...
