"""What an operator sees of a fabric: everything set in its nodes, and a link's two carriers."""

from __future__ import annotations

import subprocess

from testbed.fabric import linkstate
from testbed.fabric.netlink import Netlink
from testbed.fabric.network import Fabric
from testbed.model.topology import Link


def snapshot(net: Fabric) -> str:
    """Everything an operator can see in every node, sorted, in iproute2's words."""
    commands = (
        "ip -d -6 route show table all",
        "ip -6 neigh show nud permanent",
        "ip -o link show",
        "ip -o -6 addr show",
        "tc qdisc show",
    )
    lines = []
    for node, plan in net.plans.items():
        filters = [f"tc filter show dev {port.name} {hook}" for port, _ in plan.ports for hook in ("egress", "ingress")]
        with net.namespaces.inside(node):
            for command in (*commands, *filters):
                shown = subprocess.run(command.split(), capture_output=True, text=True, check=True).stdout
                lines += sorted(f"{node}: {command}: {line}" for line in shown.splitlines())
    return "\n".join(lines)


def carrier(net: Fabric, link: Link) -> tuple[bool, bool]:
    """Carrier at the lower and the upper end."""
    with Netlink(net.namespaces, link.lower.node) as lower, Netlink(net.namespaces, link.upper.node) as upper:
        return linkstate.read(lower, link.lower.ifindex).carrier, linkstate.read(upper, link.upper.ifindex).carrier
