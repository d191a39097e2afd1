"""One interface's state, from and to the kernel: IFF_UP, carrier, operational state."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterable
from dataclasses import dataclass

from testbed.errors import KernelError
from testbed.fabric.netlink import NLM_F_ACK, NLM_F_REQUEST, Netlink, attributes, message

RTM_NEWLINK, RTM_GETLINK = 16, 18
IFF_UP = 1
_IFLA_OPERSTATE, _IFLA_CARRIER = 16, 33
_OPER_UP = 6
_INFO = struct.Struct("=BxHiII")  # struct ifinfomsg: family, type, index, flags, change
_STEP_S = 0.0005


@dataclass(frozen=True, slots=True)
class LinkState:
    """`up` is administrative; `running` means the kernel passes packets (operstate UP, so its queues are attached)."""

    up: bool
    carrier: bool
    running: bool


def read(link: Netlink, ifindex: int) -> LinkState:
    body = link.get(RTM_GETLINK, _INFO.pack(0, 0, ifindex, 0, 0), f"read interface #{ifindex}")
    flags = _INFO.unpack_from(body)[3]
    values = attributes(body, _INFO.size)
    return LinkState(bool(flags & IFF_UP), values[_IFLA_CARRIER][0] == 1, values[_IFLA_OPERSTATE][0] == _OPER_UP)


def set_up(link: Netlink, ifindex: int, *, up: bool) -> None:
    """`ip link set up|down`; returns once the kernel has acknowledged it."""
    link.execute([change(ifindex, up=up)])


def set_all(link: Netlink, indices: Iterable[int], *, up: bool) -> None:
    """`ip link set up|down` for many interfaces of one node."""
    link.execute([change(ifindex, up=up) for ifindex in indices])


def change(ifindex: int, *, up: bool) -> tuple[str, bytes]:
    """(operation, message) of `ip link set up|down`."""
    body = _INFO.pack(0, 0, ifindex, IFF_UP if up else 0, IFF_UP)
    return f"interface #{ifindex} {'up' if up else 'down'}", message(RTM_NEWLINK, NLM_F_REQUEST | NLM_F_ACK, body)


def wait_carrier(link: Netlink, node: str, ifindex: int, *, carrier: bool, running: bool, timeout_s: float = 10.0) -> bool:
    """Poll until carrier (and, if asked, operstate UP) is as wanted; returns whether it took more than one look. KernelError
    after `timeout_s`.
    """
    deadline = time.monotonic() + timeout_s
    waited = False
    while True:
        state = read(link, ifindex)
        if state.carrier == carrier and (state.running or not running):
            return waited
        waited = True
        if time.monotonic() > deadline:
            raise KernelError(node, f"interface #{ifindex}", f"still {state} after {timeout_s} s")
        time.sleep(_STEP_S)
