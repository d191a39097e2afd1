"""`--pcap NODE:PORT`: tcpdump in the node's namespace while traffic runs, into `captures/` of the results folder."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from testbed.errors import Missing, MissingCapability, Problem, RunError, ScenarioError
from testbed.model.topology import Topology
from testbed.run.hosts import Spawner
from testbed.run.results import ResultsFolder

START_S = 20.0
SNAP_BYTES = 256  # every header, and the first bytes of the payload


@dataclass(frozen=True, slots=True)
class Capture:
    node: str
    port: str


def parse(texts: Sequence[str], topology: Topology) -> tuple[Capture, ...]:
    """`h0:0`, `h0:h0-eth0`: a node and one of its ports, by number or by name. Refuses what is not there, all at once."""
    found: list[Capture] = []
    problems: list[Problem] = []
    for text in texts:
        node, _, wanted = text.partition(":")
        names = [port.name for port, _ in topology.ports_of(node)]
        match = [name for number, name in enumerate(names) if wanted in (name, str(number))]
        if match:
            found.append(Capture(node, match[0]))
        elif names:
            problems.append(Problem("--pcap", 0, text, f"{node} has no port {wanted!r}", f"its ports are {', '.join(names)}"))
        else:
            problems.append(Problem("--pcap", 0, text, f"there is no node {node!r}", "NODE:PORT, for example h0:0 or p0t1-2:1"))
    if problems:
        raise ScenarioError(problems)
    if found and shutil.which("tcpdump") is None:
        raise MissingCapability([Missing("tcpdump", "--pcap", "apt-get install tcpdump")])
    return tuple(found)


class Captures:
    """A context: started on entry, ended on `stop` or on exit."""

    def __init__(self, fabric: Spawner, captures: Sequence[Capture], folder: ResultsFolder) -> None:
        self._fabric = fabric
        self._captures = captures
        self._folder = folder
        self._running: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        directory = self._folder.path / "captures"
        if self._captures:
            directory.mkdir()
        for capture in self._captures:
            file, log = directory / f"{capture.port}.pcap", self._folder.logs / f"tcpdump-{capture.port}.log"
            # -Z root: tcpdump would else give up root and could not write here; -U: packets reach the file as they come.
            argv = ["tcpdump", "-n", "-U", "-s", str(SNAP_BYTES), "-Z", "root", "-i", capture.port, "-w", str(file)]
            with log.open("wb") as log_file:
                process = self._fabric.spawn(capture.node, argv, stdout=log_file, stderr=log_file)
            self._running.append(process)
            deadline = time.monotonic() + START_S
            while "listening on" not in (said := log.read_text(errors="replace")):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RunError(f"tcpdump on {capture.port} did not start: {said.strip()}")
                time.sleep(0.02)
        return self

    def stop(self) -> None:
        for process in self._running:
            process.terminate()
        for process in self._running:
            process.wait()
        self._running = []

    def __exit__(self, *_: object) -> None:
        self.stop()
