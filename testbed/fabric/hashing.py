"""The kernel parameters that decide which of several equal paths a packet takes, set inside the namespaces and read back.

Policy 3 hashes the fields that `fib_multipath_hash_fields` names: the outer 5-tuple, and of a packet that carries another IPv6
packet the inner one's too, as a switch that looks into tunnels does (RoCE travels so here). Policy 0 hashes addresses and flow
label. Policy 1 is not offered: on a veth the packet still has the sending socket's own hash, which TCP changes at each timeout.
Without a fixed seed the kernel draws one at boot, and no run could be repeated; kernels before 6.11 cannot be given one.
A switch's uplink and a host's port that have lost their carrier are left out of the choice at once, as hardware does.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from testbed.errors import KernelError
from testbed.fabric.namespaces import Namespaces
from testbed.fabric.plan import NodePlan
from testbed.model.scenario import RoutingSpec
from testbed.model.topology import Tier

# Bits of net.ipv6.fib_multipath_hash_fields (kernel documentation, networking/ip-sysctl): source and destination address,
# protocol, source and destination port; the same of an inner header. No flow labels.
OUTER, INNER = 0x37, 0xDC0
POLICY, FIELDS, SEED = (
    "net/ipv6/fib_multipath_hash_policy",
    "net/ipv6/fib_multipath_hash_fields",
    "net/ipv4/fib_multipath_hash_seed",
)
_OF_TCP = ("tcp_congestion_control", "tcp_rmem", "tcp_wmem", "tcp_rto_min_us", "tcp_sack", "tcp_recovery", "tcp_ecn")
TCP = (
    *(f"net/ipv4/{name}" for name in _OF_TCP),
    *("net/core/txrehash", "net/mptcp/enabled", "net/mptcp/scheduler", "net/mptcp/stale_loss_cnt"),
)
_OTHER_SEED = 0x9E3779B9  # hosts hash with a seed of their own: the same one again would tie a flow's T1 to its plane


def has_seed() -> bool:
    """Whether this kernel's hash can be given a seed."""
    return (Path("/proc/sys") / SEED).exists()


def wanted(plan: NodePlan, routing: RoutingSpec) -> dict[str, str]:
    """Sysctls of a node by path below /proc/sys."""
    found = {POLICY: str(routing.hash_policy), FIELDS: str(OUTER | INNER)}
    if has_seed():
        seed = routing.hash_seed ^ _OTHER_SEED if plan.is_host else routing.hash_seed
        found[SEED] = str(seed or 1)
    return found | {f"net/ipv6/conf/{port}/ignore_routes_with_linkdown": "1" for port in _choices(plan)}


def _choices(plan: NodePlan) -> Iterator[str]:
    """Ports that are one of several equal ones: a host's, and a T0's towards its T1s."""
    for port, link in plan.ports:
        if plan.is_host or (link.tier is Tier.T0_T1 and port is link.lower):
            yield port.name


def install(namespaces: Namespaces, plan: NodePlan, routing: RoutingSpec) -> None:
    """Write a node's parameters. Raises KernelError unless the kernel reads back the same."""
    namespaces.write_sysctls(plan.node, wanted(plan, routing))
    found = problems(namespaces, plan, routing)
    if found:
        raise KernelError(plan.node, "read-back", "; ".join(found))


def problems(namespaces: Namespaces, plan: NodePlan, routing: RoutingSpec) -> list[str]:
    """Every parameter that is not as planned, as "node: what"."""
    asked = wanted(plan, routing)
    there = namespaces.read_sysctls(plan.node, asked)
    return [
        f"{plan.node}: {key} is {there.get(key, 'not there')}, planned {value}"
        for key, value in asked.items()
        if there.get(key) != value
    ]


def recorded(namespaces: Namespaces, node: str) -> dict[str, str]:
    """The kernel parameters of `node` that decide how ordinary transports fare, by their sysctl names."""
    there = namespaces.read_sysctls(node, (POLICY, FIELDS, SEED, *TCP))
    return {key.replace("/", "."): value for key, value in there.items()}
