"""What an endpoint is told at start. Sizes in bytes, times in ns; every default is argued in docs/protocol.md."""

from __future__ import annotations

from dataclasses import dataclass

MPR_UNIT = 128
DEFAULT_MPR = 8  # x 128 PSNs, as in the published API example


@dataclass(frozen=True, slots=True)
class PortConfig:
    """One NIC port; port p serves plane p."""

    plane: int
    rate_bps: int


@dataclass(frozen=True, slots=True)
class EndpointConfig:
    """`window_bytes` bounds unacknowledged payload per destination; `rtt_base_ns` is the idle round trip (DESIGN 4.4)."""

    host: int
    inner: bytes  # the NIC's own address, 16 bytes
    payload: int  # path MTU: payload bytes per packet
    policy: str  # mrc | oblivious | single_path
    window_bytes: int
    sack_bytes: int  # a SACK at least every so many received bytes
    rtt_base_ns: int
    probes: bool
    reshuffle: bool
    ports: tuple[PortConfig, ...]
    overhead_bytes: int  # per frame on the wire beyond the frame on the veth
    active_evs: int = 0  # 0: all of them; the rest of a plane's EVs are its backup
    mpr: int = DEFAULT_MPR
