"""Propagation delay at the receiving hosts' ports: netem where the kernel has it, else the netfilter-queue delay line.

Both sit behind the last shaper, in the receiving host's namespace, so that queues drain at the link's rate and the delay
adds to it, as on a wire. netem: each port's arrivals are redirected to an ifb whose root is netem. Delay line: mangle
PREROUTING sends them to a netfilter queue per distinct delay; delay_line.py holds them. `lo` is never delayed.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from testbed.errors import KernelError
from testbed.fabric import batch, tools
from testbed.fabric.namespaces import Namespaces
from testbed.model.topology import Tier, Topology

REALTIME_PRIORITY = 10
_ANSWER_S = 10.0
_DYING_S = 5.0  # from closing its channel to its exit status; only a process that does not die takes so long
_NETLINK_NETFILTER = 12
_NETEM_PACKETS = 1_000_000
_DAEMON = Path(__file__).with_name("delay_line.py")


@dataclass(frozen=True, slots=True)
class DelayStats:
    """Since the last call: packets delayed, and how late they were let go (verdict - due, ns; 0 for netem and none).

    `dropped` and `overruns` count since the start packets lost in a full queue and lost notifications: both must stay 0.
    """

    packets: int
    lag_ns_p50: int
    lag_ns_p99: int
    lag_ns_max: int
    dropped: int = 0
    overruns: int = 0


@dataclass(frozen=True, slots=True)
class _HostPort:
    host: str
    port: str
    delay_ns: int


class DelayLine:
    """Puts `delay_ns[plane]` on every host port of the topology. `method` is "netem", "nfqueue" or "none"."""

    def __init__(
        self, namespaces: Namespaces, topology: Topology, delay_ns: Sequence[int], *, netem: bool | None = None
    ) -> None:
        """`netem` None: probe the kernel."""
        self._namespaces = namespaces
        nic_links = [link for link in topology.links if link.tier is Tier.NIC_T0 and delay_ns[link.plane] > 0]
        self._ports = [_HostPort(link.lower.node, link.lower.name, delay_ns[link.plane]) for link in nic_links]
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._netem = netem
        self.method = "none"

    def start(self) -> None:
        """Raises KernelError when neither way works."""
        if not self._ports:
            return
        use_netem = netem_works() if self._netem is None else self._netem
        self.method = "netem" if use_netem else "nfqueue"
        by_host: dict[str, list[_HostPort]] = {}
        for port in self._ports:
            by_host.setdefault(port.host, []).append(port)
        if use_netem:
            for host, ports in by_host.items():
                self._start_netem(host, ports)
        else:
            self._start_queues(by_host)

    def _start_netem(self, host: str, ports: list[_HostPort]) -> None:
        names = [port.port for port in ports]
        wires = [f"netem delay {port.delay_ns}ns limit {_NETEM_PACKETS}" for port in ports]
        redirect(self._namespaces, host, names, wires)

    def _start_queues(self, by_host: dict[str, list[_HostPort]]) -> None:
        plan: list[tuple[int, int, list[int]]] = []
        try:
            for host, ports in by_host.items():
                delays = sorted({port.delay_ns for port in ports})
                with self._namespaces.inside(host):
                    plan.append((*open_queue(), delays))
            self._launch(plan)
        finally:
            for channel, statistics, _ in plan:
                os.close(channel)
                os.close(statistics)
        # Rules last: a packet sent to a queue that nobody reads would be dropped.
        for host, ports in by_host.items():
            delays = sorted({port.delay_ns for port in ports})
            add_queue_rules(self._namespaces, host, [(port.port, delays.index(port.delay_ns)) for port in ports])

    def _launch(self, plan: list[tuple[int, int, list[int]]]) -> None:
        ours, theirs = socket.socketpair()
        self._control = ours
        ours.settimeout(_ANSWER_S)
        with theirs:
            descriptors = [fd for entry in plan for fd in entry[:2]]
            # -I -S: neither the environment nor site packages, which the daemon does not need, may slow its start.
            argv = [sys.executable, "-I", "-S", str(_DAEMON), str(theirs.fileno()), json.dumps(plan)]
            self._process = subprocess.Popen(
                argv, pass_fds=(theirs.fileno(), *descriptors), stdin=subprocess.DEVNULL, start_new_session=True
            )
        try:
            os.sched_setscheduler(self._process.pid, os.SCHED_FIFO, os.sched_param(REALTIME_PRIORITY))
        except OSError as error:
            raise KernelError("delay line", "SCHED_FIFO", error.strerror or str(error)) from error
        answer = self._read_line()
        if "error" in answer:
            raise KernelError("delay line", "start", str(answer["error"]))

    def stats(self) -> DelayStats:
        """Lateness since the last call. KernelError when the daemon is gone."""
        if self._control is None:
            return DelayStats(0, 0, 0, 0)
        try:
            self._control.sendall(b"?")
        except OSError as error:
            raise self._ended() from error
        answer = {key: int(str(value)) for key, value in self._read_line().items()}
        return DelayStats(answer["packets"], answer["p50"], answer["p99"], answer["max"], answer["dropped"], answer["overruns"])

    def _read_line(self) -> dict[str, object]:
        assert self._control is not None
        data = b""
        while not data.endswith(b"\n"):
            try:
                part = self._control.recv(4096)
            except TimeoutError as error:
                raise KernelError("delay line", "answer", f"none within {_ANSWER_S} s") from error
            except OSError as error:  # reset: it ended with a question unread
                raise self._ended() from error
            if not part:
                raise self._ended()
            data += part
        found: dict[str, object] = json.loads(data)
        return found

    def _ended(self) -> KernelError:
        """Its channel is closed: say how it ended."""
        status = None
        if self._process is not None:
            with suppress(subprocess.TimeoutExpired):
                status = self._process.wait(_DYING_S)
        if status is None:
            how = "has closed its channel"
        else:
            how = f"was ended by {signal.Signals(-status).name}" if status < 0 else f"exited with status {status}"
        return KernelError("delay line", "statistics", f"its process {how}")

    def close(self) -> None:
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def open_queue() -> tuple[int, int]:
    """(netlink socket, queue statistics file) of the current network namespace, owned by the caller."""
    channel = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_NETFILTER)
    statistics = os.open("/proc/thread-self/net/netfilter/nfnetlink_queue", os.O_RDONLY | os.O_CLOEXEC)
    return channel.detach(), statistics


def add_queue_rules(namespaces: Namespaces, host: str, queues: Sequence[tuple[str, int]]) -> None:
    """Send what arrives at each (port, queue number) to that netfilter queue of the host's namespace."""
    rules = [f"-A PREROUTING -i {port} -j NFQUEUE --queue-num {number}" for port, number in queues]
    text = "\n".join(["*mangle", *rules, "COMMIT", ""])
    with namespaces.inside(host):
        done = tools.run(["ip6tables-restore", "--noflush"], text)
    if done.returncode != 0:
        raise KernelError(host, "ip6tables-restore NFQUEUE", done.stderr.strip())


