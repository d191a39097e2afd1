"""Bring-up and tear-down of 1,024 links on 8 planes: ours, a bare `ip -batch` + `tc -b` of the same objects, stock Mininet.

All in one run on the same machine, each in a sandbox of its own with a private /tmp; ratios are what counts. "down" is until
the call returns; "gone" until the kernel has removed the last interface too. Stock Mininet (TCLink) makes links and shapers:
no routes, no neighbours, no programs, nothing read back.

    python -m benchmarks.bringup [--without-mininet | --large]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from testbed.fabric import batch, links, plan, queues, syscalls
from testbed.fabric.bpf import build
from testbed.fabric.bpf.loader import PortProgram
from testbed.fabric.namespaces import Namespaces
from testbed.fabric.network import Fabric
from testbed.fabric.plan import NodePlan, RouteKind
from testbed.fabric.sandbox import BPFFS, NETNS, run_in_sandbox
from testbed.fabric.syscalls import Mount
from testbed.fabric.verify import verify
from testbed.model import topology
from testbed.model.scenario import LinkSpec, SwitchSpec, TopologySpec

SHAPE = TopologySpec(8, 8, 8, 8)
LARGE = TopologySpec(8, 16, 16, 16)
LINKS = LinkSpec(100_000_000, 100_000_000, (0,) * 8, 4500, 24)
FRAME = queues.full_frame(LINKS)
SWITCH = SwitchSpec(True, True, 2 * FRAME, 6 * FRAME, 8 * FRAME, 12 * FRAME, 128)
WATCHERS = ("watch0", "watch1")
Times = dict[str, float]


def in_sandbox(body: Callable[[], Times]) -> Times:
    """The times that `body` measured in its own namespaces, with its own /tmp."""
    read_end, write_end = os.pipe()

    def main() -> int:
        syscalls.mount("tmpfs", tempfile.gettempdir(), "tmpfs", Mount.NOSUID | Mount.NODEV)
        for key, value in body().items():
            os.write(write_end, f"{key} {value}\n".encode())
        return 0

    try:
        status = run_in_sandbox(main)
    finally:
        os.close(write_end)
    with os.fdopen(read_end) as answer:
        lines = answer.read().split("\n")
    if status:
        sys.exit(f"the sandbox ended with status {status}")
    return {key: float(value) for key, value in (line.split() for line in lines if line)}


def watch(nodes: tuple[str, str]) -> None:
    """One interface here per node, whose far end is in the node: it goes when the kernel has cleaned the node up."""
    for name, node in zip(WATCHERS, nodes, strict=True):
        command = ["ip", "link", "add", name, "type", "veth", "peer", "name", "watched", "netns", node]
        subprocess.run(command, check=True)


def wait_gone() -> None:
    while any(Path("/sys/class/net", name).exists() or name in Path("/proc/net/dev").read_text() for name in WATCHERS):
        time.sleep(0.005)


def ours(spec: TopologySpec, *, probe: bool = False) -> Times:
    found = topology.build(spec)
    fabric = Fabric(found, LINKS, SWITCH, Path("/run"))
    build.build(Path("/run"))
    start = time.monotonic()
    fabric.up()
    times = {"up": time.monotonic() - start}
    if probe:
        start = time.monotonic()
        report = verify(fabric, found)
        times |= {"verify": time.monotonic() - start, "paths": report.paths_probed, "problems": len(report.problems)}
    watch((found.hosts[0], found.switches[-1]))
    start = time.monotonic()
    fabric.down()
    times["down"] = time.monotonic() - start
    wait_gone()
    times["gone"] = time.monotonic() - start
    return times


def bare() -> Times:
    """No reading back, no objects, lines prepared beforehand: the floor under any tool that uses iproute2."""
    found = topology.build(SHAPE)
    plans = plan.build(found)
    program = PortProgram(build.build(Path("/run")), 1 + max(link.upper.ifindex for link in found.links), BPFFS)
    spaces = Namespaces()
    band = queues.band_packets(LINKS, SWITCH)
    nodes = [f"netns add {name}" for name in plans]
    pairs = [links.pair_line(link, LINKS.mtu, band) for link in found.links]
    pairs += [links.sid_device_line(switch, LINKS.mtu) for switch in found.switches]
    work = [(name, node_lines(node), queues.lines(node, LINKS, BPFFS)) for name, node in plans.items()]
    start = time.monotonic()
    batch.run("ip", nodes, spaces, None)
    for first in range(0, len(pairs), 500):  # iproute2 keeps a descriptor per `netns NAME`
        batch.run("ip", pairs[first : first + 500], spaces, None)
    for name, address_lines, queue_lines in work:
        _inside("ip", name, address_lines)
        _inside("tc", name, queue_lines)
    times = {"up": time.monotonic() - start}
    watch((found.hosts[0], found.switches[-1]))
    start = time.monotonic()
    batch.run("ip", [f"netns del {name}" for name in plans], spaces, None)
    times["down"] = time.monotonic() - start
    wait_gone()
    times["gone"] = time.monotonic() - start
    program.close()
    spaces.close()
    return times


def _inside(tool: str, node: str, lines: list[str]) -> None:
    command = ["nsenter", f"--net={NETNS / node}", tool, "-batch", "-"]
    subprocess.run(command, input="\n".join(lines) + "\n", text=True, check=True)


def node_lines(node: NodePlan) -> list[str]:
    """The node's static state as `ip -batch` lines."""
    names = {port.ifindex: port.name for port, _ in node.ports} | {1: "lo", plan.SID_DEVICE_INDEX: plan.SID_DEVICE}
    names[plan.SID_PEER_INDEX] = plan.SID_PEER
    up = [1, *node.devices]
    found = [f"link set {names[index]} up" for index in up]
    found += [f"-6 addr add {item.address}/128 dev {names[item.device]} nodad" for item in node.addresses]
    found += [
        f"-6 neigh add {item.address} lladdr {item.mac.hex(':')} dev {names[item.device]} nud permanent"
        for item in node.neighbours
    ]
    for route in node.routes:
        if route.kind is RouteKind.BLACKHOLE:
            found.append(f"-6 route add blackhole {route.prefix}")
        elif route.kind is RouteKind.UN:
            flavor = "flavors next-csid lblen 32 nflen 16"
            found.append(f"-6 route add {route.prefix} encap seg6local action End {flavor} dev {names[route.device]}")
        else:
            found.append(f"-6 route add {route.prefix} via {route.gateway} dev {names[route.device]}")
    return [line.removeprefix("-6 ") for line in found]


