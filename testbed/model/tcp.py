"""TCP and MPTCP flows: addresses, ports, and over SRv6 the one path that each pair of hosts takes in each plane. Seeded.

A TCP flow runs between the hosts' addresses of all planes; over routing that hashes the host's hash chooses the plane. An MPTCP
flow has one subflow per plane: from the source's address in that plane, out of that port, to the target's address of all
planes; what comes back finds its plane by the source's address. Over SRv6 hosts wrap every packet (`encap.red`): switches see
uSIDs only.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv6Address

from testbed.model.flows import Flow
from testbed.model.flows import flows as every_flow
from testbed.model.paths import Path, paths
from testbed.model.scenario import Scenario, TransportKind, WorkloadKind
from testbed.model.topology import Topology
from testbed.model.usid import INNER_PREFIX, host_sid, inner_address

FIRST_SERVER_PORT = 5201  # iperf3's own; one per flow
FIRST_CLIENT_PORT, LAST_CLIENT_PORT = 20000, 60000
WORKLOADS = (WorkloadKind.STREAM, WorkloadKind.PERMUTATION, WorkloadKind.INCAST, WorkloadKind.ALL_TO_ALL)
FIRST_METRIC = 1024  # the kernel's default
MAX_SUBFLOWS = 8  # beside the first one (the kernel's MPTCP_PM_ADDR_MAX)
MPTCP_WARMUP_NS = 15 * 10**9  # measured: it settles after 2 to 11 s (docs/baselines.md)
NS_PER_S = 10**9


@dataclass(frozen=True, slots=True)
class Connection:
    """One flow's addresses and ports. `paths` over SRv6: one of TCP, one per plane of MPTCP; empty where switches choose."""

    flow: Flow
    source: IPv6Address
    target: IPv6Address
    port: int
    client_port: int
    paths: tuple[Path, ...]


@dataclass(frozen=True, slots=True)
class Tunnel:
    """A route of `host` (an index): packets for `target` are wrapped and sent to `segment` over `plane`.

    Of several to one target each has another metric; a socket that is bound to a port takes that port's.
    """

    host: int
    target: IPv6Address
    segment: IPv6Address
    plane: int
    metric: int


@dataclass(frozen=True, slots=True)
class StackSpec:
    """What the hosts' kernels are to be. `addresses`: of each host, by plane, with the port that has it (MPTCP only)."""

    mptcp: bool
    tunnels: tuple[Tunnel, ...]
    addresses: Mapping[str, tuple[tuple[IPv6Address, str], ...]]


def stack(scenario: Scenario, topology: Topology) -> StackSpec | None:
    """None where the kernel carries nothing."""
    kind = scenario.transport.kind
    if not kind.is_kernels:
        return None
    mptcp = kind is TransportKind.MPTCP
    addresses: dict[str, tuple[tuple[IPv6Address, str], ...]] = {}
    for index, host in enumerate(topology.hosts if mptcp else ()):
        ports = sorted((link.plane, port.name) for port, link in topology.ports_of(host))
        addresses[host] = tuple((address(scenario, plane, index), port) for plane, port in ports)
    routes = tunnels(scenario, topology, every_flow(scenario, topology))
    return StackSpec(mptcp, routes, addresses)


def connections(scenario: Scenario, topology: Topology, flows: Sequence[Flow]) -> tuple[Connection, ...]:
    """Every flow's, in order."""
    rng = random.Random(f"{scenario.seed}/ports")
    clients = rng.sample(range(FIRST_CLIENT_PORT, LAST_CLIENT_PORT), len(flows))
    found = []
    for flow, client in zip(flows, clients, strict=True):
        source, target = address(scenario, 0, flow.source), inner_address(flow.target)
        chosen = () if scenario.routing.hashes else path_of(scenario, topology, flow.source, flow.target)
        found.append(Connection(flow, source, target, FIRST_SERVER_PORT + flow.id, client, chosen))
    return tuple(found)


def address(scenario: Scenario, plane: int, host: int) -> IPv6Address:
    """What a host sends from in `plane`; TCP's is the same in all."""
    if scenario.transport.kind is TransportKind.TCP:
        return inner_address(host)
    return host_sid(plane, host) if scenario.routing.hashes else plane_address(plane, host)


def plane_address(plane: int, host: int) -> IPv6Address:
    """A host's inner address in one plane: fd00::<2 + plane>:<host>."""
    return IPv6Address(int(INNER_PREFIX) + (2 + plane << 16) + host)


def path_of(scenario: Scenario, topology: Topology, source: int, target: int) -> tuple[Path, ...]:
    """Over SRv6: the path drawn for a pair, of MPTCP one in each plane."""
    known = paths(topology, source, target)
    if scenario.transport.kind is TransportKind.TCP:
        return (random.Random(f"{scenario.seed}:{source}:{target}:tcp").choice(known),)
    planes = range(topology.spec.planes)
    return tuple(
        random.Random(f"{scenario.seed}:{source}:{target}:mptcp:{plane}").choice(
            [path for path in known if path.plane == plane]
        )
        for plane in planes
    )


def tunnels(scenario: Scenario, topology: Topology, flows: Sequence[Flow]) -> tuple[Tunnel, ...]:
    """Both ways of every pair that talks; empty where routing is not SRv6.

    To the target go as many as it has paths, back to each address that the source sends from one.
    """
    if scenario.routing.hashes:
        return ()
    found: dict[tuple[int, IPv6Address, int], Tunnel] = {}
    for source, target in sorted({(flow.source, flow.target) for flow in flows}):
        there, back = path_of(scenario, topology, source, target), path_of(scenario, topology, target, source)
        ways = [(source, inner_address(target), path) for path in there]
        ways += [(target, address(scenario, path.plane, source), path) for path in back]
        for host, to, path in ways:
            found[host, to, path.plane] = Tunnel(host, to, path.address, path.plane, FIRST_METRIC + path.plane)
    return tuple(found.values())


def seconds(flow: Flow, duration_ns: int) -> int:
    """How long iperf3 sends: whole seconds, to the flow's stop or past the end of the run."""
    stop = duration_ns if flow.stop_ns is None else min(flow.stop_ns, duration_ns)
    return max(1, -(-(stop - flow.start_ns) // NS_PER_S))