def redirect(namespaces: Namespaces, host: str, ports: Sequence[str], wires: Sequence[str]) -> None:
    """Send what arrives at each port (which has a clsact) through an ifb with the given queueing discipline, then on."""
    names = [f"ifb{index}" for index in range(len(ports))]
    links = [f"link add {name} mtu 65535 type ifb" for name in names] + [f"link set {name} up" for name in names]
    batch.run("ip", links, namespaces, host)
    queues = [f"qdisc add dev {name} root {wire}" for name, wire in zip(names, wires, strict=True)]
    filters = [
        # prio 2: behind the port program, which counts arrivals. u32 is in more kernels than matchall.
        f"filter add dev {port} ingress prio 2 protocol all u32 match u32 0 0 action mirred egress redirect dev {name}"
        for name, port in zip(names, ports, strict=True)
    ]
    batch.run("tc", queues + filters, namespaces, host)


def netem_works() -> bool:
    """Try netem and all it needs here for real, in a throw-away namespace."""
    namespaces = Namespaces()
    try:
        namespaces.create(["netem-probe"])
        batch.run("tc", ["qdisc add dev lo root netem delay 1ms", "qdisc add dev lo clsact"], namespaces, "netem-probe")
        redirect(namespaces, "netem-probe", ["lo"], ["netem delay 1ms"])
    except KernelError:
        return False
    finally:
        namespaces.close()
    return True
