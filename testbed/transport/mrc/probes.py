"""Background probes of paths assumed bad: one EV probe per path and interval, restored after enough answers in a row.

Neither the interval nor the count is published (mrc-facts 3.7). Two base RTTs and three answers: a path is back within eight
RTTs of its repair, and a dead one costs half a packet per RTT.
"""

from __future__ import annotations

from testbed.transport.mrc.codepoints import ENDPOINT_QP, TCLASS_PROBE, EndpointOp, Opcode
from testbed.transport.mrc.headers import Erth
from testbed.transport.mrc.packets import Link, control, timestamp16
from testbed.transport.mrc.paths import Path, PathSet
from testbed.transport.mrc.requester import Datagram

INTERVAL_RTTS = 2
ANSWERS_TO_RESTORE = 3
_ID_MASK = 0xFFFF


class Prober:
    """The background probes of one endpoint, over all its destinations."""

    __slots__ = ("_interval_ns", "_next_id", "_out", "answered", "sent")

    def __init__(self, rtt_base_ns: int) -> None:
        self._interval_ns = INTERVAL_RTTS * rtt_base_ns
        self._next_id = 0
        self._out: dict[int, tuple[PathSet, Path]] = {}
        self.sent = 0
        self.answered = 0

    def next_at(self, sets: list[PathSet]) -> int | None:
        """When the next probe is due, if any path is bad."""
        times = [path.next_probe for paths in sets for path in paths.bad]
        return min(times) if times else None

    def due(self, paths: PathSet, link: Link, now: int) -> list[Datagram]:
        """The probes to send now towards one destination."""
        datagrams: list[Datagram] = []
        for path in paths.bad:
            if path.next_probe > now:
                continue
            if path.next_probe == 0:  # just retired: give the fault one interval
                path.next_probe = now + self._interval_ns
                continue
            if self._out.pop(path.probe_id, None) is not None:
                path.answers = 0  # the last one never came back
            path.next_probe = now + self._interval_ns
            path.probe_id = self._next_id
            self._next_id = (self._next_id + 1) & _ID_MASK
            self._out[path.probe_id] = (paths, path)
            self.sent += 1
            body = Erth(EndpointOp.EV_PROBE, 0, timestamp16(now)).pack()
            buffers, inner = control(link, path, Opcode.ENDPOINT_REQUEST, ENDPOINT_QP, path.probe_id, body)
            path.port.depart(inner, now)
            datagrams.append((path.destination, TCLASS_PROBE, buffers))
        return datagrams

    def answer(self, probe_id: int, now: int) -> None:
        """A response came back."""
        found = self._out.pop(probe_id, None)
        if found is None:
            return
        paths, path = found
        self.answered += 1
        path.answers += 1
        if path.answers >= ANSWERS_TO_RESTORE:
            path.next_probe = 0
            paths.restore(path, now)
