"""Pairs of hosts wired back to back, in namespaces of their own: the smallest network two NICs can talk over.

Pair i is two network namespaces, a<i> and b<i>, with one veth per plane between them and nothing else: no switch, no
shaper, no delay. What runs here measures or tests the hosts, not a fabric. `inside` makes the sandbox; everything that
is created in it goes when it ends.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

MTU = 4500
SIDES = ("a", "b")
ADDRESSES = ("5f00:{plane}:4000::", "5f00:{plane}:4001::")  # the outer address of each side, per plane


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


def build(pairs: int, planes: int) -> None:
    """Make the namespaces and veths. Only inside the sandbox."""
    _run(["mount", "-t", "tmpfs", "tmpfs", "/run"])  # names of namespaces live in /run/netns: keep them in here
    lines: list[str] = []
    for pair in range(pairs):
        lines += [f"netns add {side}{pair}" for side in SIDES]
        lines += [
            f"link add eth{plane} netns a{pair} mtu {MTU} type veth peer name eth{plane} netns b{pair} mtu {MTU}"
            for plane in range(planes)
        ]
    _batch([], lines)
    for pair in range(pairs):
        for index, side in enumerate(SIDES):
            _batch(["-n", f"{side}{pair}"], _side(index, planes))


def _side(index: int, planes: int) -> list[str]:
    lines = ["link set lo up"]
    for plane in range(planes):
        own, other = (ADDRESSES[end].format(plane=plane) for end in (index, 1 - index))
        port = f"eth{plane}"
        lines += [
            f"link set {port} address 02:00:00:00:{plane:02x}:0{index}",
            f"link set {port} up",
            f"address add {own}/128 dev {port} nodad",
            f"neighbour add {other} lladdr 02:00:00:00:{plane:02x}:0{1 - index} nud permanent dev {port}",
            f"route add {other}/128 dev {port} src {own}",
        ]
    return lines


def enter(side: str, pair: int) -> list[str]:
    """The start of a command that runs on one side of a pair."""
    return ["nsenter", f"--net=/run/netns/{side}{pair}"]


def _batch(options: Sequence[str], lines: Sequence[str]) -> None:
    subprocess.run(["ip", "-6", *options, "-batch", "-"], input="\n".join(lines), text=True, check=True)


def _run(command: Sequence[str]) -> None:
    subprocess.run(command, check=True)
