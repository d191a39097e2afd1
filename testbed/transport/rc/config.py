"""What an endpoint of the baseline is told at start. Sizes in bytes, times in ns."""

from __future__ import annotations

from dataclasses import dataclass, field

from testbed.transport.common.config import EXPONENTIAL_FOREVER, LINEAR_MAX, TIMEOUT_MAX_N, PortConfig, first_timeout_ns


@dataclass(frozen=True, slots=True)
class QpLimits:
    """`timeout_n` None: the smallest timer of 1.024 us x 2^n that is at least four base round trips. `linear` timeouts at that
    value, then `exponential` doubling ones; 25 means for ever.
    """

    timeout_n: int | None = None
    linear: int = 3
    exponential: int = EXPONENTIAL_FOREVER

    def __post_init__(self) -> None:
        if not 0 <= self.linear <= LINEAR_MAX or not 0 <= self.exponential <= EXPONENTIAL_FOREVER:
            raise ValueError(f"linear is at most {LINEAR_MAX}, exponential at most {EXPONENTIAL_FOREVER}")
        if self.timeout_n is not None and not 0 <= self.timeout_n <= TIMEOUT_MAX_N:
            raise ValueError(f"timeout_n must be from 0 to {TIMEOUT_MAX_N}")


@dataclass(frozen=True, slots=True)
class EndpointConfig:
    """`window_bytes` bounds what a QP has unacknowledged, 0: nothing does but its rate. `rtt_base_ns`: the idle round trip."""

    host: int
    inner: bytes  # the NIC's own address, 16 bytes
    payload: int  # path MTU: payload bytes per packet
    ack_bytes: int  # an ACK at least every so many received bytes
    rtt_base_ns: int
    ports: tuple[PortConfig, ...]
    overhead_bytes: int  # per frame on the wire beyond the frame on the veth
    cc: str = "dcqcn"  # or none: at line rate for ever
    window_bytes: int = 0
    limits: QpLimits = field(default_factory=QpLimits)

    def __post_init__(self) -> None:
        if self.cc not in ("dcqcn", "none"):
            raise ValueError(f"there is no congestion control {self.cc!r} for rc")

    @property
    def timeout_ns(self) -> int:
        """The retransmission timer; docs/protocol.md, "The baseline rc", says what it does for and against the baseline."""
        return first_timeout_ns(self.limits.timeout_n, self.rtt_base_ns)
