"""Responder back-pressure: what a NIC whose last hop is full asks of everyone that sends to it (mrc-facts 3.6).

ECN is off on the last hop, so a queue there shows only in delay and, once it is full, in trimmed packets. One packet trimmed at
the last hop makes the responder ask for half windows in every SACK of one base round trip, of all QPs: the queue is everyone's.
What is trimmed in the round trips after that left under the windows of before, and asks for nothing (docs/protocol.md,
"Back-pressure").
"""

from __future__ import annotations

HALF = 64  # of 128, of every byte acknowledged in a round trip
PAUSE_RTTS = 2  # base round trips without a penalty until the next one


class BackPressure:
    """One NIC's. Times in ns."""

    __slots__ = ("_again_at", "_enabled", "_rtt_base_ns", "_until", "asked")

    def __init__(self, rtt_base_ns: int, *, enabled: bool) -> None:
        self._rtt_base_ns = rtt_base_ns
        self._enabled = enabled
        self._until = 0
        self._again_at = 0
        self.asked = 0  # penalties so far

    def trimmed(self, now: int) -> None:
        """A packet arrived trimmed at the last hop."""
        if self._enabled and now >= self._again_at:
            self._until = now + self._rtt_base_ns
            self._again_at = self._until + PAUSE_RTTS * self._rtt_base_ns
            self.asked += 1

    def penalty(self, now: int) -> int:
        """`rcv_cwnd_pen` of a SACK sent now."""
        return HALF if now < self._until else 0
