"""EV probes, for three ends: paths assumed bad, planes whose ports came up again, and the reverse path.

Paths assumed bad get one probe per path and interval, and are restored after enough answers in a row.

Neither the interval nor the count is published (mrc-facts 3.7). By default two base RTTs and three answers: a path is back
within eight RTTs of its repair, and a dead one costs half a packet per RTT. An answer may take longer than the interval, so
that a slow path that was taken for a dead one comes back too: probes are numbered per path, and "in a row" is by number. One
that takes longer than the widest reorder window says the opposite: packets there would be called lost again.

A plane whose ports are both up again is used once one probe over it has been answered; one goes out each half base RTT.
"""

from __future__ import annotations

from testbed.transport.common.codepoints import TCLASS_CONTROL, TCLASS_PROBE
from testbed.transport.common.events import Decide
from testbed.transport.mrc.codepoints import ENDPOINT_QP, EndpointOp, Opcode
from testbed.transport.mrc.headers import Erth
from testbed.transport.mrc.packets import Datagram, Link, control, timestamp16
from testbed.transport.mrc.paths import Path, PathSet
from testbed.transport.mrc.planes import CONNECTED, PlaneCause, PlaneState
from testbed.transport.mrc.timing import REORDER_MOST_RTTS
from testbed.transport.mrc.trace import Kind

INTERVAL_RTTS = 2
CHECKS_PER_RTT = 2
REMEMBERED = 4096  # probes that may still be answered, over all paths
_ID_MASK = 0xFFFF


class Prober:
    """The background probes of one endpoint, over all its destinations. `answers` in a row bring a path back."""

    __slots__ = ("_answers", "_decision", "_next_id", "_out", "_rtt_base_ns", "answered", "sent")

    def __init__(self, rtt_base_ns: int, answers: int, decision: Decide | None) -> None:
        self._rtt_base_ns = rtt_base_ns
        self._answers = answers
        self._decision = decision
        self._next_id = 0
        self._out: dict[int, tuple[int, PathSet, Path, int, int]] = {}
        self.sent = 0
        self.answered = 0

    def next_at(self, paths: PathSet, *, background: bool) -> int | None:
        """When `due` wants to be called for one destination; None while nothing is to be probed."""
        first: int | None = None
        if background:
            for path in paths.bad:
                if path.home.state in CONNECTED and (first is None or path.next_probe < first):
                    first = path.next_probe
        for plane in paths.checking:
            if first is None or plane.next_check < first:
                first = plane.next_check
        return first

    def due(self, peer: int, paths: PathSet, link: Link, now: int, *, background: bool) -> list[Datagram]:
        """The probes to send now towards destination `peer`; `background`: of paths assumed bad too."""
        datagrams: list[Datagram] = []
        if background:
            for path in paths.bad:
                if path.next_probe <= now and path.home.state in CONNECTED:
                    path.next_probe = now + paths.probe_interval_ns
                    path.probes_sent += 1
                    datagrams.append(self.probe(peer, paths, path, link, TCLASS_PROBE, path.probes_sent, now))
        for plane in paths.checking:
            if plane.next_check <= now:
                plane.next_check = now + self._rtt_base_ns // CHECKS_PER_RTT
                if healthy := plane.healthy():
                    path = paths.rng.choice(healthy)
                    datagrams.append(self.probe(peer, paths, path, link, TCLASS_PROBE, 0, now))
        return datagrams

    def reverse(self, peer: int, paths: PathSet, path: Path, link: Link, now: int) -> Datagram:
        """A probe in the class of the control packets whose way it tests."""
        return self.probe(peer, paths, path, link, TCLASS_CONTROL, 0, now)

    def probe(self, peer: int, paths: PathSet, path: Path, link: Link, tclass: int, number: int, now: int) -> Datagram:
        """`number` counts the background probes of a path; 0 for the other kinds."""
        probe_id = self._next_id
        self._next_id = (probe_id + 1) & _ID_MASK
        while len(self._out) > REMEMBERED:
            del self._out[next(iter(self._out))]
        self.sent += 1
        body = Erth(EndpointOp.EV_PROBE, 0, timestamp16(now)).pack()
        buffers, inner = control(link, path, Opcode.ENDPOINT_REQUEST, ENDPOINT_QP, probe_id, body)
        self._out[probe_id] = (peer, paths, path, number, path.port.depart(inner, now))
        if self._decision is not None:
            self._decision(now, Kind.EV_PROBE, ENDPOINT_QP, probe_id, path.ev, peer)
        return path.destination, tclass, buffers

    def answer(self, probe_id: int, now: int) -> None:
        """A response came back."""
        found = self._out.pop(probe_id, None)
        if found is None:
            return
        peer, paths, path, number, sent = found
        if self._decision is not None:
            self._decision(now, Kind.EV_PROBE_ANSWERED, ENDPOINT_QP, probe_id, path.ev, peer)
        self.answered += 1
        plane = path.home
        plane.confirm(path, now)
        if plane.state is PlaneState.CHECKING and sent >= plane.since:
            paths.plane_event(plane, PlaneCause.PROBE_ANSWERED, now)
        extra = now - sent - self._rtt_base_ns
        if not number or extra > REORDER_MOST_RTTS * self._rtt_base_ns:
            return
        path.sample(extra)
        if number < path.first_probe:
            return
        path.probes_answered.add(number)
        if all(number - back in path.probes_answered for back in range(self._answers)):
            paths.restore(path, now)
