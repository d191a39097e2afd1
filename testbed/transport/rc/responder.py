"""The receiving half of a QP: takes packets in order only, places them, and says how far it has come."""

from __future__ import annotations

from testbed.transport.common.psn import PSN_MASK, expand


class Responder:
    """What a QP expects, and what it owes its sender at the end of a batch of arrivals."""

    __slots__ = ("_cnp_at", "ack_due", "address", "expected", "msn", "nak_due", "nak_sent", "rkey", "unacked")

    def __init__(self, psn: int) -> None:
        self.expected = psn
        self.msn = 0  # messages completed
        self.address = 0  # where the next packet of the message under way goes
        self.rkey = 0
        self.unacked = 0  # bytes placed and not acknowledged
        self.ack_due = False
        self.nak_due = False
        self.nak_sent = False  # for `expected`: one NAK per gap (IBTA 9.7.5.2.8)
        self._cnp_at = 0

    def place(self, psn: int) -> int:
        """Where a packet stands: 0 is the expected one, positive is ahead of it, negative a duplicate."""
        return expand(psn, self.expected) - self.expected

    def took(self, size: int) -> None:
        """The expected packet has been placed."""
        self.expected += 1
        self.address += size
        self.unacked += size
        self.nak_sent = False
        self.nak_due = False

    def missed(self) -> None:
        """A packet came ahead of the expected one."""
        if not self.nak_sent:
            self.nak_sent = self.nak_due = True

    def notify(self, now: int, interval_ns: int) -> bool:
        """A marked packet came: whether a CNP goes out for it."""
        if now < self._cnp_at:
            return False
        self._cnp_at = now + interval_ns
        return True

    @property
    def wire_expected(self) -> int:
        """The expected PSN as the wire has it."""
        return self.expected & PSN_MASK
