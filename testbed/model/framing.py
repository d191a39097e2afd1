"""What one MRC data packet costs on a link. The only place that adds headers up.

mrc-facts 3.3: Ethernet 14, outer IPv6 40, inner IPv6 40, UDP 8, BTH 12, METH 4, TSETH 4, RETH 16, ICRC 4. No SRH: the
whole path fits in the outer destination address. A WRITE with immediate carries 4 bytes more on its last packet; one
packet per message is not worth a second ceiling.
"""

from __future__ import annotations

ETHERNET_BYTES = 14
OUTER_IPV6_BYTES = 40
INNER_IPV6_BYTES = 40
UDP_BYTES = 8
BTH_BYTES = 12
METH_BYTES = 4
TSETH_BYTES = 4
RETH_BYTES = 16
ICRC_BYTES = 4
IMMEDIATE_BYTES = 4

# Through TSETH: what a trimmed packet must keep for the receiver to name path, QP, PSN and send time (mrc-facts 3.6).
TRIM_MIN_BYTES = ETHERNET_BYTES + OUTER_IPV6_BYTES + INNER_IPV6_BYTES + UDP_BYTES + BTH_BYTES + METH_BYTES + TSETH_BYTES
HEADER_BYTES = TRIM_MIN_BYTES + RETH_BYTES + ICRC_BYTES  # 142, as mrc-facts 3.3 counts it

# DESIGN 5: preamble 8, FCS 4 and gap 12 are not on a veth, but on real Ethernet; charged so that the ceiling is the same.
DEFAULT_OVERHEAD_BYTES = 24


def charged_bytes(payload: int, overhead: int = DEFAULT_OVERHEAD_BYTES) -> int:
    """Bytes a data packet takes of a link's rate: the frame on the veth plus `overhead`. 4096 -> 4262."""
    return payload + HEADER_BYTES + overhead


def packet_bytes(payload: int) -> int:
    """Size of the largest IPv6 packet (without Ethernet) that a payload needs: what the MTU must hold.

    The immediate is counted: a message of exactly one payload travels as WRITE only with immediate.
    """
    return payload + HEADER_BYTES + IMMEDIATE_BYTES - ETHERNET_BYTES


def payload_max(mtu: int) -> int:
    """The largest payload an MTU of `mtu` bytes carries (pitfall H-08); negative when not even headers fit."""
    return mtu - packet_bytes(0)


def payload_ceiling(payload: int, overhead: int = DEFAULT_OVERHEAD_BYTES) -> float:
    """The share of a link's rate that full packets leave for payload: 0.961 for 4096 (mrc-facts 3.3: 96.1 %)."""
    return payload / charged_bytes(payload, overhead)
