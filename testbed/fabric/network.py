"""The fabric of one run: everything in the kernel, brought up in bulk, taken down at once. Used inside the sandbox."""

from __future__ import annotations

import os
import resource
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import IO, Any

from mininet.net import Mininet

from testbed.errors import KernelError
from testbed.fabric import batch, hashing, kernelstack, limits, links, linkstate, plan, queues, static
from testbed.fabric.bgp import Bgp
from testbed.fabric.bpf import build
from testbed.fabric.bpf.loader import PortProgram
from testbed.fabric.delay import DelayLine, DelayStats
from testbed.fabric.faults import Faults
from testbed.fabric.namespaces import Namespaces
from testbed.fabric.netlink import Netlink
from testbed.fabric.nodes import FabricLink, FabricNode, FabricSwitch
from testbed.fabric.ports import PortCounters, PortInfo, Ports, port_infos
from testbed.fabric.sandbox import BPFFS
from testbed.fabric.topo import MultiPlaneTopo
from testbed.model.scenario import FaultAction, LinkSpec, Routing, RoutingSpec, SwitchSpec
from testbed.model.tcp import StackSpec
from testbed.model.topology import INTERFACE_NAME_MAX, Link, Tier, Topology, names_too_long

SRV6 = RoutingSpec()
_DESCRIPTORS_OF_IP = 16  # what `ip -batch` needs besides