def stock() -> Times:
    """Mininet as it comes: a shell per node, one `tc` command at a time."""
    from mininet.link import TCLink
    from mininet.log import setLogLevel
    from mininet.net import Mininet
    from mininet.topo import Topo

    setLogLevel("error")
    found = topology.build(SHAPE)
    graph: Any = Topo()
    for name in (*found.hosts, *found.switches):
        graph.addHost(name)
    for link in found.links:
        graph.addLink(link.lower.node, link.upper.node, bw=10)  # low enough for HTB not to warn at every link
    Mininet.inited = True  # its start-up would change kernel limits of the whole machine
    start = time.monotonic()
    net = Mininet(topo=graph, link=TCLink, controller=None, build=False)
    net.build()
    times = {"up": time.monotonic() - start}
    start = time.monotonic()
    net.stop()
    times["down"] = times["gone"] = time.monotonic() - start
    return times


def shown(name: str, times: Times) -> None:
    print(f"{name:<16}" + "  ".join(f"{key} {value:8.3f}" for key, value in times.items()), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--large", action="store_true", help="4,096 links of ours: up, verify, down")
    parser.add_argument("--without-mininet", action="store_true", help="only ours and the bare floor: seconds, not minutes")
    asked = parser.parse_args()
    if asked.large:
        start = time.monotonic()
        times = in_sandbox(lambda: ours(LARGE, probe=True))
        shown("4,096 links", times)
        print(f"in all {time.monotonic() - start:.1f} s (target: below 45 s, no problems)")
        return
    # The floor before and after, because a shared machine changes its mind.
    floors = [in_sandbox(bare)]
    mine = [in_sandbox(lambda: ours(SHAPE)), in_sandbox(lambda: ours(SHAPE))]
    floors.append(in_sandbox(bare))
    for name, several in (("ours", mine), ("bare ip and tc", floors)):
        for times in several:
            shown(name, times)
    best, floor = (min(times["up"] for times in several) for several in (mine, floors))
    print(f"ours / bare, up: {best / floor:.2f} (target: at most 1.5)")
    if asked.without_mininet:
        return
    theirs = in_sandbox(stock)
    shown("stock Mininet", theirs)
    print(f"stock / ours, up: {theirs['up'] / best:.1f} (target: at least 5)")
    for kind in ("down", "gone"):
        print(f"stock / ours, {kind}: {theirs[kind] / max(times[kind] for times in mine):.1f} (target for down: at least 20)")


if __name__ == "__main__":
    main()
