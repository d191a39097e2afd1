"""What every endpoint is told of its ports and timers. Sizes in bytes, times in ns."""

from __future__ import annotations

from dataclasses import dataclass

TIMEOUT_UNIT_NS = 1024  # timeouts are 1.024 us x 2^n
TIMEOUT_MAX_N = 24
LINEAR_MAX = 7
EXPONENTIAL_FOREVER = 25
RTO_RTTS = 4  # a timer of its own choice lasts at least so many base round trips (docs/protocol.md, "Loss")


def first_timeout_ns(timeout_n: int | None, rtt_base_ns: int) -> int:
    """The retransmission timer at its first value: with exponent `timeout_n`, or the least of at least `RTO_RTTS`."""
    if timeout_n is None:
        timeout_n = next((n for n in range(TIMEOUT_MAX_N) if TIMEOUT_UNIT_NS << n >= RTO_RTTS * rtt_base_ns), TIMEOUT_MAX_N)
    return TIMEOUT_UNIT_NS << timeout_n


class PolicyError(Exception):
    """A path policy of one's own failed, or chose what no policy may."""


@dataclass(frozen=True, slots=True)
class PortConfig:
    """One NIC port; port p serves plane p. `bucket_bytes`: the shaper's token bucket, charged bytes; 0 for none."""

    plane: int
    rate_bps: int
    bucket_bytes: int = 0
