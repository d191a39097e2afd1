"""Two hosts driven by hand: a runner in miniature, for benchmarks and tests of the host process.

Knows the control channel and the plan's form; one `PairedHost` per host process.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.pair_network import SIDES, address, enter, port


def plan(
    directory: Path,
    index: int,
    *,
    planes: int = 4,
    message: int = 1 << 20,
    depth: int = 2,
    payload: int = 4096,
    rate_bps: int = 20_000_000,
    stop_ns: int | None = None,
    both: bool = True,
    switched: bool = False,
    trace: bool = False,
    transport: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """The plan of host `index` of a pair; flow 0 goes from h0 to h1, flow 1 (with `both`) back."""
    other = 1 - index
    settings = {"message": message, "depth": depth, "start_ns": 0, "stop_ns": stop_ns, "job": "pair"}
    return {
        "host": f"h{index}",
        "index": index,
        "seed": 7,
        "records": str(directory / f"h{index}"),
        "inner": f"fd00::1:{index}",
        "ports": [
            {
                "plane": plane,
                "interface": port(index, plane, switched=switched),
                "rate_bps": rate_bps,
                "bucket_bytes": 0,
                "sid": address(index, plane),
            }
            for plane in range(planes)
        ],
        "overhead_bytes": 24,
        "interval_ns": 100_000_000,
        "trace": trace,
        "transport": {
            "kind": "mrc",
            "payload": payload,
            "policy": "mrc",
            "window_bytes": 64 * payload,
            "sack_bytes": 4 * payload,
            "probes": True,
            "reshuffle": True,
            "rtt_base_ns": 10_000_000,
        }
        | (transport or {}),
        "peers": [
            {
                "host": f"h{other}",
                "index": other,
                "inner": f"fd00::1:{other}",
                "paths": [
                    {"ev": plane << 16, "plane": plane, "address": address(other, plane, switched=switched)}
                    for plane in range(planes)
                ],
            }
        ],
        "flows": [
            {"flow": flow, "source": f"h{flow}", "target": f"h{1 - flow}"} | settings for flow in ((0, 1) if both else (0,))
        ],
        "jobs": [],
    }


class PairedHost:
    """One host process on side `index` of a pair, and the runner's end of its channel."""

    def __init__(self, directory: Path, index: int, settings: dict[str, Any], pair: int = 0) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        plan_file = directory / f"h{index}.json"
        plan_file.write_text(json.dumps(settings))
        self.records = Path(settings["records"])
        self.log = directory / f"h{index}.log"
        self.channel, theirs = socket.socketpair()
        self.began = time.monotonic()
        self._buffer = b""
        command = [*enter(SIDES[index], pair), sys.executable, "-m", "testbed.host"]
        with theirs, self.log.open("w") as log:
            self.process = subprocess.Popen(
                [*command, "--plan", str(plan_file), "--control", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def tell(self, **message: Any) -> None:
        """Send one message."""
        self.channel.sendall(json.dumps(message).encode() + b"\n")

    def hear(self, kind: str, timeout_s: float = 20) -> dict[str, Any]:
        """The next message of `kind`; progress on the way is skipped, anything else is an error."""
        deadline = time.monotonic() + timeout_s
        while True:
            while b"\n" not in self._buffer:
                self.channel.settimeout(max(0.001, deadline - time.monotonic()))
                data = self.channel.recv(65536)
                if not data:
                    raise RuntimeError(f"the host ended while {kind!r} was awaited: {self.log.read_text()}")
                self._buffer += data
            line, _, self._buffer = self._buffer.partition(b"\n")
            message: dict[str, Any] = json.loads(line)
            if message["type"] == kind:
                return message
            if message["type"] != "progress":
                raise RuntimeError(f"{message} while {kind!r} was awaited: {self.log.read_text()}")


def connect(hosts: list[PairedHost]) -> None:
    """Wait until both are ready and tell each about the other."""
    ready = [host.hear("ready")["flows"] for host in hosts]
    for host, flows in zip(hosts, reversed(ready), strict=True):
        host.tell(type="connect", flows=flows)
    for host in hosts:
        host.hear("connected")


def start(hosts: list[PairedHost], delay_s: float = 0.02) -> int:
    """Start everyone at the same moment; returns it, in ns."""
    t0_ns = time.monotonic_ns() + int(delay_s * 1e9)
    for host in hosts:
        host.tell(type="start", t0_ns=t0_ns)
    return t0_ns


def finish(hosts: list[PairedHost]) -> list[dict[str, int]]:
    """Stop, drain, quit; returns each host's counters."""
    for host in hosts:
        host.tell(type="stop")
    for host in hosts:
        host.hear("drained")
    counters = []
    for host in hosts:
        host.tell(type="quit")
        counters.append(host.hear("bye")["counters"])
        if host.process.wait(10) != 0:
            raise RuntimeError(f"exit status {host.process.returncode}: {host.log.read_text()}")
    return counters
