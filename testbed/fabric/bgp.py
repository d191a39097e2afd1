"""FRR in every switch: zebra and bgpd (and bfdd, where the scenario has BFD), started, waited for, watched, stopped.

Everything they make, sockets and pid files, is below the sandbox's own /run; their logs go to the results folder. They are
children of the run in its PID namespace, so nothing outlives it, whatever way it ends.
"""

from __future__ import annotations

import shutil
import signal
import struct
import subprocess
import time
from collections.abc import Callable, Mapping
from ipaddress import IPv6Network
from pathlib import Path

from testbed.errors import RunError
from testbed.fabric import srv6
from testbed.fabric.namespaces import Namespaces
from testbed.fabric.netlink import Netlink, attributes
from testbed.model import bgp
from testbed.model.bgp import Speaker
from testbed.model.scenario import RoutingSpec
from testbed.model.topology import Topology

DAEMONS = Path("/usr/lib/frr")  # where Debian and Ubuntu put them; not on PATH
# Whatever they are told, FRR's daemons write crash logs below /var/tmp: each gets one of its own that goes with it.
ASIDE = ("unshare", "--mount", "sh", "-c", 'mount -t tmpfs -o mode=1777 frr /var/tmp && exec "$@"', "sh")
USER = "frr"  # the distributions' packages make it
CONVERGED_S = 60.0  # measured with six switches: 3.6 s
SOCKET_S = 10.0
TAIL_LINES = 8
_PROTO_BGP = 186
Spawn = Callable[..., "subprocess.Popen[bytes]"]


class Bgp:
    """All speakers of a fabric. `spawn` is `Fabric.spawn`."""

    def __init__(
        self, namespaces: Namespaces, topology: Topology, routing: RoutingSpec, spawn: Spawn, folder: Path, logs: Path
    ) -> None:
        self._namespaces = namespaces
        self._routing = routing
        self._spawn = spawn
        self._folder = folder
        self._logs = logs
        self._speakers = {speaker.switch: speaker for speaker in bgp.speakers(topology)}
        self._running: dict[str, dict[str, subprocess.Popen[bytes]]] = {}

    def start_all(self) -> None:
        """Returns once every switch has every route, with all its ways, in the kernel. RunError after a minute without."""
        self._logs.mkdir(parents=True, exist_ok=True)
        for switch in self._speakers:
            self._start_zebra(switch)
        for switch in self._speakers:
            self._start_speaking(switch)
        self._wait()

    def start(self, switch: str) -> None:
        """One switch, again; the caller's traffic does not wait for it."""
        self._start_zebra(switch)
        self._start_speaking(switch)

    def stop(self, switch: str) -> None:
        """Ends a switch's daemons at once, as its power would."""
        for process in self._running.pop(switch, {}).values():
            process.send_signal(signal.SIGKILL)
            process.wait()

    def check(self) -> None:
        """RunError naming every daemon that died unplanned, with the last lines of its log."""
        found = []
        for switch, daemons in self._running.items():
            for name, process in daemons.items():
                status = process.poll()
                if status is not None:
                    how = f"was ended by {signal.Signals(-status).name}" if status < 0 else f"exited with status {status}"
                    found.append(f"{name} of {switch} {how}{self._tail(switch, name)}")
        if found:
            raise RunError("\n".join(found))

    def missing(self) -> list[str]:
        """Routes that a switch does not have with all their ways, as "node: what"."""
        return [problem for speaker in self._speakers.values() for problem in self._missing(speaker)]

    def _start_zebra(self, switch: str) -> None:
        place = self._place(switch)
        place.mkdir(parents=True, exist_ok=True)
        shutil.chown(place, USER, USER)  # the daemons give up root
        (place / "zserv.api").unlink(missing_ok=True)
        self._run(switch, "zebra", bgp.ZEBRA_CONFIG)

    def _start_speaking(self, switch: str) -> None:
        deadline = time.monotonic() + SOCKET_S
        while not (self._place(switch) / "zserv.api").exists():
            self.check()
            if time.monotonic() > deadline:
                raise RunError(f"zebra of {switch} opened no socket within {SOCKET_S:g} s{self._tail(switch, 'zebra')}")
            time.sleep(0.01)
        if self._routing.bfd is not None:
            self._run(switch, "bfdd", bgp.bfd_config(self._routing), "--bfdctl", str(self._place(switch) / "bfdd.sock"))
        self._run(switch, "bgpd", bgp.config(self._speakers[switch], self._routing))

    def _run(self, switch: str, daemon: str, config: str, *options: str) -> None:
        place = self._place(switch)
        file = place / f"{daemon}.conf"
        file.write_text(config)
        argv = [*ASIDE, str(DAEMONS / daemon), "-f", str(file), "-i", str(place / f"{daemon}.pid")]
        argv += ["-z", str(place / "zserv.api"), "--vty_socket", str(place), "-A", "127.0.0.1", "-P", "0"]
        argv += ["--log", "stdout", "--log-level", "informational", *options]
        with self._log(switch, daemon).open("ab") as log:
            process = self._spawn(switch, argv, stdout=log, stderr=log)
        self._running.setdefault(switch, {})[daemon] = process

    def _wait(self) -> None:
        deadline = time.monotonic() + CONVERGED_S
        waiting = list(self._speakers.values())
        while waiting:
            self.check()
            waiting = [speaker for speaker in waiting if self._missing(speaker)]
            if waiting and time.monotonic() > deadline:
                problems = self._missing(waiting[0])
                name = waiting[0].switch
                raise RunError(f"BGP did not converge within {CONVERGED_S:g} s; {problems[0]}{self._tail(name, 'bgpd')}")
            time.sleep(0.05)

    def _missing(self, speaker: Speaker) -> list[str]:
        with Netlink(self._namespaces, speaker.switch) as link:
            ways = learned(link)
        return [
            f"{speaker.switch}: {ways.get(prefix, 0)} of {wanted} ways to {prefix}"
            for prefix, wanted in speaker.expects
            if ways.get(prefix, 0) != wanted
        ]

    def _place(self, switch: str) -> Path:
        return self._folder / switch

    def _log(self, switch: str, daemon: str) -> Path:
        return self._logs / f"{switch}-{daemon}.log"

    def _tail(self, switch: str, daemon: str) -> str:
        lines = self._log(switch, daemon).read_text(errors="replace").splitlines()[-TAIL_LINES:]
        return "; the end of its log:\n" + "\n".join(lines) if lines else "; its log is empty"


def learned(link: Netlink) -> Mapping[IPv6Network, int]:
    """How many ways the kernel has to each prefix that bgpd gave it."""
    request = struct.pack("=BBBBBBBBI", 10, 0, 0, 0, 0, 0, 0, 0, 0)
    found: dict[IPv6Network, int] = {}
    for body in link.dump(srv6.RTM_GETROUTE, request, "read routes"):
        _family, length, _, _, _table, proto, *_ = struct.unpack_from("=BBBBBBBBI", body)
        if proto == _PROTO_BGP:
            prefix, ways = srv6.ways_of(length, attributes(body, 12))
            found[prefix] = found.get(prefix, 0) + ways
    return found


def version() -> str:
    """FRR's, as bgpd tells it; empty where it is not installed."""
    try:
        done = subprocess.run([str(DAEMONS / "bgpd"), "--version"], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.partition("version ")[2].split("\n")[0].strip()
