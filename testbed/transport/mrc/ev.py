"""The life of an entropy value: one transition table (mrc-facts 3.5; docs/protocol.md, "EV states").

Two rules. Only GOOD and SKIP carry data, and SKIP gives up turns: one, or more where marks persist (skip.py). A cause that is
not in the table for the present state changes nothing: a path known bad is not found bad again.
"""

from __future__ import annotations

from enum import IntEnum


class EvState(IntEnum):
    GOOD = 0
    SKIP = 1
    ASSUMED_BAD = 2
    DENIED = 3
    UNKNOWN = 4


class Cause(IntEnum):
    MARKED = 1  # a SACK said SKIP_ONCE: ECN on the forward path
    TRIMMED = 2  # a NACK said TRIMMED inside the fabric (not at the last hop)
    LOST = 3  # a data packet on it was lost, not trimmed
    ALWAYS_SKIP = 4  # the responder judges the path persistently bad
    TURN_PASSED = 5  # its turn came and was given to the next; it rests no longer
    PROBES_ANSWERED = 6  # enough background probes came back
    DENY = 7
    ALLOW = 8
    TOO_FEW = 9  # planes left use, and with them so many usable paths that somewhere beats nowhere


TRANSITIONS: dict[tuple[EvState, Cause], EvState] = {
    (EvState.GOOD, Cause.MARKED): EvState.SKIP,
    (EvState.GOOD, Cause.TRIMMED): EvState.SKIP,
    (EvState.GOOD, Cause.LOST): EvState.ASSUMED_BAD,
    (EvState.GOOD, Cause.ALWAYS_SKIP): EvState.ASSUMED_BAD,
    (EvState.GOOD, Cause.DENY): EvState.DENIED,
    (EvState.SKIP, Cause.TURN_PASSED): EvState.GOOD,
    (EvState.SKIP, Cause.LOST): EvState.ASSUMED_BAD,
    (EvState.SKIP, Cause.ALWAYS_SKIP): EvState.ASSUMED_BAD,
    (EvState.SKIP, Cause.DENY): EvState.DENIED,
    (EvState.ASSUMED_BAD, Cause.PROBES_ANSWERED): EvState.GOOD,
    (EvState.ASSUMED_BAD, Cause.TOO_FEW): EvState.GOOD,
    (EvState.ASSUMED_BAD, Cause.DENY): EvState.DENIED,
    (EvState.DENIED, Cause.ALLOW): EvState.UNKNOWN,
    (EvState.UNKNOWN, Cause.PROBES_ANSWERED): EvState.GOOD,
    (EvState.UNKNOWN, Cause.TOO_FEW): EvState.GOOD,
    (EvState.UNKNOWN, Cause.DENY): EvState.DENIED,
}

USABLE = frozenset({EvState.GOOD, EvState.SKIP})
PROBED = frozenset({EvState.ASSUMED_BAD, EvState.UNKNOWN})