class Fabric:
    """Namespaces, links, routes, queues, port program and delay of one topology; spawns processes; applies faults.

    `runtime_dir` must exist; it takes the compiled port program where the source folder is read-only. `logs` takes what routing
    daemons say, `runtime_dir` where none is given. `stack`: what the hosts' own TCP is to be, None where it carries nothing.
    Call everything from one thread: entering a namespace moves the calling thread. Raises KernelError when an interface name
    would not fit.
    """

    def __init__(
        self,
        topology: Topology,
        links: LinkSpec,
        switch: SwitchSpec,
        runtime_dir: Path,
        routing: RoutingSpec = SRV6,
        logs: Path | None = None,
        stack: StackSpec | None = None,
    ) -> None:
        too_long = names_too_long(topology)
        if too_long:
            message = f"longer than {INTERFACE_NAME_MAX} characters: {', '.join(too_long)}"
            raise KernelError("topology", "interface names", message)
        self.topology = topology
        self.links = links
        self.switch = switch
        self.routing = routing
        self.stack = stack
        self.plans = plan.build(topology, routing.kind, () if stack is None else stack.tunnels)
        self.ports: tuple[PortInfo, ...] = port_infos(topology, links)
        self.net: Any = None  # the Mininet object while the fabric is up
        self._runtime_dir = runtime_dir
        self._logs = runtime_dir if logs is None else logs
        self._bgp: Bgp | None = None
        self.converged_s: float | None = None  # from the first daemon's start; None without BGP
        self._namespaces: Namespaces | None = None
        self._program: PortProgram | None = None
        self._ports: Ports | None = None
        self._faults: Faults | None = None
        self._delay: DelayLine | None = None
        self._children: list[subprocess.Popen[Any]] = []

    @property
    def namespaces(self) -> Namespaces:
        if self._namespaces is None:
            raise KernelError("fabric", "namespaces", "the fabric is not up")
        return self._namespaces

    def up(self) -> None:
        """Bring everything up and read it back. Raises KernelError at the first thing that is not as planned, and cleans up."""
        try:
            self._up()
        except BaseException:
            self.down()
            raise

    def _up(self) -> None:
        limits.allow_descriptors(self.topology)
        program_file = build.build(self._runtime_dir)
        self._namespaces = Namespaces()
        self._namespaces.create((*self.topology.hosts, *self.topology.switches))
        self._make_links()
        beyond = 1 + max((info.ifindex for info in self.ports), default=0)
        self._program = PortProgram(program_file, beyond, BPFFS)
        self._ports = Ports(self._program, self.topology, self.links, self.switch)
        for node in self.plans.values():
            self._raise_ports(node)
        for node in self.plans.values():
            self._configure(node)
        self._faults = Faults(self._namespaces, self.plans, self.links, self._ports)
        self._delay = DelayLine(self._namespaces, self.topology, self.links.delay_ns)
        self._delay.start()
        if self.routing.kind is Routing.BGP:
            place, logs = self._runtime_dir / "frr", self._logs / "frr"
            self._bgp = Bgp(self._namespaces, self.topology, self.routing, self.spawn, place, logs)
            began = time.monotonic()
            self._bgp.start_all()
            self.converged_s = round(time.monotonic() - began, 3)
        self.net = self._mininet()

    def _make_links(self) -> None:
        band = queues.band_packets(self.links, self.switch)
        bgp = self.routing.kind is Routing.BGP
        lines = [
            links.pair_line(link, self.links.mtu, band, talking=bgp and link.tier is Tier.T0_T1) for link in self.topology.links
        ]
        lines += [links.sid_device_line(switch, self.links.mtu) for switch in self.topology.switches]
        # iproute2 opens a descriptor for every `netns NAME` in a batch and closes none, so the lines go in portions.
        portion = (resource.getrlimit(resource.RLIMIT_NOFILE)[0] - _DESCRIPTORS_OF_IP) // 2
        for start in range(0, len(lines), portion):
            batch.run("ip", lines[start : start + portion], self.namespaces, None)

    def _raise_ports(self, node: plan.NodePlan) -> None:
        """Queues before the port is up, so that not one frame passes unshaped; all ports before any route needs a carrier."""
        links.offloads_off(self.namespaces, node.node, [port.name for port, _ in node.ports])
        batch.run("tc", queues.lines(node, self.links, BPFFS), self.namespaces, node.node)
        if not node.is_host:
            self.namespaces.start_forwarding(node.node)
        with Netlink(self.namespaces, node.node) as link:
            linkstate.set_all(link, node.devices, up=True)

    def _configure(self, node: plan.NodePlan) -> None:
        if self.routing.hashes:
            hashing.install(self.namespaces, node, self.routing)
        with Netlink(self.namespaces, node.node) as link:
            static.install_plan(link, node)
            static.check(link, node)
            queues.check(node, self.links, link)
            # A port's queue is attached some time after its carrier is there; a host that began before would take it for dead.
            for port, _ in node.ports:
                linkstate.wait_carrier(link, node.node, port.ifindex, carrier=True, running=True)
        if node.is_host and self.stack is not None:
            kernelstack.install(self.namespaces, node.node, self.stack)

    def _mininet(self) -> Mininet:
        # Mininet's own start-up would raise kernel limits of the whole machine (fixLimits); nothing outside is ours to change.
        Mininet.inited = True
        net = Mininet(
            topo=MultiPlaneTopo(topology=self.topology),
            host=partial(FabricNode, namespaces=self.namespaces),
            switch=partial(FabricSwitch, namespaces=self.namespaces),
            link=FabricLink,
            controller=None,
            build=False,
        )
        net.build()
        return net

    def down(self) -> None:
        """End every process and let go of everything. Safe to call twice and after a failed `up`."""
        for child in self._children:
            if child.poll() is None:
                child.kill()
        for child in self._children:
            child.wait()
        self._children.clear()
        if self._delay is not None:
            self._delay.close()
            self._delay = None
        if self.net is not None:
            for node in self.net.values():
                node.terminate()
            self.net = None
        if self._faults is not None:
            self._faults.close()
        if self._namespaces is not None:
            self._namespaces.close()
            self._namespaces = None
        if self._program is not None:
            self._program.close()
            self._program = None
        self._ports = self._faults = self._bgp = None

    def spawn(
        self,
        node: str,
        argv: Sequence[str],
        *,
        pass_fds: Sequence[int] = (),
        stdout: int | IO[Any] | None = None,
        stderr: int | IO[Any] | None = None,
        realtime_priority: int | None = None,
    ) -> subprocess.Popen[bytes]:
        """Start `argv` in a node's network namespace, in a session of its own, so that Ctrl-C reaches only the runner.

        `realtime_priority` 1-99 puts it under SCHED_FIFO. `down` kills what still runs.
        """
        with self.namespaces.inside(node):
            child = subprocess.Popen(
                list(argv),
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                pass_fds=tuple(pass_fds),
                start_new_session=True,
            )
        self._children.append(child)
        if realtime_priority is not None:
            with suppress(ProcessLookupError):  # it has ended already; its own exit status tells why
                os.sched_setscheduler(child.pid, os.SCHED_FIFO, os.sched_param(realtime_priority))
        return child

    def read_ports(self, now_ns: int | None = None) -> list[PortCounters]:
        """Counters of every port in the order of `ports`, at `now_ns` (CLOCK_MONOTONIC; None: now)."""
        if self._ports is None:
            raise KernelError("fabric", "read ports", "the fabric is not up")
        return self._ports.read(time.monotonic_ns() if now_ns is None else now_ns)

    def port_problems(self) -> list[str]:
        """Where the port program's settings are not the plan's."""
        if self._ports is None:
            raise KernelError("fabric", "port settings", "the fabric is not up")
        return self._ports.problems(self.topology, self.links, self.switch)

    def parameters(self) -> dict[str, dict[str, str]]:
        """Kernel parameters that decide how the transport fares, read in one host and one switch: each kind is set alike."""
        return {node: hashing.recorded(self.namespaces, node) for node in (self.topology.hosts[0], self.topology.switches[0])}

    def delay_stats(self) -> DelayStats:
        """How late the delay line was since the last call."""
        if self._delay is None:
            raise KernelError("fabric", "delay", "the fabric is not up")
        return self._delay.stats()

    @property
    def delay_method(self) -> str:
        """netem | nfqueue | none."""
        return "none" if self._delay is None else self._delay.method

    def prepare(self, links: Sequence[Link], action: FaultAction, side: str = "") -> None:
        """Make ready what `apply_faults` and `undo_faults` of these need, before their time. Nothing changes."""
        self._in_force.prepare(links, action, side)

    def apply_faults(
        self, links: Sequence[Link], action: FaultAction, direction: str = "both", amount: float = 0.0, side: str = ""
    ) -> list[int]:
        """Returns for each link the CLOCK_MONOTONIC ns at which the kernel had confirmed it. See faults.py for the kinds."""
        return self._in_force.apply(links, action, direction, amount, side)

    def undo_faults(
        self, links: Sequence[Link], action: FaultAction, direction: str = "both", amount: float = 0.0, side: str = ""
    ) -> list[int]:
        """As `apply_faults`: carriers read at both ends, everything written acknowledged. `compare` then reads it all back."""
        return self._in_force.undo(links, action, direction, amount, side)

    def compare(self) -> None:
        """Every route, neighbour, address and shaper where carriers or switches came back since the last call is as planned;
        else KernelError. Apart from the undoing, since it takes milliseconds for which another fault need not wait.
        """
        self._in_force.compare()

    def apply_fault(self, link: Link, action: FaultAction, direction: str = "both", amount: float = 0.0, side: str = "") -> int:
        return self.apply_faults([link], action, direction, amount, side)[0]

    def undo_fault(self, link: Link, action: FaultAction, direction: str = "both", amount: float = 0.0, side: str = "") -> int:
        return self.undo_faults([link], action, direction, amount, side)[0]

    def static_problems(self, end: Netlink, node: plan.NodePlan) -> list[str]:
        """How a node's routes, neighbours and addresses differ from its plan; a fault's own detours are not named."""
        return self._in_force.static_problems(end, node)

    def reboot(self, switch: str) -> int:
        """The switch goes down, empty, until `boot`. Returned as by `apply_fault`."""
        if self._bgp is not None:
            self._bgp.stop(switch)
        return self._in_force.reboot(switch)

    def boot(self, switch: str) -> int:
        """The switch comes back with its static configuration. Returned as by `undo_fault`; BGP only starts then."""
        booted_ns = self._in_force.boot(switch)
        if self._bgp is not None and not self._in_force.is_off(switch):
            self._bgp.start(switch)
        return booted_ns

    def routes_missing(self) -> list[str]:
        """What BGP has not found at the moment, as "switch: what"; empty without BGP."""
        return [] if self._bgp is None else self._bgp.missing()

    def check_routing(self) -> None:
        """RunError when a routing daemon has died unplanned."""
        if self._bgp is not None:
            self._bgp.check()

    def hang(self, switch: str) -> int:
        """The switch forwards nothing, its links up, until `wake`."""
        return self._in_force.hang(switch)

    def wake(self, switch: str) -> int:
        return self._in_force.wake(switch)

    @property
    def _in_force(self) -> Faults:
        if self._faults is None:
            raise KernelError("fabric", "fault", "the fabric is not up")
        return self._faults
