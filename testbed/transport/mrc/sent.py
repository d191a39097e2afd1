"""What a requester remembers: the messages posted, each transmission that is out, and what a SACK says of them."""

from __future__ import annotations

from typing import NamedTuple

from testbed.transport.mrc.codepoints import Opcode
from testbed.transport.mrc.paths import Path


class Message:
    """One posted WRITE. `last_psn` is known once its last packet has been sent."""

    __slots__ = ("address", "data", "immediate", "last_psn", "length", "msn", "rkey", "rqmsn", "sent", "wr_id")

    def __init__(
        self, wr_id: int, data: memoryview, address: int, rkey: int, immediate: int | None, msn: int, rqmsn: int
    ) -> None:
        self.wr_id = wr_id
        self.data = data
        self.length = len(data)
        self.address = address
        self.rkey = rkey
        self.immediate = immediate
        self.msn = msn
        self.rqmsn = rqmsn
        self.sent = 0
        self.last_psn = -1


class SentPacket:
    """One transmission. `sent` is its departure time; `outstanding` until its fate is known; `earlier` is what it repeats.

    `echo` is what a SACK or a NACK says of this transmission and of no other of its PSN. `refused`: a NACK said that it was not
    taken, so nothing else of it will arrive. `written_off`: sent again because a port died, without evidence that this
    transmission was lost.
    """

    __slots__ = (
        "earlier",
        "echo",
        "message",
        "offset",
        "opcode",
        "outstanding",
        "path",
        "psn",
        "refused",
        "sent",
        "size",
        "written_off",
    )

    def __init__(
        self,
        psn: int,
        message: Message,
        offset: int,
        size: int,
        opcode: Opcode,
        path: Path,
        sent: int,
        earlier: SentPacket | None,
        echo: int,
    ) -> None:
        self.psn = psn
        self.message = message
        self.offset = offset
        self.size = size
        self.opcode = opcode
        self.path = path
        self.sent = sent
        self.earlier = earlier
        self.echo = echo
        self.outstanding = True
        self.refused = False
        self.written_off = False


def echo_of(ev: int, timestamp: int) -> int:
    """A transmission as its answers name it: its path, and when it was handed over (16 bits of 65,536 ns)."""
    return ev << 16 | timestamp


class Acknowledgement(NamedTuple):
    """A SACK, its PSNs expanded. Bit i of `bits` is PSN base + i; PSNs up to `cack` have all arrived."""

    cack: int
    base: int
    bits: int
    ack_psn: int | None  # the packet that caused it; None when a probe did
    marked: bool  # that packet's forward path was ECN-marked
    received: int  # CC_STATE's count, which orders SACKs
    mpr: int  # the responder's window in units of 128 PSNs; 0: unchanged
    probe: tuple[int, Path] | None  # the probe's departure time and path
    echo: int = 0  # of the transmission of it that arrived
    penalty: int = 0  # what the responder asks of the window, 0 to 127
    restore: bool = False  # and whether the window before is to be restored afterwards
