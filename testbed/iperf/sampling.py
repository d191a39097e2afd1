"""Per interval: what each connection of this host's flows has carried, and how many connections there were."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from testbed.host.records import U32_MAX, Table
from testbed.iperf.plan import Flow, HostPlan
from testbed.iperf.sockets import Info, Sockets, Whole

SENDER, RECEIVER, STREAM = 0, 1, 2  # roles: of a connection's or subflow's end; STREAM: of the whole flow, at its receiver
NO_PLANE = 255


@dataclass(slots=True)
class Seen:
    """What a flow's end was: `mptcp` once it was MPTCP's, `fell_back` once MPTCP had become TCP.

    `subflows`: the most at once, by the address that says in which plane.

    `congestion`, `segments` and `retransmissions` are those of the connections last seen.
    """

    connected: bool = False
    mptcp: bool = False
    fell_back: bool = False
    subflows: dict[str, int] = field(default_factory=dict)
    congestion: set[str] = field(default_factory=set)
    segments: int = 0
    retransmissions: int = 0
    placed: int = 0  # bytes in order, at a receiver


class Sampler:
    """Writes the `connections` rows of one host."""

    def __init__(self, plan: HostPlan, rows: Table, sockets: Sockets) -> None:
        self._plan = plan
        self._row = rows.row
        self._sockets = sockets
        self._before: dict[tuple[int, str, int], Info] = {}
        self._whole: dict[int, int] = {}
        self.seen = {flow.flow: Seen() for flow in plan.flows}

    def sample(self, now: int) -> None:
        """One interval has ended."""
        connections = self._sockets.connections()
        wholes = {(one.local_port, one.remote_port): one for one in self._sockets.mptcp()} if self._plan.mptcp else {}
        for flow in self._plan.flows:
            ports = (flow.client_port, flow.port) if flow.sends else (flow.port, flow.client_port)
            whole = wholes.get(ports)
            if whole is not None and not whole.fell_back:
                mine = [one for one in connections if one.token == whole.token]
            else:
                mine = [one for one in connections if (one.local_port, one.remote_port) == ports]
            self._note(flow, mine, whole)
            self._rows(now, flow, mine, whole)

    def _note(self, flow: Flow, mine: Sequence[Info], whole: Whole | None) -> None:
        seen = self.seen[flow.flow]
        if not mine:
            return
        seen.connected = True
        if whole is not None:
            seen.mptcp |= not whole.fell_back
            seen.fell_back |= whole.fell_back
        seen.congestion = {one.congestion for one in mine}  # iperf3 sets it on a connection that is there already
        counts: dict[str, int] = {}
        for one in mine:
            end = one.local if one.local in self._plan.planes else one.remote
            counts[end] = counts.get(end, 0) + 1
        if sum(counts.values()) > sum(seen.subflows.values()):
            seen.subflows = counts
        seen.segments, seen.retransmissions = (sum(one.segments for one in mine), sum(one.retransmissions for one in mine))

    def _rows(self, now: int, flow: Flow, mine: Sequence[Info], whole: Whole | None) -> None:
        placed = 0
        for one in mine:
            key = (flow.flow, one.local, one.local_port if flow.sends else one.remote_port)
            before = self._before.get(key, one._replace(sent=0, received=0, segments=0, retransmissions=0))
            self._before[key] = one
            bytes_now = one.sent - before.sent if flow.sends else one.received - before.received
            placed += bytes_now
            self._row(
                now,
                flow.flow,
                plane_of(self._plan.planes, self._plan.plane_of_flow, flow.flow, one),
                SENDER if flow.sends else RECEIVER,
                _u32(bytes_now),
                _u32(one.window * one.mss if flow.sends else 0),
                _u32(one.unacked * one.mss if flow.sends else 0),
                _u32(one.rtt_us * 1000 if flow.sends else 0),
                _u32(one.segments - before.segments if flow.sends else 0),
                _u32(one.retransmissions - before.retransmissions if flow.sends else 0),
            )
        if not flow.sends:
            if whole is not None and not whole.fell_back:
                placed = whole.received - self._whole.get(flow.flow, whole.received)
                self._whole[flow.flow] = whole.received
            self.seen[flow.flow].placed += placed
            self._row(now, flow.flow, NO_PLANE, STREAM, _u32(placed), 0, 0, 0, 0, 0)


def plane_of(planes: Mapping[str, int], of_flow: Mapping[int, int], flow: int, one: Info) -> int:
    """The plane of a connection: of an address that belongs to one, or of its flow where that is known."""
    return planes.get(one.local, planes.get(one.remote, of_flow.get(flow, NO_PLANE)))


def _u32(value: int) -> int:
    return min(max(value, 0), U32_MAX)
