"""Planned faults become kernel calls at their times, and events with planned and confirmed times."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from testbed.errors import ExitStatus, KernelError
from testbed.model import faults as model_faults
from testbed.model import load
from testbed.model.scenario import FaultAction
from testbed.model.topology import Link, build
from testbed.run.faults import ACTION, Faults
from testbed.run.telemetry import EventLog
from testbed.run.timeline import Timeline

SCENARIO = """\
name: faulty
topology: {planes: 2, t0_groups: 2, t1_per_plane: 2, hosts_per_t0: 2}
links: {rate: 5mbit, delay: 20ms}
workload: [{kind: permutation, message: 64KiB}]
faults:
  - {at: 3s, link: "p0t0-0:p0t1-1", action: down, for: 2s}
  - {at: 4s, link: "p1t1-0:p1t0-1", action: blackhole, direction: forward}
  - {at: 6s, link: {tier: nic-t0, plane: 1, switch: p1t0-0}, action: down, for: 1s}
measure: {warmup: 1s, duration: 8s}
"""
S = 10**9
T0 = 100 * S
LATE = 3_000_000


class Kernel:
    """Notes what it is told; confirms a little later."""

    def __init__(self) -> None:
        self.now = 0
        self.done: list[tuple[str, int, str, str]] = []
        self.compared: list[int] = []  # how much of it had been done

    def apply_faults(self, links: Sequence[Link], action: FaultAction, direction: str, amount: float, side: str) -> list[int]:
        how = f"{action.value} {direction}{f' {amount:g}' if amount else ''}{f' {side}' if side else ''}"
        self.done += [("apply", self.now, link.name, how) for link in links]
        return [self.now + LATE] * len(links)

    def undo_faults(self, links: Sequence[Link], action: FaultAction, direction: str, amount: float, side: str) -> list[int]:
        self.done += [("undo", self.now, link.name, f"{action.value} {direction}") for link in links]
        return [self.now + LATE] * len(links)

    def prepare(self, links: Sequence[Link], action: FaultAction, side: str) -> None:
        assert not self.done, "before anything is broken"

    def compare(self) -> None:
        self.compared.append(len(self.done))

    def hang(self, switch: str) -> int:
        return self._whole("hang", switch)

    def wake(self, switch: str) -> int:
        return self._whole("wake", switch)

    def pause(self, name: str) -> int:
        return self._whole("pause", name)

    def resume(self, name: str) -> int:
        return self._whole("resume", name)

    def kill(self, name: str) -> int:
        return self._whole("kill", name)

    def _whole(self, what: str, where: str) -> int:
        self.done.append((what, self.now, where, ""))
        return self.now + LATE

    def reboot(self, switch: str) -> int:
        return self._whole("reboot", switch)

    def boot(self, switch: str) -> int:
        return self._whole("boot", switch)


def test_every_fault_is_applied_undone_and_logged(tmp_path: Path) -> None:
    scenario = load.load_text(SCENARIO, "faulty.yaml")
    kernel, timeline, log = Kernel(), Timeline(), EventLog(tmp_path / "events.jsonl")
    faults = Faults(kernel, kernel, log)
    faults.schedule(timeline, model_faults.resolve(scenario, build(scenario.topology)), T0)
    active = {}
    while (due := timeline.next_ns()) is not None:
        kernel.now = due + 1
        timeline.fire(kernel.now)
        active[(due - T0) // S] = faults.active
    log.close()
    assert [(what, (at - T0) // S, link, how) for what, at, link, how in kernel.done] == [
        ("apply", 3, "p0t0-0:p0t1-1", "down both"),
        ("apply", 4, "p1t0-1:p1t1-0", "blackhole backward"),  # forward from the T1 it names first: towards the hosts
        ("undo", 5, "p0t0-0:p0t1-1", "down both"),
        ("apply", 6, "h0:p1t0-0", "down both"),
        ("apply", 6, "h1:p1t0-0", "down both"),
        ("undo", 7, "h0:p1t0-0", "down both"),
        ("undo", 7, "h1:p1t0-0", "down both"),
    ]
    assert active[4] == ("down p0t0-0:p0t1-1", "blackhole p1t0-1:p1t1-0")
    assert active[7] == ("blackhole p1t0-1:p1t1-0",)
    events = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert [event["kind"] for event in events].count("fault_end") == 3
    assert all(event["t_ns"] - event["planned_ns"] == LATE + 1 for event in events)
    assert events[0] == {
        "t_ns": T0 + 3 * S + 1 + LATE,
        "planned_ns": T0 + 3 * S,
        "kind": "fault_start",
        "fault": 0,
        "where": "p0t0-0:p0t1-1",
        "action": "down",
        "plane": 0,
    }


def test_amounts_reach_the_kernel_and_an_end_comes_before_a_start(tmp_path: Path) -> None:
    entries = (
        "{at: 4s, link: 'p0t0-0:p0t1-1', action: loss, ratio: 0.25}",
        "{at: 2s, link: 'p0t0-0:p0t1-1', action: loss, ratio: 0.5, for: 2s}",
        "{at: 3s, link: 'h0:p0t0-0', action: rate, to: 1mbit, direction: forward, for: 2s}",
        "{at: 6s, switch: p1t1-0, action: reboot, for: 1s}",
    )
    scenario = load.load_text(SCENARIO, "faulty.yaml", [f"faults=[{', '.join(entries)}]"])
    kernel, timeline, log = Kernel(), Timeline(), EventLog(tmp_path / "events.jsonl")
    faults = Faults(kernel, kernel, log)
    faults.schedule(timeline, model_faults.resolve(scenario, build(scenario.topology)), T0)
    active = {}
    while (due := timeline.next_ns()) is not None:
        kernel.now = due + 1
        timeline.fire(kernel.now)
        active[(due - T0) // S] = faults.active
    log.close()
    assert [(what, (at - T0) // S, where, how) for what, at, where, how in kernel.done] == [
        ("apply", 2, "p0t0-0:p0t1-1", "loss both 0.5"),
        ("apply", 3, "h0:p0t0-0", "rate forward 1e+06"),
        ("undo", 4, "p0t0-0:p0t1-1", "loss both"),
        ("apply", 4, "p0t0-0:p0t1-1", "loss both 0.25"),
        ("undo", 5, "h0:p0t0-0", "rate forward"),
        ("reboot", 6, "p1t1-0", ""),
        ("boot", 7, "p1t1-0", ""),
    ]
    assert kernel.compared == [4, 5, 7], "after an end, and after what begins at the same time"
    assert active[3] == ("loss 50% p0t0-0:p0t1-1", "rate 1mbit h0:p0t0-0")
    assert active[6] == ("loss 25% p0t0-0:p0t1-1", "reboot p1t1-0")
    events = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    about = {key: events[-2][key] for key in ("kind", "where", "action", "plane", "fault")}
    assert about == {"kind": "fault_start", "where": "p1t1-0", "action": "reboot", "plane": 1, "fault": 3}


def test_the_end_of_a_run_takes_faults_off_the_timeline(tmp_path: Path) -> None:
    scenario = load.load_text(SCENARIO, "faulty.yaml")
    kernel, timeline, log = Kernel(), Timeline(), EventLog(tmp_path / "events.jsonl")
    Faults(kernel, kernel, log).schedule(timeline, model_faults.resolve(scenario, build(scenario.topology)), T0)
    timeline.clear(ACTION)
    log.close()
    assert timeline.next_ns() is None


def test_a_fault_that_cannot_be_applied_is_not_logged_and_breaks_the_run(tmp_path: Path) -> None:
    class Refusing(Kernel):
        def apply_faults(self, *_: object) -> list[int]:
            raise KernelError("p0t0-0", "interface #12 down", "No such device")

    scenario = load.load_text(SCENARIO, "faulty.yaml")
    kernel, timeline, log = Refusing(), Timeline(), EventLog(tmp_path / "events.jsonl")
    Faults(kernel, kernel, log).schedule(timeline, model_faults.resolve(scenario, build(scenario.topology)), T0)
    with pytest.raises(KernelError, match="No such device"):
        timeline.fire(T0 + 3 * S)
    log.close()
    assert KernelError.exit_status is ExitStatus.BROKEN
    assert (tmp_path / "events.jsonl").read_text() == ""


def test_switches_that_hang_and_hosts_that_stop_or_die(tmp_path: Path) -> None:
    entries = (
        "{at: 2s, switch: p1t1-0, action: hang, for: 1s}",
        "{at: 2500ms, host: h1, action: pause, for: 1s}",
        "{at: 5s, host: h1, action: kill}",
        "{at: 6s, link: 'h0:p0t0-0', action: flap, side: lower, period: 1s, duty: 0.5}",
    )
    scenario = load.load_text(SCENARIO, "faulty.yaml", [f"faults=[{', '.join(entries)}]"])
    kernel, timeline, log = Kernel(), Timeline(), EventLog(tmp_path / "events.jsonl")
    faults = Faults(kernel, kernel, log)
    faults.schedule(timeline, model_faults.resolve(scenario, build(scenario.topology)), T0)
    in_fabric = {}
    while (due := timeline.next_ns()) is not None:
        kernel.now = due
        timeline.fire(due)
        in_fabric[(due - T0) / S] = faults.in_fabric
    assert [at for at, some in in_fabric.items() if some] == [2, 2.5, 6, 7]
    log.close()
    assert faults.active == ("kill h1",)
    assert not faults.in_fabric, "a dead host leaves the fabric as it is planned"
    assert [(what, (at - T0) / S, where, how) for what, at, where, how in kernel.done] == [
        ("hang", 2, "p1t1-0", ""),
        ("pause", 2.5, "h1", ""),
        ("wake", 3, "p1t1-0", ""),
        ("resume", 3.5, "h1", ""),
        ("kill", 5, "h1", ""),
        ("apply", 6, "h0:p0t0-0", "flap both lower"),
        ("undo", 6.5, "h0:p0t0-0", "flap both"),
        ("apply", 7, "h0:p0t0-0", "flap both lower"),
        ("undo", 7.5, "h0:p0t0-0", "flap both"),
    ]
    events = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert [event["fault"] for event in events] == [0, 1, 0, 1, 2, 3, 3, 4, 4]
    assert {event["plane"] for event in events if event["where"] == "h1"} == {-1}
