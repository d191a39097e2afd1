"""What a fabric of a given size asks of this machine: descriptors of the runner, memory of kernel and hosts. Measured sizes."""

from __future__ import annotations

import resource
from pathlib import Path

from testbed.errors import KernelError, Missing
from testbed.model.topology import Topology

# The runner holds a namespace per node and a channel per host; while the fabric comes up two queue descriptors per host, while
# it is verified a socket per host. The rest: files, pipes, the program, the selector.
_PER_NODE, _PER_HOST, _OTHER = 1, 2, 64
# Up, 1,024 links on 192 nodes took 0.39 MB of kernel memory a link, 4,096 on 512 nodes 0.31 MB. A host takes 25 MB at most.
_LINK_BYTES, _HOST_BYTES = 400_000, 25 << 20


def descriptors(topology: Topology) -> int:
    """How many file descriptors a run may hold at once."""
    hosts, switches = len(topology.hosts), len(topology.switches)
    return _PER_NODE * (hosts + switches) + _PER_HOST * hosts + _OTHER


def memory(topology: Topology) -> int:
    """Bytes that the fabric and its hosts take together."""
    return len(topology.links) * _LINK_BYTES + len(topology.hosts) * _HOST_BYTES


def allow_descriptors(topology: Topology) -> None:
    """Raise this process's soft limit, which its children inherit, towards what is needed; the hard limit stays.

    The usual soft limit is 1,024. Where it is enough it is not touched.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = descriptors(topology)
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def missing(topology: Topology) -> list[Missing]:
    """What this machine is too small for."""
    found: list[Missing] = []
    size = f"topology ({len(topology.hosts)} hosts, {len(topology.links)} links)"
    need, limit = descriptors(topology), resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if limit != resource.RLIM_INFINITY and limit < need:
        remedy = "raise the hard limit (ulimit -Hn, or LimitNOFILE= of the service), or take a smaller topology"
        found.append(Missing(f"{need} file descriptors (the hard limit is {limit})", size, remedy))
    need, there = memory(topology), available_memory()
    if need > there:
        remedy = "take a larger machine or a smaller topology"
        found.append(Missing(f"{need >> 20} MiB of memory ({there >> 20} MiB are available)", size, remedy))
    return found


def available_memory() -> int:
    """Bytes that can be had without swapping, as the kernel estimates it."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) << 10
    raise KernelError("runner", "read /proc/meminfo", "no MemAvailable")
