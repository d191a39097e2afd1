"""The NIC's own ports, and what is told of them: Port Status Updates (mrc-facts 3.7; docs/protocol.md, "NIC ports").

An update is an endpoint request with the mask of ports that are up, bit p for plane p; the BTH's PSN numbers it, so that an
old one that was overtaken changes nothing. It goes out at each change, one copy on every plane in use, and again after 1.25
base RTTs, each pause twice the one before, until the peer's endpoint response with that number is back.
"""

from __future__ import annotations

from testbed.transport.mrc.codepoints import ENDPOINT_QP, EndpointOp, Opcode
from testbed.transport.mrc.core import Core
from testbed.transport.mrc.headers import Eeth, Erth
from testbed.transport.mrc.packets import timestamp16
from testbed.transport.mrc.planes import PlaneCause
from testbed.transport.mrc.queue_pair import Peer

NUMBER_MASK = 0xFFFF  # mrc-facts 3.7: an endpoint message's id is PSN[15:0]
PAUSE_MOST_RTTS = 20


class _Telling:
    """An update that a peer has not acknowledged."""

    __slots__ = ("next_at", "pause_ns")

    def __init__(self, now: int, pause_ns: int) -> None:
        self.next_at = now
        self.pause_ns = pause_ns


class NicPorts:
    """Carriers of this NIC's ports, updates to all peers, and the updates of peers."""

    __slots__ = ("_core", "_number", "_telling")

    def __init__(self, core: Core) -> None:
        self._core = core
        self._number = 0  # of the latest update
        self._telling: dict[bytes, _Telling] = {}  # by the peer's inner address

    @property
    def mask(self) -> int:
        return sum(1 << plane for plane, port in self._core.ports.items() if port.up)

    def changed(self, plane: int, up: bool, now: int) -> None:
        """The carrier of the port of `plane` came or went. What was in flight there is sent again elsewhere."""
        core = self._core
        port = core.ports[plane]
        if port.up == up:
            return
        port.carrier(up, now)
        core.recorder.port_state(now, plane, up)
        cause = PlaneCause.PORT_UP if up else PlaneCause.PORT_DOWN
        self._number = (self._number + 1) & NUMBER_MASK
        for inner, peer in core.peers.items():
            core.port_event(peer, plane, cause, now)
            self._telling[inner] = _Telling(now, core.config.rtt_base_ns * 5 // 4)

    def heard(self, peer: Peer, number: int, mask: int, now: int) -> bool:
        """A peer's update. False for one older than what it has said before."""
        if (number - peer.port_update) & NUMBER_MASK > NUMBER_MASK >> 1:
            return False
        peer.port_update = number
        for plane in peer.paths.planes:
            up = bool(mask >> plane.number & 1)
            self._core.port_event(peer, plane.number, PlaneCause.PEER_UP if up else PlaneCause.PEER_DOWN, now)
        return True

    def answer(self, peer: Peer, number: int, tx_timestamp: int, now: int) -> None:
        """Acknowledge a peer's update."""
        body = Eeth(EndpointOp.PORT_STATUS, tx_timestamp).pack()
        self._core.send_control(peer, Opcode.ENDPOINT_RESPONSE, ENDPOINT_QP, number, body, now)

    def acknowledged(self, inner: bytes, number: int) -> None:
        """A peer's answer to an update; one to an earlier update ends nothing."""
        if number == self._number:
            self._telling.pop(inner, None)

    def next_at(self) -> int | None:
        """When `due` wants to be called."""
        return min((telling.next_at for telling in self._telling.values()), default=None)

    def due(self, now: int) -> None:
        """Queue the updates that are due."""
        for inner, telling in self._telling.items():
            if telling.next_at <= now:
                telling.next_at = now + telling.pause_ns
                telling.pause_ns = min(2 * telling.pause_ns, PAUSE_MOST_RTTS * self._core.config.rtt_base_ns)
                self._tell(self._core.peers[inner], now)

    def _tell(self, peer: Peer, now: int) -> None:
        planes = peer.paths.planes
        # Where no plane is in use, what is known of the peer's ports may be old: any port that is up here will do.
        ways = [plane for plane in planes if plane.healthy()]
        usable = [plane for plane in ways if plane.open] or [plane for plane in ways if plane.port.up]
        body = Erth(EndpointOp.PORT_STATUS, self.mask, timestamp16(now)).pack()
        for plane in usable:
            path = peer.reverse.on(plane)
            self._core.send_on(path, peer, Opcode.ENDPOINT_REQUEST, ENDPOINT_QP, self._number, body, now)
            self._core.counters["port_updates"] += 1
