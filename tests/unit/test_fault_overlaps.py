"""Faults that overlap on one fabric, begun and ended in any order: at every moment each port is what its reasons come to.

The state machine alone, over a kernel that only keeps interfaces up or down; tests/netns has the real one.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.errors import KernelError
from testbed.fabric import carrier, linkstate, plan, queues, srv6, static
from testbed.fabric.faults import Faults
from testbed.model.faults import CARRIERS, OF_HOSTS, OF_SWITCHES
from testbed.model.scenario import FaultAction, LinkSpec, TopologySpec
from testbed.model.topology import Link, Port, build

TOPOLOGY = build(TopologySpec(2, 2, 2, 1))
PLANS = plan.build(TOPOLOGY)
WIRE = LinkSpec(10_000_000, 10_000_000, (0, 0), 4500, 24)
OF_LINKS = sorted(set(FaultAction) - {*OF_SWITCHES, *OF_HOSTS})
HEADER = 16  # of a netlink message
# Few, so that they overlap: a switch's links one by one, two of its neighbours' with it, all of its plane.
SWITCHES = ("p0t0-0", "p0t1-0")
ONE, OTHER, NIC = TOPOLOGY.link("p0t0-0", "p0t1-0"), TOPOLOGY.link("p0t0-1", "p0t1-0"), TOPOLOGY.link("h0", "p0t0-0")
PLACES = ((ONE,), (NIC,), (OTHER, ONE), tuple(link for link in TOPOLOGY.links if link.plane == 0))


@dataclass(frozen=True)
class Fault:
    action: FaultAction
    switch: str = ""
    links: tuple[Link, ...] = ()
    direction: str = "both"
    amount: float = 0.0
    side: str = "upper"

    def holds(self, port: Port) -> bool:
        """Whether this port sends under it."""
        sides = {"forward": ("lower",), "backward": ("upper",), "both": ("lower", "upper")}[self.direction]
        return any(getattr(link, side) is port for link in self.links for side in sides)

    @property
    def ends(self) -> tuple[Port, ...]:
        """The ports that it takes down."""
        if self.action is FaultAction.REBOOT:
            return tuple(port for port, _ in PLANS[self.switch].ports)
        return (
            tuple(link.lower if self.side == "lower" else link.upper for link in self.links) if self.action in CARRIERS else ()
        )


AMOUNTS = {
    FaultAction.LOSS: st.sampled_from([0.1, 0.5, 1.0]),
    FaultAction.CORRUPT: st.sampled_from([0.1, 0.25]),
    FaultAction.RATE: st.sampled_from([1e6, 2e6, 5e6]),
}


@st.composite
def one_fault(draw: st.DrawFn) -> Fault:
    if draw(st.integers(0, 2)) == 0:
        return Fault(draw(st.sampled_from(sorted(OF_SWITCHES))), switch=draw(st.sampled_from(SWITCHES)))
    action = draw(st.sampled_from(OF_LINKS))
    return Fault(
        action,
        links=draw(st.sampled_from(PLACES)),
        direction=draw(st.sampled_from(["both", "forward", "backward"])),
        amount=draw(AMOUNTS.get(action, st.just(0.0))),
        side=draw(st.sampled_from(["upper", "lower"])),
    )


@dataclass
class Kernel:
    """Interfaces by index, up or down by their own setting; and what the port program was told."""

    up: dict[int, bool] = field(default_factory=lambda: dict.fromkeys(peers(), True))
    flags: dict[tuple[int, str], bool] = field(default_factory=dict)
    loss: dict[int, float] = field(default_factory=dict)
    corrupt: dict[int, float] = field(default_factory=dict)
    rate: dict[int, int] = field(default_factory=dict)  # bytes/s of the virtual queue
    shaper: dict[int, int] = field(default_factory=dict)  # bit/s

    def carrier(self, ifindex: int) -> bool:
        return self.up[ifindex] and self.up[peers()[ifindex]]

    # The part of testbed.fabric.ports.Ports that faults use.
    def flag(self, ifindex: int, name: str, *, on: bool) -> None:
        self.flags[ifindex, name] = on

    def set_loss(self, ifindex: int, ratio: float) -> None:
        self.loss[ifindex] = ratio

    def set_corrupt(self, ifindex: int, ratio: float) -> None:
        self.corrupt[ifindex] = ratio

    def set_rate(self, ifindex: int, bytes_per_s: int) -> None:
        self.rate[ifindex] = bytes_per_s

    def forget_queue(self, ifindex: int) -> None:
        assert not self.carrier(ifindex), "the queue of a port that still sends"

    # netlink and what reads by it
    def socket(self, _namespaces: object, _node: str) -> Kernel:
        return self

    def execute(self, requests: Sequence[tuple[str, bytes]]) -> None:
        for _, message in requests:
            if struct.unpack_from("=H", message, 4)[0] == linkstate.RTM_NEWLINK:
                _, ifindex, flags, _ = struct.unpack_from("=HiII", message, HEADER + 2)
                if ifindex in self.up:
                    self.up[ifindex] = bool(flags & linkstate.IFF_UP)

    def read(self, _link: object, ifindex: int) -> linkstate.LinkState:
        return linkstate.LinkState(self.up[ifindex], self.carrier(ifindex), self.carrier(ifindex))

    def reshape(self, _namespaces: object, port: Port, wanted: queues.Shaper) -> None:
        self.shaper[port.ifindex] = wanted.rate_bps


def peers() -> dict[int, int]:
    both = [(link.lower.ifindex, link.upper.ifindex) for link in TOPOLOGY.links]
    return dict(both) | {there: here for here, there in both}


def over(kernel: Kernel) -> Iterator[Faults]:
    nothing: set[Any] = set()
    with ExitStack() as stack:
        for module, name, instead in (
            (carrier, "Netlink", kernel.socket),
            (linkstate, "read", kernel.read),
            (linkstate, "wait_carrier", partial(linkstate.wait_carrier, timeout_s=0.0)),
            (srv6, "read_routes", lambda _: (nothing, nothing)),
            (srv6, "read_neighbours", lambda _: nothing),
            (static, "problems", lambda _end, _plan: []),
            (queues, "check", lambda *_: None),
            (queues, "set_rate", kernel.reshape),
        ):
            stack.enter_context(patch.object(module, name, instead))
        yield Faults(None, PLANS, WIRE, kernel)  # type: ignore[arg-type]


def begin(faults: Faults, fault: Fault) -> None:
    match fault.action:
        case FaultAction.REBOOT:
            faults.reboot(fault.switch)
        case FaultAction.HANG:
            faults.hang(fault.switch)
        case _:
            times = faults.apply(fault.links, fault.action, fault.direction, fault.amount, fault.side)
            assert len(times) == len(fault.links)


def end(faults: Faults, fault: Fault) -> None:
    match fault.action:
        case FaultAction.REBOOT:
            faults.boot(fault.switch)
        case FaultAction.HANG:
            faults.wake(fault.switch)
        case _:
            times = faults.undo(fault.links, fault.action, fault.direction, fault.amount, fault.side)
            assert len(times) == len(fault.links)
    faults.compare()


def check(kernel: Kernel, active: Sequence[Fault]) -> None:
    """Every port, by nothing but the list of what holds."""
    down = {port.ifindex for fault in active for port in fault.ends}
    assert {ifindex for ifindex, up in kernel.up.items() if not up} == down
    for link in TOPOLOGY.links:
        dark = link.lower.ifindex in down or link.upper.ifindex in down
        for port in (link.lower, link.upper):
            mine = [fault for fault in active if fault.holds(port)]
            hanging = any(fault.action is FaultAction.HANG and fault.switch == port.node for fault in active)
            black = hanging or any(fault.action is FaultAction.BLACKHOLE for fault in mine)
            left = {
                action: math.prod(1 - fault.amount for fault in mine if fault.action is action)
                for action in (FaultAction.LOSS, FaultAction.CORRUPT)
            }
            rates = [int(fault.amount) for fault in mine if fault.action is FaultAction.RATE]
            at = port.ifindex
            assert kernel.flags.get((at, "FLAG_DOWN"), False) == dark
            assert kernel.flags.get((at, "FLAG_BLACKHOLE"), False) == black
            assert kernel.loss.get(at, 0.0) == pytest.approx(1 - left[FaultAction.LOSS])
            assert kernel.corrupt.get(at, 0.0) == pytest.approx(1 - left[FaultAction.CORRUPT])
            planned = queues.rate_of(link, WIRE)
            assert kernel.shaper.get(at, planned) == min(rates, default=planned)
            assert kernel.rate.get(at, planned // 8) == min(rates, default=planned) // 8


@given(st.lists(one_fault(), min_size=1, max_size=8), st.data())
def test_any_faults_in_any_order_compose_and_leave_nothing(chosen: list[Fault], data: st.DataObject) -> None:
    kernel, active = Kernel(), list[Fault]()
    for faults in over(kernel):
        while chosen or active:
            if chosen and (not active or data.draw(st.booleans(), label="begin")):
                active.append(chosen.pop())
                begin(faults, active[-1])
            else:
                ended = active.pop(data.draw(st.integers(0, len(active) - 1), label="end"))
                end(faults, ended)
            check(kernel, active)


@pytest.mark.parametrize("action", sorted(set(FaultAction) - {*OF_HOSTS}))
def test_what_does_not_hold_cannot_be_undone(action: FaultAction) -> None:
    place = {"switch": "p0t1-0"} if action in OF_SWITCHES else {"links": (TOPOLOGY.link("p0t0-0", "p0t1-0"),)}
    fault, other = Fault(action, **place), Fault(action, links=(TOPOLOGY.link("p0t0-1", "p0t1-0"),), switch="p0t1-1")
    for faults in over(Kernel()):
        begin(faults, fault)
        with pytest.raises(KernelError, match="no such fault is active"):
            end(faults, other)
        end(faults, fault)
        with pytest.raises(KernelError, match="no such fault is active"):
            end(faults, fault)
