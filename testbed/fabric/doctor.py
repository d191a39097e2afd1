"""What does this machine lack for a scenario? Tools by looking on PATH, kernel features by trying each in a throw-away sandbox.

Nothing is created outside the sandbox, which is gone when `missing` returns. Takes well under 1.5 s.
"""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from testbed.errors import Missing
from testbed.fabric import bgp, limits
from testbed.model.scenario import Routing, Scenario, TransportKind
from testbed.model.topology import build

SETUP = "run ./setup.sh"
PROGRAM_KEYS = "links.rate, switch.* and faults (the port program)"


@dataclass(frozen=True, slots=True)
class Tool:
    """A program on PATH. `optional`: only a person at the CLI needs it, no scenario does."""

    name: str
    needed_by: str
    package: str
    optional: bool = False


TOOLS: tuple[Tool, ...] = (
    Tool("ip", "topology (every scenario)", "iproute2"),
    Tool("tc", "links.rate (every scenario)", "iproute2"),
    Tool("mnexec", "--cli and `python3 -m testbed shell`", "mininet", optional=True),
    Tool("bash", "--cli and `python3 -m testbed shell`", "bash", optional=True),
    Tool("tcpdump", "--pcap", "tcpdump", optional=True),
)
DELAY_TOOL = Tool("ip6tables-restore", "links.delay (this kernel has no netem)", "iptables")
FRR = (
    Tool(str(bgp.DAEMONS / "zebra"), "routing (kind: bgp)", "frr"),
    Tool(str(bgp.DAEMONS / "bgpd"), "routing (kind: bgp)", "frr"),
)
MPTCPIZE = Tool("mptcpize", "transport.kind mptcp", "mptcpize")
BFD = Tool(str(bgp.DAEMONS / "bfdd"), "routing.bfd", "frr")
_CLANG = Tool("clang", PROGRAM_KEYS, "clang and libbpf-dev")

# (bit, name, what needs it): linux/capability.h
_CAPABILITIES = (
    (12, "CAP_NET_ADMIN", "topology (every scenario)"),
    (13, "CAP_NET_RAW", "transport (raw sockets)"),
    (21, "CAP_SYS_ADMIN", "topology (every scenario: namespaces and the port program)"),
    (23, "CAP_SYS_NICE", "links.delay (real-time priority)"),
)


def missing(scenario: Scenario | None = None, *, cli: bool = False) -> list[Missing]:
    """Everything `scenario` needs and this machine lacks; None asks for every feature. `cli`: an interactive shell too."""
    privileges = _privileges()
    wanted = (
        [tool for tool in TOOLS if scenario is None or cli or not tool.optional]
        + _of_routing(scenario)
        + _of_transport(scenario)
    )
    absent = [tool for tool in wanted if shutil.which(tool.name) is None]
    found = privileges + [_absent(tool) for tool in absent] + _libraries() + _of_kernel(scenario)
    found += limits.missing(build(scenario.topology)) if scenario else []
    wants_delay = scenario is None or any(scenario.links.delay_ns)
    no_delay_tool = shutil.which(DELAY_TOOL.name) is None
    if privileges or any(not tool.optional for tool in absent):
        # The kernel cannot be asked; netem may be there, so this is only likely to be needed.
        return found + ([_absent(DELAY_TOOL)] if wants_delay and no_delay_tool else [])
    from testbed.fabric import kernelprobe

    return found + kernelprobe.missing(wants_delay=wants_delay, delay_tool=_absent(DELAY_TOOL) if no_delay_tool else None)


def _of_transport(scenario: Scenario | None) -> list[Tool]:
    if scenario is None or scenario.transport.kind is TransportKind.MPTCP:
        return [MPTCPIZE]
    return []


def _of_kernel(scenario: Scenario | None) -> list[Missing]:
    """What the hosts' own TCP needs of this kernel and of libiperf."""
    kind = None if scenario is None else scenario.transport.kind
    found = []
    if kind is None or kind.is_kernels:
        try:
            ctypes.CDLL("libiperf.so.0")
        except OSError:
            found.append(Missing("libiperf.so.0", "transport.kind tcp and mptcp", f"{SETUP}, or apt-get install iperf3"))
        there = Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text().split()
        wanted = "cubic" if scenario is None else scenario.transport.cc
        if wanted not in there:
            found.append(Missing(f"congestion control {wanted}", "transport.cc", f"this kernel has {', '.join(there)}"))
    if kind in (None, TransportKind.MPTCP) and not Path("/proc/sys/net/mptcp/enabled").exists():
        found.append(
            Missing("MPTCP in this kernel", "transport.kind mptcp", "a kernel with CONFIG_MPTCP and CONFIG_MPTCP_IPV6")
        )
    return found


def _of_routing(scenario: Scenario | None) -> list[Tool]:
    if scenario is None:
        return [*FRR, BFD]
    if scenario.routing.kind is not Routing.BGP:
        return []
    return [*FRR, BFD] if scenario.routing.bfd else [*FRR]


def report() -> str:
    """For people: what is there, what is not, what to know."""
    lacking = missing(None)
    lines = [
        f"kernel {platform.release()}, Python {platform.python_version()}, {os.cpu_count()} cores",
        *(
            f"tool {tool.name}: {shutil.which(tool.name) or 'not found'}"
            for tool in (*TOOLS, *FRR, BFD, MPTCPIZE, DELAY_TOOL, _CLANG)
        ),
        *notes(),
    ]
    if lacking:
        lines += ["missing:", *(f"  {item}" for item in lacking)]
    else:
        lines.append("nothing is missing: every scenario can run here")
    return "\n".join(lines)


def notes() -> list[str]:
    """Facts that change how a run behaves, without stopping it."""
    if _privileges():
        return []
    from testbed.fabric import kernelprobe

    return kernelprobe.notes()


def _absent(tool: Tool) -> Missing:
    return Missing(tool.name, tool.needed_by, f"{SETUP}, or apt-get install {tool.package}")


def _privileges() -> list[Missing]:
    if os.geteuid() != 0:
        return [Missing("root", "topology (every scenario)", "run it as root or with sudo")]
    with open("/proc/self/status") as status:  # noqa: PTH123 - Path.read_text adds nothing here
        effective = int(next(line.split()[1] for line in status if line.startswith("CapEff")), 16)
    remedy = "run it outside the container, or give the container this capability"
    return [Missing(name, needed, remedy) for bit, name, needed in _CAPABILITIES if not effective >> bit & 1]


def _libraries() -> list[Missing]:
    from testbed.fabric.bpf import build
    from testbed.fabric.sandbox import BPFFS

    found: list[Missing] = []
    try:
        ctypes.CDLL("libbpf.so.1")
    except OSError:
        found.append(Missing("libbpf.so.1", PROGRAM_KEYS, f"{SETUP}, or apt-get install libbpf1"))
    if build.find(BPFFS) is None and shutil.which(_CLANG.name) is None:
        found.append(_absent(_CLANG))
    return found


if __name__ == "__main__":
    print(report())
    sys.exit(3 if missing(None) else 0)
