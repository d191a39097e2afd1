"""Kernel features, each tried for real in a throw-away sandbox: a list of what was built in says nothing of a container."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ipaddress import IPv6Network
from pathlib import Path
from shutil import which

from testbed.errors import ExitStatus, KernelError, Missing, RunError
from testbed.fabric import batch, srv6
from testbed.fabric.bpf import build
from testbed.fabric.bpf.loader import PortProgram
from testbed.fabric.delay import add_queue_rules, netem_works, open_queue
from testbed.fabric.namespaces import Namespaces
from testbed.fabric.netlink import Netlink
from testbed.fabric.plan import SID_DEVICE_INDEX, Flavor, Route, RouteKind
from testbed.fabric.sandbox import BPFFS, RUN, run_in_sandbox

_PROGRAM_KEYS = "links.rate, switch.* and faults (the port program)"
_ANSWER_LIMIT = 1 << 16  # a pipe's capacity: the sandbox writes once and never blocks
_SIGNAL_STATUS = 128  # of a sandbox: more than this is a signal's number
_PROBING = "trying what this kernel can do"
_Item = tuple[str, str, str]  # the fields of Missing


def missing(*, wants_delay: bool, delay_tool: Missing | None) -> list[Missing]:
    """What this kernel cannot do. `delay_tool`: what to report when only the delay line's tool is absent, None when present."""
    answer = _in_sandbox(lambda: _try_everything(wants_delay=wants_delay, delay_tool=delay_tool))
    if answer is None:
        remedy = "this kernel or container forbids new namespaces or mounts; the message above says which"
        return [Missing("a sandbox", "topology (every scenario)", remedy)]
    return [Missing(*item) for item in answer]


def notes() -> list[str]:
    """Facts that change how a run behaves, without stopping it."""
    answer = _in_sandbox(_notes)
    return [text for text, _, _ in answer or []]


def _in_sandbox(work: Callable[[], list[_Item]]) -> list[_Item] | None:
    """What `work` returned in a sandbox of its own; None when there could be no sandbox. RunError when something was killed."""
    read_end, write_end = os.pipe()

    def inside() -> int:
        try:
            answer: list[_Item] | str = work()
        except RunError as error:
            answer = str(error)
        os.write(write_end, json.dumps(answer).encode()[:_ANSWER_LIMIT])
        return 0

    try:
        status = run_in_sandbox(inside)
        os.close(write_end)
        text = os.read(read_end, _ANSWER_LIMIT)
    finally:
        os.close(read_end)
    if status == ExitStatus.INTERRUPTED:
        raise KeyboardInterrupt
    if status > _SIGNAL_STATUS:
        raise RunError(f"{_PROBING}: killed ({signal.Signals(status - _SIGNAL_STATUS).name})")
    if status != 0:
        return None
    answer = json.loads(text)
    if isinstance(answer, str):
        raise RunError(f"{_PROBING}: {answer}")
    return [(what, needed_by, remedy) for what, needed_by, remedy in answer]


class _Found:
    """Collects what could not be done."""

    def __init__(self) -> None:
        self.items: list[_Item] = []

    @contextmanager
    def needs(self, what: str, needed_by: str, remedy: str) -> Iterator[None]:
        try:
            yield
        except (KernelError, OSError) as error:
            self.items.append((what, needed_by, f"{remedy} ({error})"))


def _try_everything(*, wants_delay: bool, delay_tool: Missing | None) -> list[_Item]:
    found = _Found()
    namespaces = Namespaces()
    namespaces.create(["a", "b"])
    with found.needs("veth pairs with a chosen index", "topology (every scenario)", "needs CONFIG_VETH"):
        pair = "link add name x0 index 10 netns a type veth peer name x1 index 11 netns b"
        batch.run("ip", [pair, "link add name sid0 index 2 netns a type veth peer name sid1 index 3 netns a"], namespaces, None)
        batch.run("ip", ["link set sid0 up", "link set sid1 up"], namespaces, "a")
        _try_sid(found, namespaces)
        with found.needs("tbf over pfifo_fast", "links.rate", "needs CONFIG_NET_SCH_TBF"):
            tbf = "qdisc add dev x0 root handle 1: tbf rate 1mbit burst 5000 limit 100000 overhead 24"
            batch.run("tc", [tbf, "qdisc add dev x0 parent 1:1 pfifo_fast"], namespaces, "a")
        _try_program(found, namespaces)
    if wants_delay:
        _try_delay(found, namespaces, delay_tool)
    namespaces.close()
    return found.items


def _try_sid(found: _Found, namespaces: Namespaces) -> None:
    route = Route(IPv6Network("5f00:0:1000::/48"), RouteKind.UN, SID_DEVICE_INDEX, flavor=Flavor())
    remedy = "needs CONFIG_IPV6_SEG6_LWTUNNEL and Linux 6.1 or later"
    with found.needs("seg6local End with the NEXT-C-SID flavor", "routing: srv6", remedy), Netlink(namespaces, "a") as link:
        link.execute([srv6.route_message(route)])
        if route not in srv6.read_routes(link)[0]:
            raise KernelError("a", "read-back", "the kernel took the route but not its flavor")


def _try_program(found: _Found, namespaces: Namespaces) -> None:
    remedy = "needs CONFIG_NET_CLS_BPF and CONFIG_NET_SCH_INGRESS; run ./setup.sh"
    with found.needs("tc eBPF", _PROGRAM_KEYS, remedy):
        program = PortProgram(_program_file(), 16, BPFFS)
        attach = f"filter add dev x0 egress bpf da object-pinned {BPFFS}/egress"
        batch.run("tc", ["qdisc add dev x0 clsact", attach], namespaces, "a")
        program.close()


def _program_file() -> Path:
    """Compiled inside the sandbox when there is none: nothing is left behind."""
    return build.find(RUN) or build.compile_to(RUN)


def _try_delay(found: _Found, namespaces: Namespaces, delay_tool: Missing | None) -> None:
    if netem_works():
        return
    if delay_tool is not None:
        found.items.append((delay_tool.what, delay_tool.needed_by, delay_tool.remedy))
        return
    remedy = "needs CONFIG_NET_SCH_NETEM, or CONFIG_NETFILTER_NETLINK_QUEUE and CONFIG_NETFILTER_XT_TARGET_NFQUEUE"
    with found.needs("netem or NFQUEUE", "links.delay", remedy):
        with namespaces.inside("a"):
            for fd in open_queue():
                os.close(fd)
        add_queue_rules(namespaces, "a", [("x0", 0)])


def _notes() -> list[_Item]:
    devices = {line.split(":")[0].strip() for line in Path("/proc/net/dev").read_text().splitlines() if ":" in line}
    delay = "netem" if which("tc") and netem_works() else "the netfilter-queue delay line"
    found = [(f"propagation delay comes from {delay}", "", "")]
    if "ip6tnl0" in devices:
        text = "ip6_tunnel is loaded: it also sees protocol 41 and may answer packets that nobody reads with ICMPv6 errors"
        found.append((text, "", ""))
    return found
