"""veth pairs made straight in two namespaces, in one `ip -batch`, with the plan's interface index and MAC at both ends.

NOARP and no MULTICAST at both ends: the kernel then joins no solicited-node or all-routers group, so it sends no MLD, no
neighbour solicitation and no router solicitation; every neighbour is permanent. Offloads are off: what crosses a port is a
frame, never an aggregate, and never has a checksum left to fill in (pitfall H-18).
"""

from __future__ import annotations

import array
import fcntl
import socket
import struct
from collections.abc import Iterable

from testbed.errors import KernelError
from testbed.fabric.namespaces import Namespaces
from testbed.fabric.plan import SID_DEVICE, SID_DEVICE_INDEX, SID_PEER, SID_PEER_INDEX, mac_of
from testbed.model.topology import Link, Port

_SIOCETHTOOL = 0x8946
# ETHTOOL_STXCSUM, _STSO, _SGSO, _SGRO (linux/ethtool.h). Without transmit checksumming the kernel drops scatter-gather too.
_OFFLOADS = {"tx-checksum": 0x17, "tso": 0x1F, "gso": 0x24, "gro": 0x2C}
_QUIET = "arp off multicast off"
_TALKING = "arp off multicast on"


def pair_line(link: Link, mtu: int, queue_packets: int, *, talking: bool = False) -> str:
    """The `ip -batch` line for one link, both ends down. `queue_packets` becomes each band's length (pfifo_fast).

    `talking`: router advertisements, which are multicast, may pass.
    """
    how = _TALKING if talking else _QUIET
    lower, upper = _end(link.lower, mtu, queue_packets, how), _end(link.upper, mtu, queue_packets, how)
    return f"link add {lower} type veth peer {upper}"


def _end(port: Port, mtu: int, queue_packets: int, how: str) -> str:
    mac = mac_of(port.ifindex).hex(":")
    return f"name {port.name} index {port.ifindex} netns {port.node} address {mac} mtu {mtu} txqueuelen {queue_packets} {how}"


def sid_device_line(switch: str, mtu: int) -> str:
    """The private pair that carries a switch's own SID: no fault ever touches it."""
    first = f"name {SID_DEVICE} index {SID_DEVICE_INDEX} netns {switch} mtu {mtu} {_QUIET}"
    second = f"name {SID_PEER} index {SID_PEER_INDEX} netns {switch} mtu {mtu} {_QUIET}"
    return f"link add {first} type veth peer {second}"


def offloads_off(namespaces: Namespaces, node: str, ports: Iterable[str]) -> None:
    """Switch checksum, segmentation and receive offloads off on every port of `node`."""
    with namespaces.inside(node), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        for port in ports:
            for feature, command in _OFFLOADS.items():
                value = array.array("I", [command, 0])
                request = struct.pack("16sP16x", port.encode(), value.buffer_info()[0])
                try:
                    fcntl.ioctl(control, _SIOCETHTOOL, request)
                except OSError as error:
                    raise KernelError(node, f"{port}: {feature} off", error.strerror or str(error)) from error
