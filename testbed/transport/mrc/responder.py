"""The receiving half of a QP: places payloads by address, tells what has arrived (SACK) and what has not been taken (NACK).

A SACK goes out at once for an ECN mark, a retransmission, a duplicate or an acknowledgement request, otherwise each
`sack_bytes` received, every packet counting at least 1,024 bytes (mrc-facts 3.4). Immediates are handed up in the
requester's send order.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from heapq import heappop, heappush

from testbed.transport.mrc.codepoints import SackMark
from testbed.transport.mrc.headers import Neth, Seth
from testbed.transport.mrc.psn import PSN_MASK
from testbed.transport.mrc.receive_window import ReceiveWindow

SACK_COUNT_AT_LEAST = 1024
_SACK = struct.Struct(">HHIHHIBBhQHHI")  # SETH and CC_STATE in one go
_RECEIVED_UNIT = 256


@dataclass(slots=True)
class Trigger:
    """The packet a SACK answers: its PSN, EV, timestamp, and whether it was marked."""

    psn: int
    ev: int
    timestamp: int
    mark: SackMark = SackMark.NONE


class Responder:
    """State of one QP's inbound direction."""

    __slots__ = ("_immediates", "_sack_bytes", "_unsacked", "due", "mpr_psns", "received_bytes", "window")

    def __init__(self, first_psn: int, sack_bytes: int, mpr_psns: int) -> None:
        self.window = ReceiveWindow(first_psn)
        self.mpr_psns = mpr_psns
        self.received_bytes = 0
        self.due: Trigger | None = None  # the SACK to send at the end of this batch
        self._sack_bytes = sack_bytes
        self._unsacked = 0
        self._immediates: list[tuple[int, int]] = []

    def in_window(self, psn: int) -> bool:
        return psn <= self.window.cack + self.mpr_psns

    def arrived(self, psn: int, ev: int, timestamp: int, size: int, *, at_once: bool) -> bool:
        """Account for an accepted data packet; returns False for a duplicate. Sets `due` when a SACK is owed."""
        fresh = self.window.accept(psn)
        self.received_bytes += size
        self._unsacked += max(size, SACK_COUNT_AT_LEAST)
        if at_once or not fresh or self._unsacked >= self._sack_bytes:
            self.due = Trigger(psn, ev, timestamp)
        return fresh

    def immediate(self, psn: int, value: int) -> None:
        """Keep an immediate until everything before it has arrived."""
        heappush(self._immediates, (psn, value))

    def deliverable(self) -> list[int]:
        """Immediates whose message, and all before it, are wholly in memory; in send order."""
        ready: list[int] = []
        waiting = self._immediates
        while waiting and waiting[0][0] <= self.window.cack:
            ready.append(heappop(waiting)[1])
        return ready

    def sack(self, trigger: Trigger, local: int, remote: int, *, probe_id: int | None = None) -> bytes:
        """SETH + CC_STATE for `trigger`, or in answer to a reliability probe."""
        self._unsacked = 0
        self.due = None
        window = self.window
        offset, bits = window.sack()
        word = Seth.TYPE << 12 | trigger.mark << 5
        ack_offset = (trigger.psn - window.cack) & 0xFFFF
        if probe_id is not None:
            word |= 2
            ack_offset = probe_id
        received = -(-self.received_bytes // _RECEIVED_UNIT) & 0xFFFFFF
        return _SACK.pack(
            word,
            ack_offset,
            trigger.ev,
            local & 0xFFFF,
            remote & 0xFFFF,
            window.cack & PSN_MASK,
            1 << 4,
            0,
            offset,
            bits,
            trigger.timestamp,
            window.out_of_order & 0x7FFF,
            received,
        )

    def nack(self, reason: int, trigger: Trigger, local: int, remote: int) -> bytes:
        """NETH for a packet that was not taken."""
        return Neth(
            reason, trigger.psn & PSN_MASK, trigger.ev, trigger.timestamp, spdcid=local & 0xFFFF, dpdcid=remote & 0xFFFF
        ).pack()
