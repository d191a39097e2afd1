"""The receiving half of a QP: what has arrived (SACK), what was not taken (NACK), what has been executed (transport ACK).

A SACK goes out at once for an ECN mark, a retransmission, a duplicate or an acknowledgement request, otherwise each
`sack_bytes` received, every packet counting at least 1,024 bytes (mrc-facts 3.4). Immediates are handed up in the
requester's send order.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from heapq import heappop, heappush

from testbed.transport.common.psn import PSN_MASK
from testbed.transport.mrc.codepoints import NakCode, SackMark
from testbed.transport.mrc.config import MPR_UNIT
from testbed.transport.mrc.headers import Aeth, Neth, Seth
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
    """State of one QP's inbound direction. `messages` have been executed: wholly in memory, and so have all before them."""

    __slots__ = (
        "_dynamic_mpr",
        "_ends",
        "_immediates_waiting",
        "_max_wimm",
        "_nak",
        "_sack_bytes",
        "_unsacked",
        "ack_due",
        "due",
        "messages",
        "mpr_psns",
        "received_bytes",
        "window",
    )

    def __init__(
        self, first_psn: int, *, sack_bytes: int, mpr_psns: int = 1024, dynamic_mpr: bool = False, max_wimm: int = 128
    ) -> None:
        self.window = ReceiveWindow(first_psn)
        self.mpr_psns = mpr_psns
        self.received_bytes = 0
        self.messages = 0
        self.due: Trigger | None = None  # the SACK to send at the end of this batch
        self.ack_due = False  # a transport ACK or NAK likewise
        self._sack_bytes = sack_bytes
        self._dynamic_mpr = dynamic_mpr
        self._max_wimm = max_wimm
        self._unsacked = 0
        self._nak = 0
        self._immediates_waiting = 0
        self._ends: list[tuple[int, int, int]] = []  # (PSN, MSN, immediate or -1) of messages' last packets, as a heap

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

    def message_end(self, psn: int, msn: int, immediate: int | None) -> None:
        """A message's last packet has arrived; the message is executed once everything before it has."""
        heappush(self._ends, (psn, msn, -1 if immediate is None else immediate))
        if immediate is not None:
            self._immediates_waiting += 1
            if self._immediates_waiting > self._max_wimm:
                self.refuse(NakCode.TOO_MANY_WIMM)

    def deliverable(self) -> list[int]:
        """Immediates of the messages that have just been executed, in send order. Sets `ack_due`."""
        ready: list[int] = []
        ends = self._ends
        while ends and ends[0][0] <= self.window.cack:
            _, _, immediate = heappop(ends)
            self.messages += 1
            self.ack_due = True
            if immediate >= 0:
                self._immediates_waiting -= 1
                ready.append(immediate)
        return ready

    def refuse(self, code: NakCode) -> None:
        """Answer NAK from now on: the requester's QP goes into error."""
        self._nak = code
        self.ack_due = True

    def transport_ack(self) -> bytes:
        """AETH: how many messages have been executed, or why not."""
        self.ack_due = False
        return Aeth(self._nak, self.messages & PSN_MASK).pack()

    def sack(
        self,
        trigger: Trigger,
        local: int,
        remote: int,
        *,
        penalty: int = 0,
        probe_id: int | None = None,
        said: tuple[int, int] | None = None,
    ) -> bytes:
        """SETH + CC_STATE for `trigger`, or in answer to a reliability probe; `penalty` asks for a smaller window.

        `said`: the offset and bits to send, where it is not for the window to choose.
        """
        if probe_id is None:  # an answer to a probe names no arrival: it does not stand for the SACK that one is owed
            self._unsacked = 0
            self.due = None
        window = self.window
        offset, bits = said or window.sack()
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
            self.mpr_psns // MPR_UNIT if self._dynamic_mpr else 0,
            offset,
            bits,
            trigger.timestamp,
            window.out_of_order & 0x7FFF,
            penalty << 24 | received,
        )

    def nack(self, reason: int, trigger: Trigger, local: int, remote: int) -> bytes:
        """NETH for a packet that was not taken."""
        return Neth(
            reason, trigger.psn & PSN_MASK, trigger.ev, trigger.timestamp, spdcid=local & 0xFFFF, dpdcid=remote & 0xFFFF
        ).pack()
