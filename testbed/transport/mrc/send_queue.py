"""A QP's posted WRITEs, from posting to completion, in send order. Knows PSNs, nothing of packets."""

from __future__ import annotations

from collections import deque

from testbed.transport.common.psn import expand
from testbed.transport.mrc.sent import Message


class SendQueue:
    """`pending` are not wholly sent. At most `max_wimm` WRITE_WITH_IMMs are under way: the peer has posted no more buffers."""

    __slots__ = ("_executed", "_immediates", "_max_wimm", "_posted", "_unfinished", "immediates_out", "pending")

    def __init__(self, max_wimm: int) -> None:
        self.pending: deque[Message] = deque()
        self.immediates_out = 0  # WRITE_WITH_IMMs begun and not completed
        self._max_wimm = max_wimm
        self._unfinished: deque[Message] = deque()  # not completed
        self._posted = 0
        self._immediates = 0
        self._executed = 0  # messages that the responder's transport ACK has confirmed

    def post(self, wr_id: int, view: memoryview, address: int, rkey: int, immediate: int | None) -> None:
        message = Message(wr_id, view, address, rkey, immediate, self._posted, self._immediates)
        self._posted += 1
        self._immediates += immediate is not None
        self.pending.append(message)
        self._unfinished.append(message)

    def ready(self) -> Message | None:
        """The message whose next packet may be sent, if there is one."""
        if not self.pending:
            return None
        message = self.pending[0]
        if message.sent == 0 and message.immediate is not None and self.immediates_out >= self._max_wimm:
            return None
        return message

    def advance(self, message: Message, size: int, psn: int) -> bool:
        """`size` more bytes of the oldest pending message leave as `psn`; True when they are its last."""
        if message.sent == 0 and message.immediate is not None:
            self.immediates_out += 1
        message.sent += size
        if message.sent < message.length:
            return False
        message.last_psn = psn
        self.pending.popleft()
        return True

    def executed(self, msn: int) -> bool:
        """A transport ACK: `msn` messages (24 bits) are wholly in the responder's memory. False when that is no news."""
        count = expand(msn, self._executed)
        if not self._executed < count <= self._posted:
            return False
        self._executed = count
        return True

    def acknowledged(self, cack: int) -> bool:
        """Whether all packets of the oldest message have arrived, PSNs up to `cack` having done so."""
        return bool(self._unfinished) and 0 <= self._unfinished[0].last_psn <= cack

    def unconfirmed(self, cack: int) -> bool:
        """Whether they have, and the transport ACK is still owed."""
        return self.acknowledged(cack) and self._unfinished[0].msn >= self._executed

    def completed(self, cack: int) -> list[int]:
        """wr_ids of messages all of whose packets are acknowledged and which the responder has executed; in send order.

        Both are needed: an executed message with an unacknowledged packet may still be retransmitted from its buffer.
        """
        done: list[int] = []
        while self.acknowledged(cack) and self._unfinished[0].msn < self._executed:
            message = self._unfinished.popleft()
            self.immediates_out -= message.immediate is not None
            done.append(message.wr_id)
        return done

    def clear(self) -> None:
        self.pending.clear()
        self._unfinished.clear()
