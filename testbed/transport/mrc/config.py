"""What an endpoint is told at start. Sizes in bytes, times in ns; every default is argued in docs/protocol.md."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from testbed.transport.common.config import EXPONENTIAL_FOREVER, LINEAR_MAX, TIMEOUT_MAX_N, PortConfig

MPR_UNIT = 128  # PSNs


@dataclass(frozen=True, slots=True)
class QpLimits:
    """What a QP is given on its way to RTR and RTS; ranges and units are the published API's (mrc-facts 3.1, 3.2, 3.4).

    `mpr`, `mpr_dest`: PSNs in flight as requester, accepted as responder, in units of 128; 8 is the API's example.
    `timeout_n` None: the smallest with 1.024 us x 2^n of at least four base RTTs. `linear` timeouts at that value, then
    `exponential` doubling ones; 25 means for ever, so that a job outlives a long outage.
    """

    mpr: int = 8
    mpr_dest: int = 8
    dynamic_mpr: bool = False
    max_wimm: int = 128
    max_wimm_dest: int = 128
    timeout_n: int | None = None
    linear: int = 3
    exponential: int = EXPONENTIAL_FOREVER

    def __post_init__(self) -> None:
        ranges = {
            "mpr": (1, 255),
            "mpr_dest": (1, 255),
            "max_wimm": (1, 0xFFFF),
            "max_wimm_dest": (1, 0xFFFF),
            "linear": (0, LINEAR_MAX),
            "exponential": (0, EXPONENTIAL_FOREVER),
        }
        for name, (least, most) in ranges.items():
            if not least <= getattr(self, name) <= most:
                raise ValueError(f"{name} must be from {least} to {most}")
        if self.timeout_n is not None and not 0 <= self.timeout_n <= TIMEOUT_MAX_N:
            raise ValueError(f"timeout_n must be from 0 to {TIMEOUT_MAX_N}")


@dataclass(frozen=True, slots=True)
class EndpointConfig:
    """`window_bytes` bounds unacknowledged payload per destination; `rtt_base_ns` is the idle round trip (DESIGN 4.4).

    `bdp_bytes` is what a round trip holds over all ports, in payload bytes; NSCC's steps are shares of it.
    """

    host: int
    inner: bytes  # the NIC's own address, 16 bytes
    payload: int  # path MTU: payload bytes per packet
    policy: str  # a name in policies.POLICIES, or of `own_policy`
    window_bytes: int
    sack_bytes: int  # a SACK at least every so many received bytes
    rtt_base_ns: int
    probes: bool
    reshuffle: bool
    ports: tuple[PortConfig, ...]
    overhead_bytes: int  # per frame on the wire beyond the frame on the veth
    bdp_bytes: int = 0  # 0: not known; `cc: nscc` needs it
    cc: str = "fixed"  # a name in windows.CONTROLLERS
    backpressure: bool = True  # as responder: ask for smaller windows when packets were trimmed at the last hop
    active_evs: int = 0  # 0: all of them; the rest of a plane's EVs are its backup
    replacement: str = "same_plane"  # or "any": of a retired EV, by one of any plane's backup
    probe_interval_ns: int = 0  # between background probes of a path; 0: two base RTTs
    probe_answers: int = 3  # in a row, that bring a path back
    limits: QpLimits = field(default_factory=QpLimits)
    own_policy: Callable[[Any], object] | None = None  # makes a policy of one's own for each destination (docs/policies.md)
