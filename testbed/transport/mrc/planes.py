"""A plane towards one destination: one table says when it is in use (docs/protocol.md, "NIC ports").

Port p of a NIC serves plane p, so a plane needs the ports of both ends. One rule: only OPEN carries data. A port's carrier says
nothing of the switch behind it, which may not forward yet; so a plane whose ports are both up again is in use once a probe
over it has been answered. EVs keep their states meanwhile: a dead port is not their doing.
"""

from __future__ import annotations

from collections import deque
from enum import IntEnum
from typing import TYPE_CHECKING

from testbed.transport.mrc.ev import EvState

if TYPE_CHECKING:
    from testbed.transport.common.ports import PortClock
    from testbed.transport.mrc.paths import Path


class PlaneState(IntEnum):
    OPEN = 0
    HERE_DOWN = 1  # this end's port has no carrier
    THERE_DOWN = 2  # the peer says that its port has none
    BOTH_DOWN = 3
    CHECKING = 4  # both are up again; a probe is out


class PlaneCause(IntEnum):
    PORT_DOWN = 1
    PORT_UP = 2
    PEER_DOWN = 3
    PEER_UP = 4
    PROBE_ANSWERED = 5


PLANE_TRANSITIONS: dict[tuple[PlaneState, PlaneCause], PlaneState] = {
    (PlaneState.OPEN, PlaneCause.PORT_DOWN): PlaneState.HERE_DOWN,
    (PlaneState.OPEN, PlaneCause.PEER_DOWN): PlaneState.THERE_DOWN,
    (PlaneState.HERE_DOWN, PlaneCause.PORT_UP): PlaneState.CHECKING,
    (PlaneState.HERE_DOWN, PlaneCause.PEER_DOWN): PlaneState.BOTH_DOWN,
    (PlaneState.THERE_DOWN, PlaneCause.PEER_UP): PlaneState.CHECKING,
    (PlaneState.THERE_DOWN, PlaneCause.PORT_DOWN): PlaneState.BOTH_DOWN,
    (PlaneState.BOTH_DOWN, PlaneCause.PORT_UP): PlaneState.THERE_DOWN,
    (PlaneState.BOTH_DOWN, PlaneCause.PEER_UP): PlaneState.HERE_DOWN,
    (PlaneState.CHECKING, PlaneCause.PROBE_ANSWERED): PlaneState.OPEN,
    (PlaneState.CHECKING, PlaneCause.PORT_DOWN): PlaneState.HERE_DOWN,
    (PlaneState.CHECKING, PlaneCause.PEER_DOWN): PlaneState.THERE_DOWN,
}

CONNECTED = frozenset({PlaneState.OPEN, PlaneState.CHECKING})  # both ports are up: probes may pass


class Plane:
    """One plane's share of the paths to a destination: the active ring, its backup, and the EV that control packets take."""

    __slots__ = (
        "active",
        "asked_at",
        "backup",
        "confirmed_at",
        "next_check",
        "number",
        "open",
        "paths",
        "port",
        "position",
        "reverse",
        "since",
        "state",
        "target",
        "tried_at",
    )

    def __init__(self, number: int, paths: list[Path], target: int) -> None:
        self.number = number
        self.paths = tuple(paths)
        self.active = paths[:target]
        self.backup = deque(paths[target:])
        self.target = target  # EVs in the ring while enough are healthy
        self.port: PortClock = paths[0].port
        self.position = 0
        self.state = PlaneState.OPEN
        self.open = True
        self.since = 0  # when it came into its state
        self.next_check = 0  # when the next probe is due, while CHECKING
        self.reverse: Path | None = None  # proven by the latest answered probe or SACK (reverse.py)
        self.confirmed_at = 0  # when that was
        self.asked_at = 0  # when the oldest reverse probe left that nothing has confirmed since
        self.tried_at = 0  # the latest reverse probe or confirmation

    def become(self, cause: PlaneCause, now: int) -> bool:
        """The one setter of `state`. False where the table has no such step: nothing was changed."""
        after = PLANE_TRANSITIONS.get((self.state, cause))
        if after is None:
            return False
        self.state = after
        self.open = after is PlaneState.OPEN
        self.since = self.next_check = now
        return True

    def healthy(self) -> list[Path]:
        """The paths worth a probe or a control packet: the ring, else all that are not denied. Empty where all are."""
        return self.active or [path for path in self.paths if path.state is not EvState.DENIED]

    def ask(self, now: int) -> None:
        """A reverse probe is sent."""
        if self.asked_at <= self.confirmed_at:
            self.asked_at = now
        self.tried_at = now

    def confirm(self, path: Path, now: int) -> None:
        """A packet sent on `path` is known to have arrived."""
        self.reverse = path
        self.confirmed_at = self.tried_at = now
