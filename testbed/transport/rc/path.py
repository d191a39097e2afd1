"""The one path of a QP, chosen as ECMP would: by a hash of the 5-tuple among all there are, once and for good."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from zlib import crc32

from testbed.transport.common.codepoints import UDP_PORT
from testbed.transport.common.ports import PortClock
from testbed.transport.rc.wire import AGAIN, UPLINK_BITS

FIRST_SOURCE_PORT = 0xC000  # RoCEv2's range for entropy: the dynamic ports (annex A17)
_UDP = 17


class Path(NamedTuple):
    """`destination` as the socket takes it: address, 0, flow label, 0."""

    ev: int
    plane: int
    destination: tuple[str, int, int, int]
    port: PortClock

    @property
    def label(self) -> int:
        """The EV in a flow label."""
        return self.plane << UPLINK_BITS | self.ev & (1 << UPLINK_BITS) - 1


def ev_of(label: int) -> int:
    """The EV that `Path.label` put into a flow label."""
    label &= AGAIN - 1
    return label >> UPLINK_BITS << 16 | label & (1 << UPLINK_BITS) - 1


def five_tuple_hash(source: bytes, target: bytes, source_port: int) -> int:
    """32 bits of the 5-tuple; the protocol and the destination port are RoCEv2's."""
    ports = source_port.to_bytes(2, "big") + UDP_PORT.to_bytes(2, "big")
    return crc32(target, crc32(source, crc32(ports + bytes((_UDP,)))))


def hashed(paths: Sequence[Path], source: bytes, target: bytes, source_port: int) -> Path:
    """The path that a fabric of equal-cost paths gives this 5-tuple."""
    return paths[five_tuple_hash(source, target, source_port) * len(paths) >> 32]
