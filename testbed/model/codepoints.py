"""DSCP and ECN codepoints of the outer header, the one table that endpoints and switches share.

Values are operator-chosen; these are the ones the open emulators use (mrc-facts 3.6). The eBPF program gets them as
compile-time definitions from here, so there is no second copy.
"""

from __future__ import annotations

from enum import IntEnum

ROCE_PORT = 4791  # UDP, RoCEv2 (IBTA annex A17)


class Dscp(IntEnum):
    """Six-bit DSCP. The two CONTROL and the two TRIMMED values travel in the high-priority class, the rest in that of data."""

    NO_TRIM = 0
    TRIMMABLE = 4
    TRIMMABLE_RETX = 8
    TRIMMED = 12
    TRIMMED_LASTHOP = 16
    CONTROL = 46
    NETWORK_CONTROL = 48  # CS6 (RFC 4594 3.1): what routing sends


class Ecn(IntEnum):
    """Two-bit ECN field (RFC 3168)."""

    NOT_ECT = 0
    ECT1 = 1
    ECT0 = 2
    CE = 3


HIGH_PRIORITY: frozenset[Dscp] = frozenset({Dscp.CONTROL, Dscp.NETWORK_CONTROL, Dscp.TRIMMED, Dscp.TRIMMED_LASTHOP})
MAY_BE_TRIMMED: frozenset[Dscp] = frozenset({Dscp.TRIMMABLE, Dscp.TRIMMABLE_RETX})


def traffic_class(dscp: Dscp, ecn: Ecn = Ecn.NOT_ECT) -> int:
    """The IPv6 traffic class octet."""
    return dscp << 2 | ecn
