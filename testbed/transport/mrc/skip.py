"""How long SKIP lasts, which is left to the implementation (mrc-facts 3.5; docs/protocol.md, "Where SKIP settles").

A mark costs its path one turn. That moves at most half of a path's turns: enough against uneven spraying, not against a flow
that has no other path. So each path counts, up with a mark or a fabric trim, down with a packet that came back unmarked. One
whose count is above PERSISTENT keeps being marked more often than not: it rests for base round trips, twice as many with every
second mark more, and is tried with single packets until enough of them come back unmarked.
"""

from __future__ import annotations

PERSISTENT = 12  # the one choice: marks beyond unmarked packets that a path may have and still lose only turns
MOST = PERSISTENT + 6  # counted no further: rests of 1, 1, 2, 2, 4, 4 base round trips


def rest_ns(marks: int, rtt_base_ns: int) -> int:
    """How long a path with this count rests after a mark or a try."""
    return rtt_base_ns << (marks - PERSISTENT - 1) // 2 if marks > PERSISTENT else 0
