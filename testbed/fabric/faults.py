"""Faults of links and switches, confirmed by the kernel, undone completely.

`down` (and `flap`, which is a `down` that comes again) and `reboot` take carriers (carrier.py). The others leave the carrier
up and act on what a port sends: `blackhole` is the port program dropping everything, `hang` the same at every port of a
switch, `loss` and `corrupt` hit a share of the packets on the wire, `rate` gives the port's shaper and virtual queue a lower
rate.
Direction: "forward" is from the link's lower end to its upper end, "backward" the other way.
Faults on one port compose and may end in any order: it is down, black or off until the last of them ends; shares lost
multiply what is left; of several rates the lowest holds.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence

from testbed.errors import KernelError
from testbed.fabric import queues
from testbed.fabric.carrier import Carriers, End
from testbed.fabric.namespaces import Namespaces
from testbed.fabric.netlink import Netlink
from testbed.fabric.plan import NodePlan
from testbed.fabric.ports import Ports
from testbed.model.faults import CARRIERS
from testbed.model.scenario import FaultAction, LinkSpec
from testbed.model.topology import Link, Port


class Faults:
    """Applies and undoes faults. Both return CLOCK_MONOTONIC ns at which the kernel had confirmed what was done.

    `amount` is the ratio (0 to 1) of `loss` and `corrupt` and the bit/s of `rate`; the same is given to undo it. KernelError
    for the undoing of what does not hold.
    """

    def __init__(self, namespaces: Namespaces, plans: Mapping[str, NodePlan], links: LinkSpec, ports: Ports) -> None:
        self._namespaces = namespaces
        self._plans = plans
        self._links = links
        self._ports = ports
        self._carriers = Carriers(namespaces, plans, links, ports)
        self._down: Counter[int] = Counter()
        self._rebooting: Counter[str] = Counter()
        self._hanging: Counter[str] = Counter()
        self._amounts: dict[tuple[FaultAction, int], list[float]] = {}
        self._lowered: dict[int, int] = {}  # bit/s by ifindex

    def apply(self, links: Sequence[Link], action: FaultAction, direction: str, amount: float, side: str) -> list[int]:
        """One time per link. `side`: lower | upper, which end `down` takes down."""
        if action in CARRIERS:
            ends = [_end(link, side) for link in links]
            new = [end for end in ends if not self._down[end[0].ifindex]]
            self._down.update(port.ifindex for port, _ in ends)
            return _times(ends, self._carriers.take_down(new))
        confirmed = []
        for link in links:
            for port in _senders(link, direction):
                self._amounts.setdefault((action, port.ifindex), []).append(amount)
                self._set(port, link, action)
            confirmed.append(time.monotonic_ns())
        return confirmed

    def undo(self, links: Sequence[Link], action: FaultAction, direction: str, amount: float, side: str) -> list[int]:
        if action in CARRIERS:
            ends = [_end(link, side) for link in links]
            for port, _ in ends:
                if not self._down[port.ifindex]:
                    raise _not_active(port, action)
            self._down.subtract(port.ifindex for port, _ in ends)
            return _times(ends, self._carriers.bring_up([end for end in ends if not self._down[end[0].ifindex]]))
        confirmed = []
        for link in links:
            for port in _senders(link, direction):
                held = self._amounts.get((action, port.ifindex), [])
                if amount not in held:
                    raise _not_active(port, action)
                held.remove(amount)
                self._set(port, link, action)
            confirmed.append(time.monotonic_ns())
        return confirmed

    def prepare(self, links: Sequence[Link], action: FaultAction, side: str) -> None:
        """Make ready what can be, so that `apply` and `undo` are over sooner. Nothing changes."""
        if action in CARRIERS:
            self._carriers.prepare([_end(link, side) for link in links])

    def close(self) -> None:
        """Let go of the sockets."""
        self._carriers.close()

    def reboot(self, switch: str) -> int:
        """Down, until `boot`."""
        if not self._rebooting[switch]:
            self._carriers.stop_switch(switch)
        self._rebooting[switch] += 1
        return time.monotonic_ns()

    def boot(self, switch: str) -> int:
        if not self._rebooting[switch]:
            raise KernelError(switch, "boot", "no such fault is active")
        self._rebooting[switch] -= 1
        if not self._rebooting[switch]:
            return self._carriers.start_switch(switch)
        return time.monotonic_ns()

    def compare(self) -> None:
        """Read back where carriers or switches came back since the last call. KernelError where it is not as planned."""
        self._carriers.compare(self._lowered)

    def is_off(self, switch: str) -> bool:
        """Whether a reboot holds it down."""
        return bool(self._rebooting[switch])

    def static_problems(self, end: Netlink, plan: NodePlan) -> list[str]:
        """How a node differs from its plan; a fault's own detours are not named."""
        return self._carriers.problems(end, plan)

    def hang(self, switch: str) -> int:
        """Its links stay up and it forwards nothing, until `wake`."""
        self._hanging[switch] += 1
        self._blacken(switch)
        return time.monotonic_ns()

    def wake(self, switch: str) -> int:
        if not self._hanging[switch]:
            raise KernelError(switch, "wake", "no such fault is active")
        self._hanging[switch] -= 1
        self._blacken(switch)
        return time.monotonic_ns()

    def _blacken(self, switch: str) -> None:
        for port, link in self._plans[switch].ports:
            self._set(port, link, FaultAction.BLACKHOLE)

    def _set(self, port: Port, link: Link, action: FaultAction) -> None:
        """Put in force what all faults of this kind on the port come to."""
        held = self._amounts.get((action, port.ifindex), [])
        match action:
            case FaultAction.BLACKHOLE:
                self._ports.flag(port.ifindex, "FLAG_BLACKHOLE", on=bool(held) or bool(self._hanging[port.node]))
            case FaultAction.LOSS:
                self._ports.set_loss(port.ifindex, 1 - math.prod(1 - ratio for ratio in held))
            case FaultAction.CORRUPT:
                self._ports.set_corrupt(port.ifindex, 1 - math.prod(1 - ratio for ratio in held))
            case FaultAction.RATE:
                rate = int(min(held, default=queues.rate_of(link, self._links)))
                queues.set_rate(self._namespaces, port, queues.shaper_at(rate, self._links))
                self._ports.set_rate(port.ifindex, rate // 8)
                self._lowered[port.ifindex] = rate
            case _:
                raise KernelError(port.node, str(action), "is no fault of a port")


def _end(link: Link, side: str) -> End:
    return (link.lower if side == "lower" else link.upper), link


def _times(ends: Sequence[End], confirmed: Mapping[int, int]) -> list[int]:
    """For what was so already: now."""
    now = time.monotonic_ns()
    return [confirmed.get(port.ifindex, now) for port, _ in ends]


def _not_active(port: Port, action: FaultAction) -> KernelError:
    return KernelError(port.node, f"undo {action} at {port.name}", "no such fault is active")


def _senders(link: Link, direction: str) -> tuple[Port, ...]:
    senders = {"forward": (link.lower,), "backward": (link.upper,), "both": (link.lower, link.upper)}
    return senders[direction]
