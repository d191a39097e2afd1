"""What the runner samples, from a source that is made up: cumulative rows as they are, differences for the display."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from testbed.run.records import read
from testbed.run.telemetry import COUNTERS, LEVELS, CpuTimes, Telemetry

S = 10**9
STAT = "cpu  100 5 50 800 20 3 7 15 0 0\ncpu0 1 2 3\n"


class Fabric:
    """Two ports: a NIC's of plane 0 that sends 1 MB per second, and a T0's."""

    ports = (
        SimpleNamespace(node="h0", name="h0-eth0", neighbour="p0t0-0", tier="nic-t0", plane=0, direction="up", rate_bps=5),
        SimpleNamespace(node="p0t0-0", name="x", neighbour="h0", tier="nic-t0", plane=0, direction="down", rate_bps=5),
    )

    def read_ports(self, now_ns: int) -> list[Any]:
        counted = dict.fromkeys((*COUNTERS, *LEVELS), now_ns // 1000)
        return [SimpleNamespace(**counted, helper_failures=2), SimpleNamespace(**counted, helper_failures=1)]

    def delay_stats(self) -> Any:
        return SimpleNamespace(lag_ns_max=9, lag_ns_p99=8, dropped=4, overruns=0)


def test_shares_of_all_cores() -> None:
    times = CpuTimes.parse(STAT)
    assert times == CpuTimes(busy=165, steal=15, total=1000)


def test_samples_are_written_as_they_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.monotonic_ns", lambda: 10 * S)
    telemetry = Telemetry(Fabric(), tmp_path, cores=2)
    telemetry.sample(11 * S, [3, 1, 2])
    telemetry.sample(12 * S, [])
    _, rates = telemetry.shown()
    assert rates == (8e6,)  # 1 MB per second since the start, of the NIC's port only
    assert telemetry.failures() == {"delay_dropped": 4, "delay_overruns": 0, "port_helper_failures": 3}
    telemetry.close()
    ports, cpu = read(tmp_path / "ports.rec"), read(tmp_path / "cpu.rec")
    assert ports is not None
    assert cpu is not None
    assert ports["t_ns"].tolist() == [11 * S, 11 * S, 12 * S, 12 * S]
    assert ports["port"].tolist() == [0, 1, 0, 1]
    assert ports["bytes"].tolist() == [11_000_000, 11_000_000, 12_000_000, 12_000_000]
    assert cpu["who"].tolist() == [0, 1, 2, 0, 1, 2]
    assert cpu["lag_ns_max"].tolist() == [0, 3, 9, 0, 0, 9]
    assert ((cpu["busy"][:1] >= 0) & (cpu["busy"][:1] <= 1)).all()
