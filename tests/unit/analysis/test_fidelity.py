"""Fidelity: each limit turns the verdict, a missing record is a doubt, and the counting error of ports is not a fault."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from analysis.fidelity import LIMITS, Verdict, assess
from analysis.judge import summarise
from analysis.results import Run, read
from analysis.view import view
from tests.unit.analysis import synthetic
from tests.unit.analysis.conftest import SMALL

Change = Callable[[Run], Run]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return read(synthetic.write(tmp_path_factory.mktemp("fidelity") / "small", SMALL))


def _cpu(who: str, column: str, value: float) -> Change:
    def change(run: Run) -> Run:
        cpu = run.cpu.copy()
        cpu.loc[cpu["who"] == who, column] = value
        return replace(run, cpu=cpu)

    return change


def _manifest(key: str, value: object) -> Change:
    return lambda run: replace(run, manifest={**run.manifest, key: value})


def _hiccups(who: str, lag_ms: float, every: int) -> Change:
    """One interval in `every` is that late."""

    def change(run: Run) -> Run:
        cpu = run.cpu.copy()
        cpu.loc[cpu.index[cpu["who"] == who][::every], "lag_ms_p99"] = lag_ms
        return replace(run, cpu=cpu)

    return change


def _once(who: str, lag_ms: float) -> Change:
    """One timer of the whole window is that late."""

    def change(run: Run) -> Run:
        cpu = run.cpu.copy()
        cpu.loc[cpu.index[cpu["who"] == who][40], "lag_ms_max"] = lag_ms
        return replace(run, cpu=cpu)

    return change


def _dry(share: float) -> Change:
    """h1's ports stood dry for that share of ten seconds."""

    def change(run: Run) -> Run:
        planes = run.scenario.topology.planes
        times = {"t0_ns": 0, "stop_ns": 10 * 10**9}
        counters = {"h0": {"port_dry_ns": 0}, "h1": {"port_dry_ns": int(share * planes * 10 * 10**9)}}
        return replace(run, manifest={**run.manifest, **times, "counters": counters})

    return change


def _ports(factor: float, late_frames: int = 0) -> Change:
    """One port delivers `factor` of its rate; from the middle of the run on, that many frames that it accepted stay inside."""

    def change(run: Run) -> Run:
        ports = run.ports.copy()
        mine = ports["port"] == "h0-eth0"
        ports.loc[mine, "bytes"] = ports.loc[mine, "delivered_bytes"] = int(4e6 / 8 * 0.1 * factor)
        ports.loc[mine & (ports["t_ns"] == ports.loc[mine, "t_ns"].iloc[40]), "delivered_bytes"] -= late_frames * 4262
        return replace(run, ports=ports)

    return change


def _sooner(ms: int) -> Change:
    def change(run: Run) -> Run:
        return replace(run, packets=run.packets.assign(sent_ns=run.packets["sent_ns"] + ms * 10**6))

    return change


@pytest.mark.parametrize(
    ("change", "verdict", "says"),
    [
        (lambda run: run, Verdict.VALID, ""),
        (_cpu("machine", "busy", 0.9), Verdict.DEGRADED, "cores busy: 0.9, limit 0.85"),
        (_cpu("machine", "busy", 0.99), Verdict.INVALID, "cores busy: 0.99, limit 0.95"),
        (_cpu("machine", "steal", 0.05), Verdict.DEGRADED, "hypervisor"),
        (_cpu("machine", "steal", 0.2), Verdict.INVALID, "hypervisor"),
        (_cpu("h1", "lag_ms_p99", 4.0), Verdict.DEGRADED, "host loop lag (mean over intervals, worst host) (h1): 0.2 base RTT"),
        (_cpu("h1", "lag_ms_p99", 18.0), Verdict.INVALID, "mean over intervals"),
        (
            _hiccups("h1", 30.0, every=20),
            Verdict.DEGRADED,
            "host loop lag (p99 of the intervals, worst host) (h1): 1.5 base RTT",
        ),
        (_hiccups("h1", 15.0, every=50), Verdict.VALID, ""),
        (_once("h1", 50.0), Verdict.VALID, ""),
        (
            _once("h1", 80.0),
            Verdict.DEGRADED,
            "longest single standstill of a host loop (worst host) (h1): 4 base RTT, limit 3",
        ),
        (
            _once("h1", 500.0),
            Verdict.INVALID,
            "longest single standstill of a host loop (worst host) (h1): 25 base RTT, limit 6",
        ),
        (_dry(0.01), Verdict.VALID, ""),
        (_dry(0.03), Verdict.DEGRADED, "stood empty with a packet ready (worst host) (h1): 0.03, limit 0.02"),
        (_dry(0.05), Verdict.INVALID, "stood empty"),
        (_cpu("delay", "lag_ms_p99", 0.7), Verdict.DEGRADED, "delay line"),
        (_cpu("delay", "lag_ms_p99", 3.0), Verdict.INVALID, "delay line"),
        (_sooner(10), Verdict.DEGRADED, "beat propagation"),
        (_sooner(30), Verdict.INVALID, "beat propagation"),
        (_manifest("socket_drops", {"h0": 0, "h3": 1}), Verdict.INVALID, "socket buffers (h3)"),
        (_manifest("fabric_failures", {"delay_dropped": 0, "port_helper_failures": 0}), Verdict.VALID, ""),
        (_manifest("fabric_failures", {"delay_dropped": 1, "port_helper_failures": 0}), Verdict.INVALID, "(delay_dropped 1)"),
        (_manifest("rtt_measured", [{"plane": 1, "rtt_ns": 23_000_000}]), Verdict.DEGRADED, "plane 1"),
        (_ports(1.04), Verdict.DEGRADED, "excess of a port over its rate, over a second (h0-eth0)"),
        (_ports(1.2), Verdict.INVALID, "h0-eth0"),
        (_ports(0.9, late_frames=4), Verdict.INVALID, "real backlog of a port ahead of its virtual queue (p99) (h0-eth0)"),
        (_ports(0.9, late_frames=1), Verdict.VALID, ""),
        (_ports(0.99), Verdict.VALID, ""),
    ],
)
def test_limits(small: Run, change: Change, verdict: Verdict, says: str) -> None:
    fidelity = assess(view(change(small)))
    assert fidelity.verdict is verdict, fidelity.reasons
    assert says in "\n".join(fidelity.reasons)


