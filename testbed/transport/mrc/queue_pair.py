"""A queue pair's life and its two halves. The life is one table (mrc-facts 3.1): RESET, INIT, RTR, RTS; ERROR from anywhere.

RTR (ready to receive) is when the remote PSN is known, RTS (ready to send) when the limits of sending are. There is no other
way from one state to the next, and the only way out of ERROR is RESET.
"""

from __future__ import annotations

from enum import Enum

from testbed.transport.mrc.packets import Link
from testbed.transport.mrc.paths import Path, PathSet
from testbed.transport.mrc.requester import Requester
from testbed.transport.mrc.responder import Responder
from testbed.transport.mrc.reverse import ReversePaths
from testbed.transport.mrc.window import Window


class QpState(Enum):
    RESET = "reset"
    INIT = "init"
    RTR = "ready to receive"
    RTS = "ready to send"
    ERROR = "error"


QP_TRANSITIONS: frozenset[tuple[QpState, QpState]] = frozenset(
    {
        (QpState.RESET, QpState.INIT),
        (QpState.INIT, QpState.RTR),
        (QpState.RTR, QpState.RTS),
        *((state, QpState.ERROR) for state in QpState if state is not QpState.ERROR),
        *((state, QpState.RESET) for state in QpState if state is not QpState.RESET),
    }
)


class QpStateError(Exception):
    """The caller asked for a transition that the table does not have. Nothing was changed."""


class Peer:
    """One destination: its paths and its window, shared by the QPs towards it, and the way back to it for control packets."""

    __slots__ = ("index", "inner", "link", "paths", "port_update", "qps", "reverse", "window")

    def __init__(self, index: int, link: Link, paths: PathSet, reverse: ReversePaths, window: Window) -> None:
        self.index = index
        self.inner = link.target
        self.link = link
        self.paths = paths
        self.reverse = reverse
        self.port_update = 0  # number of its latest Port Status Update
        self.window = window
        self.qps: list[QueuePair] = []


class QueuePair:
    """One end of a connection. `psn` is its own first PSN; `responder` exists from RTR on."""

    __slots__ = ("number", "peer", "probe_ids", "psn", "remote", "requester", "responder", "state")

    def __init__(self, number: int, psn: int, peer: Peer, requester: Requester) -> None:
        self.number = number
        self.psn = psn
        self.peer = peer
        self.requester = requester
        self.remote = 0
        self.responder: Responder | None = None
        self.probe_ids: dict[int, tuple[int, Path]] = {}  # reliability probes that are out: departure time and path
        self.state = QpState.RESET

    def become(self, state: QpState) -> None:
        """The one setter of `state`. Raises QpStateError where the table has no such step."""
        if (self.state, state) not in QP_TRANSITIONS:
            raise QpStateError(f"QP {self.number} cannot go from {self.state.name} to {state.name}")
        self.state = state
