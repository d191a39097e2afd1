"""How much may be unacknowledged towards one destination, shared by its QPs: one interface, and the kinds without feedback.

Bytes are payload bytes. Packets declared lost or trimmed leave the window at once and enter it again when they are sent again.
A responder's penalty (mrc-facts 3.6) shrinks every kind that has a limit (docs/protocol.md, "Back-pressure").
"""

from __future__ import annotations

PENALTY_ONE = 128  # a penalty p takes p/128 of what a SACK acknowledges: 64 in each SACK of one round trip halves a window
UNLIMITED = 0xFFFFFFFF


class Window:
    """The interface. `limit` is what may be in flight; its base class keeps the count and obeys penalties.

    The requester reports each packet (`sent`, then `acknowledged`, `lost`, `trimmed` or `forgotten`), and calls `feedback` once
    per SACK.
    """

    __slots__ = ("_acknowledged", "_restore", "_saved", "inflight", "limit", "mtu")

    def __init__(self, limit: int, mtu: int) -> None:
        self.limit = limit
        self.mtu = mtu  # payload bytes of a full packet: no window is smaller
        self.inflight = 0
        self._acknowledged = 0  # since the last `feedback`
        self._saved = 0  # the limit when the responder's penalty began; 0: there is none
        self._restore = False

    def has_room(self, size: int) -> bool:
        """Whether `size` more bytes may be sent. An empty window always takes one packet."""
        return self.inflight + size <= self.limit or self.inflight == 0

    def sent(self, size: int) -> None:
        self.inflight += size

    def acknowledged(self, size: int) -> None:
        self.inflight -= size
        self._acknowledged += size

    def lost(self, size: int, now: int) -> None:
        """A packet was lost for a reason that is not congestion here (a dead path)."""
        del now
        self.inflight -= size

    def trimmed(self, size: int, now: int) -> None:
        """A packet was trimmed, in the fabric or at the last hop."""
        del now
        self.inflight -= size

    def forgotten(self, size: int) -> None:
        """A packet's QP is in error or reset: its fate will not be known and says nothing of the network."""
        self.inflight -= size

    def feedback(self, *, marked: bool, delay_ns: int, penalty: int, restore: bool, now: int) -> None:
        """A SACK has been taken: its mark, its packet's queueing delay (-1: not known), the responder's penalty (0 to 127)."""
        newly, self._acknowledged = self._acknowledged, 0
        delay = self._observe(newly, delay_ns, marked=marked)
        if not self._obey(newly, penalty, restore=restore):
            self._adjust(newly, delay, now, marked=marked)

    def _observe(self, newly: int, delay_ns: int, *, marked: bool) -> int:
        """Take note of `newly` acknowledged bytes, penalty or not. Returns the delay to go by."""
        del newly, marked
        return delay_ns

    def _adjust(self, newly: int, delay: int, now: int, *, marked: bool) -> None:
        """What the network says to `newly` acknowledged bytes, where no penalty rules."""

    def _obey(self, newly: int, penalty: int, *, restore: bool) -> bool:
        """Shrink under a penalty, and take back the saved window at its end if the responder says so. True while it lasts."""
        if penalty:
            if not self._saved:
                self._saved = self.limit
            self._restore |= restore
            self._resize(self.limit - newly * penalty // PENALTY_ONE)
            return True
        if self._saved:
            if self._restore or restore:
                self._resize(max(self.limit, self._saved))
            self._saved = 0
            self._restore = False
        return False

    def _resize(self, limit: int) -> None:
        self.limit = max(limit, self.mtu)


class FixedWindow(Window):
    """A constant window: it yields to a penalty and is whole again when that ends, as nothing else would widen it."""

    __slots__ = ()

    def _obey(self, newly: int, penalty: int, *, restore: bool) -> bool:
        del restore
        return super()._obey(newly, penalty, restore=True)


class NoWindow(Window):
    """No window: ports and the PSN range (MPR) alone bound a sender."""

    __slots__ = ()

    def __init__(self, mtu: int) -> None:
        super().__init__(UNLIMITED, mtu)

    def _obey(self, newly: int, penalty: int, *, restore: bool) -> bool:
        del newly, penalty, restore
        return False