def test_no_cpu_record_is_a_doubt(small: Run) -> None:
    fidelity = assess(view(replace(small, cpu=small.cpu.iloc[:0])))
    assert fidelity.verdict is Verdict.DEGRADED
    assert any("not recorded: host loop lag" in reason for reason in fidelity.reasons)


def test_an_overloaded_machine_makes_a_passing_run_invalid(tmp_path: Path) -> None:
    """H-06: good numbers from a saturated machine must not pass."""
    wrong = synthetic.Wrong(busy=0.995, lag_ms=60.0)
    summary = summarise(read(synthetic.write(tmp_path / "slow", SMALL, wrong)))
    assert summary["metrics"]["goodput_ratio"] >= 0.97
    assert summary["status"] == "invalid"
    assert len(summary["fidelity"]["reasons"]) >= 3


def test_a_queue_behind_a_dead_link_is_not_a_slow_port(tmp_path: Path) -> None:
    text = SMALL.replace("expect:", 'faults:\n  - {at: 4s, link: "h0:p1t0-0", action: down, for: 2s}\nexpect:')
    run = read(synthetic.write(tmp_path / "dead", text))
    ports = run.ports.copy()
    held = (ports["port"] == "h0-eth1") & (ports["t_ns"].between(synthetic.T0_NS + 4 * 10**9, synthetic.T0_NS + 6 * 10**9))
    ports.loc[held, "delivered_bytes"] -= 4262  # accepted and lost with the link, interval after interval
    assert assess(view(replace(run, ports=ports))).verdict is Verdict.VALID


def test_a_plane_without_delay_does_not_hide_that_the_others_came_late(small: Run) -> None:
    scenario = replace(small.scenario, links=replace(small.scenario.links, delay_ns=(0, 10_000_000)))
    late = _cpu("delay", "lag_ms_p99", 3.0)(small)
    (check,) = (one for one in assess(view(replace(late, scenario=scenario))).checks if one.limit.name == "delay_late")
    assert check.value == pytest.approx(0.3)
    assert check.verdict is Verdict.INVALID


def test_time_that_two_faults_pause_a_host_is_taken_off_once(tmp_path: Path) -> None:
    """Dry for 0.6 s beyond the 2 s of two pauses that overlap by one: a host that its machine, not a fault, held up."""
    pauses = "{at: 3s, host: h1, action: pause, for: 2s}", "{at: 4s, host: h1, action: pause, for: 1s}"
    text = SMALL.replace("expect:", "faults:\n" + "".join(f"  - {pause}\n" for pause in pauses) + "expect:")
    run = _dry(0.26)(read(synthetic.write(tmp_path / "paused", text)))
    (check,) = (one for one in assess(view(run)).checks if one.limit.name == "port_dry")
    assert check.value == pytest.approx(0.06, abs=0.001)
    assert check.verdict is Verdict.INVALID


def test_limits_are_ordered_argued_and_documented() -> None:
    text = (Path(__file__).parents[3] / "docs" / "fidelity.md").read_text()
    for limit in LIMITS:
        assert limit.degraded < limit.invalid
        assert limit.why
        row = next((line for line in text.splitlines() if line.startswith(f"| `{limit.name}` |")), "")
        assert f"| {limit.degraded:g} | {limit.invalid:g} |" in row, (
            f"docs/fidelity.md does not have {limit.name} as in the code"
        )
