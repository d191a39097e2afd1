"""Pairs of hosts in namespaces of their own, back to back or behind three switches: the smallest network for two NICs.

Pair i is two network namespaces, a<i> and b<i>, with one port per plane. Back to back, a veth per plane is all there is.
Switched, three more namespaces (T0, T1, T0) forward by static uSID routes as the fabric's switches do. No shaper, no
delay, no trimming: what runs here measures or tests the hosts, not a fabric. `inside` makes the sandbox; everything that
is created in it goes when it ends.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import count, pairwise
from pathlib import Path

MTU = 4500
SIDES = ("a", "b")
SWITCHES = ("t", "u", "v")  # T0 of side a, T1, T0 of side b
USIDS = {"a": "4000", "t": "1000", "u": "2000", "v": "1001", "b": "4001"}
CHAIN = ("a", "t", "u", "v", "b")


def address(index: int, plane: int, *, switched: bool = False) -> str:
    """The outer address under which side `index` is reached on a plane: a uSID list when there are switches."""
    hops = (SWITCHES if index else SWITCHES[::-1]) if switched else ()
    usids = [USIDS[node] for node in (*hops, SIDES[index])]
    return f"5f00:{plane}:{':'.join(usids)}::"


def inside(function: str, *arguments: str, timeout_s: float = 120) -> subprocess.CompletedProcess[str]:
    """Run `module:function(*arguments)` in fresh network, mount and PID namespaces; all its processes end with it."""
    module, name = function.split(":")
    code = f"import sys; from {module} import {name}; sys.exit({name}(*sys.argv[1:]))"
    command = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", sys.executable, "-c", code]
    root = Path(__file__).resolve().parent.parent
    return subprocess.run(
        [*command, *arguments],
        cwd=root,
        check=False,
        text=True,
        capture_output=True,
        timeout=timeout_s,
        stdin=subprocess.DEVNULL,
    )


def build(pairs: int, planes: int, *, switched: bool = False) -> None:
    """Make the namespaces, veths and routes. Only inside the sandbox."""
    _run(["mount", "-t", "tmpfs", "tmpfs", "/run"])  # names of namespaces live in /run/netns: keep them in here
    chain = CHAIN if switched else SIDES
    lines: list[str] = []
    # Unique at both ends, as in the fabric: the kernel may take a second to tell of a carrier where the ends' indices agree.
    index = count(100)
    for pair in range(pairs):
        lines += [f"netns add {node}{pair}" for node in chain]
        for left, right in pairwise(chain):
            lines += [
                f"link add {right}{plane} index {next(index)} mtu {MTU} netns {left}{pair} "
                f"type veth peer name {left}{plane} index {next(index)} mtu {MTU} netns {right}{pair}"
                for plane in range(planes)
            ]
    _batch([], lines)
    for pair in range(pairs):
        for place, node in enumerate(chain):
            if node in SWITCHES:
                _run([*enter(node, pair), "sysctl", "-qw", "net.ipv6.conf.all.forwarding=1"])
            _batch(["-n", f"{node}{pair}"], _node(chain, place, planes))
    for node in [f"{node}{pair}" for pair in range(pairs) for node in chain]:
        wait_working(node)


def _node(chain: Sequence[str], place: int, planes: int) -> Iterator[str]:
    """The set-up of one node. A port is named after the neighbour and the plane: `u0` leads to the T1 on plane 0."""
    node = chain[place]
    yield "link set lo up"
    for plane in range(planes):
        for step in (-1, 1):
            if not 0 <= place + step < len(chain):
                continue
            port = f"{chain[place + step]}{plane}"
            yield f"link set {port} address {_mac(place, step)}"
            yield f"link set {port} up"
            yield f"neighbour add fe80::1 lladdr {_mac(place + step, -step)} nud permanent dev {port}"
            if node in SIDES:
                yield f"address add 5f00:{plane}:{USIDS[node]}::/128 dev {port} nodad"
                # Everything of this plane leaves by its port.
                yield f"route add 5f00:{plane}::/32 via fe80::1 dev {port} src 5f00:{plane}:{USIDS[node]}::"
            else:
                yield f"route add 5f00:{plane}:{USIDS[chain[place + step]]}::/48 via fe80::1 dev {port}"
        if node in SWITCHES:
            seg6local = "encap seg6local action End flavors next-csid lblen 32 nflen 16"
            yield f"route add 5f00:{plane}:{USIDS[node]}::/48 {seg6local} dev {chain[place + 1]}{plane}"


def _mac(place: int, step: int) -> str:
    return f"02:00:00:00:{place:02x}:{step + 1:02x}"


def wait_working(node: str, *ports: str) -> None:
    """Until the kernel passes packets through these ports, which takes up to a second more than their carriers; none: all."""
    while set(operstates(node, *ports)) != {"UP"}:
        time.sleep(0.001)


def operstates(node: str, *ports: str) -> list[str]:
    """What the kernel has told of a node's ports, in the order of `ports`, or of all. `node` empty: of this very namespace."""
    links = json.loads(_run(["ip", *(("-n", node) if node else ()), "-j", "link"]))
    found = {link["ifname"]: link["operstate"] for link in links if link["ifname"] != "lo"}
    return [found[port] for port in ports or found]


def enter(node: str, pair: int) -> list[str]:
    """The start of a command that runs on one node of a pair."""
    return ["nsenter", f"--net=/run/netns/{node}{pair}"]


def port(index: int, plane: int, *, switched: bool = False) -> str:
    """The name of a side's port on a plane."""
    chain = CHAIN if switched else SIDES
    return f"{chain[1] if index == 0 else chain[-2]}{plane}"


def _batch(options: Sequence[str], lines: Sequence[str] | Iterator[str]) -> None:
    subprocess.run(["ip", "-6", *options, "-batch", "-"], input="\n".join(lines), text=True, check=True)


def _run(command: Sequence[str]) -> str:
    return subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE).stdout
