"""Numbers on the wire that both transports use: the UDP port and the traffic classes (docs/protocol.md, "Wire format").

DSCP values are the operator's choice (mrc-facts 3.6); the fabric's table must say the same, and a test compares them.
"""

from __future__ import annotations

from enum import IntEnum

UDP_PORT = 4791  # RoCEv2's; one source's 4971 is a digit swap
P_KEY = 0xFFFF


class Dscp(IntEnum):
    """Differentiated services code points of the outer header."""

    NO_TRIM = 0
    TRIMMABLE = 4
    TRIMMABLE_RETX = 8
    TRIMMED = 12
    TRIMMED_LASTHOP = 16
    CONTROL = 46


ECN_ECT0 = 2
ECN_CE = 3

TCLASS_DATA = Dscp.TRIMMABLE << 2 | ECN_ECT0
TCLASS_RETRANSMISSION = Dscp.TRIMMABLE_RETX << 2 | ECN_ECT0
TCLASS_PROBE = Dscp.NO_TRIM << 2 | ECN_ECT0  # same queues as data, so it finds what data would find
TCLASS_CONTROL = Dscp.CONTROL << 2  # not ECN-capable: nothing would react to its mark
