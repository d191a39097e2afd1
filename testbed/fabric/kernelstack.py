"""The hosts' own TCP and MPTCP: parameters that decide how they fare, set inside the namespaces and read back."""

from __future__ import annotations

import subprocess

from testbed.errors import KernelError
from testbed.fabric import batch
from testbed.fabric.namespaces import Namespaces
from testbed.model.tcp import StackSpec

# The kernel's own defaults, written out: distributions change some of them, and a result must not depend on whose it was.
# `txrehash` and `auto_flowlabels`: a socket changes its flow label at each timeout, which only hash policy 0 looks at.
SYSCTLS = {
    "net/ipv4/tcp_rmem": "4096 131072 6291456",
    "net/ipv4/tcp_wmem": "4096 16384 4194304",
    "net/ipv4/tcp_sack": "1",
    "net/ipv4/tcp_recovery": "1",
    "net/ipv4/tcp_ecn": "2",
    "net/ipv6/auto_flowlabels": "1",
}
IF_THERE = {"net/ipv4/tcp_rto_min_us": "200000", "net/core/txrehash": "1"}  # newer than some kernels in use
OF_MPTCP = {"net/mptcp/enabled": "1", "net/mptcp/stale_loss_cnt": "4"}


def install(namespaces: Namespaces, host: str, stack: StackSpec) -> None:
    """Set up one host. Raises KernelError unless everything reads back as written."""
    wanted = dict(SYSCTLS)
    wanted |= {key: value for key, value in IF_THERE.items() if key in namespaces.read_sysctls(host, IF_THERE)}
    if stack.mptcp:
        wanted |= OF_MPTCP
    namespaces.write_sysctls(host, wanted)
    there = namespaces.read_sysctls(host, wanted)
    found = [f"{key} is {there.get(key)}, planned {value}" for key, value in wanted.items() if there.get(key) != value]
    if stack.mptcp:
        found += _mptcp(namespaces, host, stack)
    if found:
        raise KernelError(host, "read-back", "; ".join(found))


def _mptcp(namespaces: Namespaces, host: str, stack: StackSpec) -> list[str]:
    """Whoever connects opens one subflow more for every further plane, from its address there and out of its port.

    Not by announcing addresses to the other side: a host that both sends and receives then has both sides open subflows at
    once, and each side's limit refuses the other's.
    """
    own = stack.addresses[host][1:]
    count = len(own)
    lines = [f"mptcp limits set subflow {count} add_addr_accepted 0"]
    lines += [f"mptcp endpoint add {address} dev {port} subflow" for address, port in own]
    batch.run("ip", lines, namespaces, host)
    with namespaces.inside(host):
        limits, endpoints = (_words(["ip", "mptcp", what, "show"]) for what in ("limits", "endpoint"))
    found = []
    if limits != [["add_addr_accepted", "0", "subflows", str(count)]]:
        found.append(f"mptcp limits are {limits}, planned 0 addresses and {count} subflows")
    there = {(line[0], line[-1]) for line in endpoints if "subflow" in line}
    if there != {(str(address), port) for address, port in own}:
        found.append(f"mptcp endpoints are {sorted(there)}")
    return found


def _words(argv: list[str]) -> list[list[str]]:
    """Not `-j`: iproute2 6.1 prints no JSON for the limits."""
    text = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    return [line.split() for line in text.splitlines() if line.strip()]
