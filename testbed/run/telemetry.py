"""What the runner itself measures while traffic runs: ports, processor time, lateness. Written raw; deltas are made later.

Counters are stored as the kernel gives them (cumulative), so a missed sample widens an interval and loses nothing.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from testbed.run.records import RecordWriter

COUNTERS = (
    "packets",
    "bytes",
    "delivered_packets",
    "delivered_bytes",
    "control_packets",
    "marked",
    "trimmed",
    "dropped_queue",
    "dropped_fault",
    "corrupted",
)
LEVELS = ("queue_bytes_max", "queue_bytes")  # of the interval and of the moment; not cumulative
PORT_FIELDS = [("t_ns", "<i8"), ("port", "<u4"), *((name, "<i8") for name in (*COUNTERS, *LEVELS))]
CPU_FIELDS = [("t_ns", "<i8"), ("who", "|u1"), ("busy", "<f8"), ("steal", "<f8"), ("lag_ns_max", "<i8"), ("lag_ns_p99", "<i8")]
CPU_WHO = ("machine", "run", "delay")
NOT_MEASURED = float("nan")


class Source(Protocol):
    """The part of `Fabric` that is read here."""

    @property
    def ports(self) -> Sequence[Any]: ...
    def read_ports(self, now_ns: int) -> Sequence[Any]: ...
    def delay_stats(self) -> Any: ...


@dataclass(frozen=True, slots=True)
class CpuTimes:
    """Clock ticks of all cores since boot, from the first line of /proc/stat."""

    busy: int
    steal: int
    total: int

    @classmethod
    def parse(cls, stat: str) -> CpuTimes:
        user, nice, system, idle, iowait, irq, softirq, steal = (int(field) for field in stat.split(maxsplit=9)[1:9])
        busy = user + nice + system + irq + softirq
        return cls(busy, steal, busy + steal + idle + iowait)

    @classmethod
    def now(cls) -> CpuTimes:
        with Path("/proc/stat").open() as file:
            return cls.parse(file.readline())


@dataclass(frozen=True, slots=True)
class Shown:
    """What the display's figures are differences of."""

    t_ns: int
    machine: CpuTimes
    sent: dict[int, int]  # charged bytes by plane


class Telemetry:
    """One `sample` per interval, written; `shown` for the display."""

    def __init__(self, source: Source, folder: Path, cores: int) -> None:
        self._source = source
        self._cores = cores
        self._ports = RecordWriter(folder, "ports", PORT_FIELDS)
        self._cpu = RecordWriter(folder, "cpu", CPU_FIELDS)
        self._nic_planes = {number: port.plane for number, port in enumerate(source.ports) if _is_nic(port)}
        (folder / "ports.json").write_text(json.dumps([_describe(port) for port in source.ports]))
        self._machine = CpuTimes.now()
        self._own_ns = time.process_time_ns()
        self._last_ns = time.monotonic_ns()
        self._newest: Sequence[Any] = source.read_ports(self._last_ns)
        self._shown = Shown(self._last_ns, self._machine, self._sent_by_plane())
        self._delay_losses = {"delay_dropped": 0, "delay_overruns": 0}

    def failures(self) -> dict[str, int]:
        """What must stay 0 in a fabric that works: packets the delay line lost, and what the port program could not do."""
        return {**self._delay_losses, "port_helper_failures": sum(port.helper_failures for port in self._newest)}

    def sample(self, now_ns: int, lags_ns: Sequence[int]) -> None:
        """Read everything once. `lags_ns`: how late the runner's own actions fired since the last sample."""
        elapsed_ns = max(1, now_ns - self._last_ns)
        self._last_ns = now_ns
        counters = self._source.read_ports(now_ns)
        names = (*COUNTERS, *LEVELS)
        self._ports.write([(now_ns, number, *(getattr(port, name) for name in names)) for number, port in enumerate(counters)])
        self._newest = counters
        self._processors(now_ns, elapsed_ns, lags_ns)

    def close(self) -> None:
        self._ports.close()
        self._cpu.close()

    def shown(self) -> tuple[float, tuple[float, ...]]:
        """(share of all cores that was busy, charged bit/s that hosts sent in each plane) since the last call."""
        before = self._shown
        now = self._shown = Shown(self._last_ns, self._machine, self._sent_by_plane())
        elapsed_s = max(1, now.t_ns - before.t_ns) / 1e9
        busy = (now.machine.busy - before.machine.busy) / max(1, now.machine.total - before.machine.total)
        rates = (8 * (now.sent[plane] - before.sent[plane]) / elapsed_s for plane in sorted(now.sent))
        return busy, tuple(rates)

    def _sent_by_plane(self) -> dict[int, int]:
        planes = dict.fromkeys(self._nic_planes.values(), 0)
        for number, plane in self._nic_planes.items():
            planes[plane] += self._newest[number].bytes
        return planes

    def _processors(self, now_ns: int, elapsed_ns: int, lags_ns: Sequence[int]) -> None:
        machine, own_ns = CpuTimes.now(), time.process_time_ns()
        total = max(1, machine.total - self._machine.total)
        busy = (machine.busy - self._machine.busy) / total
        steal = (machine.steal - self._machine.steal) / total
        own = (own_ns - self._own_ns) / elapsed_ns / self._cores
        self._machine, self._own_ns = machine, own_ns
        delay = self._source.delay_stats()
        self._delay_losses = {"delay_dropped": delay.dropped, "delay_overruns": delay.overruns}
        late = sorted(lags_ns) or [0]
        self._cpu.write(
            [
                (now_ns, 0, busy, steal, 0, 0),
                (now_ns, 1, own, NOT_MEASURED, late[-1], late[(len(late) * 99 - 1) // 100]),
                (now_ns, 2, NOT_MEASURED, NOT_MEASURED, delay.lag_ns_max, delay.lag_ns_p99),
            ]
        )


class EventLog:
    """One JSON line per event, written at once."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb", buffering=0)

    def write(self, event: Mapping[str, Any]) -> None:
        self._file.write(json.dumps(event).encode() + b"\n")

    def close(self) -> None:
        self._file.close()


def _is_nic(port: Any) -> bool:
    return bool(port.tier == "nic-t0" and port.direction == "up")


def _describe(port: Any) -> dict[str, Any]:
    names = ("node", "neighbour", "tier", "plane", "direction", "rate_bps")
    return {"port": port.name} | {name: getattr(port, name) for name in names}
