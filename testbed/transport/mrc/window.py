"""How much may be unacknowledged towards one destination, shared by its QPs. One interface; `fixed` is the first of its kind.

Bytes are payload bytes. Packets declared lost leave the window at once and enter it again when they are sent again.
"""

from __future__ import annotations


class FixedWindow:
    """A constant window."""

    __slots__ = ("inflight", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.inflight = 0

    def has_room(self, size: int) -> bool:
        """Whether `size` more bytes may be sent. An empty window always takes one packet."""
        return self.inflight + size <= self.limit or self.inflight == 0

    def sent(self, size: int) -> None:
        self.inflight += size

    def acknowledged(self, size: int) -> None:
        self.inflight -= size

    def lost(self, size: int) -> None:
        self.inflight -= size
