"""Message sizes of a poisson workload as a list of equally likely ones, so that a host only ever draws from a list."""

from __future__ import annotations

import math
from itertools import pairwise

QUANTILES = 100
# (bytes, share of the messages that are no larger): web search, Alizadeh et al., Data Center TCP, SIGCOMM 2010, figure 4, as
# tabulated with later simulators; linear between the points. Only its shape is used.
_WEBSEARCH = (
    (0, 0.0),
    (10_000, 0.15),
    (20_000, 0.20),
    (30_000, 0.30),
    (50_000, 0.40),
    (80_000, 0.53),
    (200_000, 0.60),
    (1_000_000, 0.70),
    (2_000_000, 0.80),
    (5_000_000, 0.90),
    (10_000_000, 0.97),
    (30_000_000, 1.0),
)
DISTRIBUTIONS = ("fixed", "exponential", "websearch")


def equally_likely(sizes: tuple[int, ...] | str, mean: int) -> tuple[int, ...]:
    """The sizes in bytes behind a scenario's `sizes`: those listed, or the distribution's quantiles with this mean."""
    if isinstance(sizes, tuple):
        return sizes
    if sizes == "fixed":
        return (mean,)
    shares = [(index + 0.5) / QUANTILES for index in range(QUANTILES)]
    quantiles = [_websearch(share) if sizes == "websearch" else -math.log(1 - share) for share in shares]
    scale = mean * QUANTILES / sum(quantiles)
    return tuple(max(1, round(value * scale)) for value in quantiles)


def _websearch(share: float) -> float:
    for (low, below), (high, upto) in pairwise(_WEBSEARCH):
        if share <= upto:
            return low + (high - low) * (share - below) / (upto - below)
    raise ValueError(f"{share} is no share")
