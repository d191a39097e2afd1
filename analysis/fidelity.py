"""Did the machine, rather than the fabric, decide the result? Verdict and reasons (DESIGN 7, pitfall H-06).

Every threshold is in `LIMITS` with its argument; docs/fidelity.md says which of them deliberate overloads have confirmed.
A check without its data is a reason too: a run that cannot show that it is sound is at best degraded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from analysis.arrays import Bools, floats, ints, is_text, percentile
from analysis.port_rates import port_rates
from analysis.view import View
from testbed.model.scenario import FaultAction


class Verdict(StrEnum):
    VALID = "valid"
    DEGRADED = "degraded"
    INVALID = "invalid"


# A lateness is the p99 of an interval's timers. A shared machine has hiccups, and what they take from a result is their share
# of the time: so the mean over the intervals is judged, and apart from it the worst intervals, which must not reach the scale
# of a recovery.
WORST_SHARE = 0.99


@dataclass(frozen=True, slots=True)
class Limit:
    """A measure above `degraded` is doubtful, above `invalid` decides the result. `unit` as printed."""

    name: str
    what: str
    unit: str
    degraded: float
    invalid: float
    why: str


LIMITS: tuple[Limit, ...] = (
    Limit(
        "busy", "mean share of the machine's cores busy", "", 0.85, 0.95,
        "queueing for a core grows without bound towards 1; at 0.80 (measured) goodput was still at its ceiling",
    ),
    Limit(
        "saturated", "share of intervals with all cores above 98 % busy", "", 0.05, 0.25,
        "a saturated interval delays every host at once, which looks like congestion on all planes",
    ),
    Limit(
        "steal", "mean share of the cores taken by the hypervisor", "", 0.02, 0.10,
        "stolen time stops hosts and shapers alike, and no lag measured inside shows all of it",
    ),
    Limit(
        "port_dry", "time that NIC ports stood empty with a packet ready (worst host)", "", 0.02, 0.04,
        "a port that its host fills too late loses that much goodput, one for one (measured); targets are stated to 2 %",
    ),
    Limit(
        "lag_mean", "host loop lag (mean over intervals, worst host)", "base RTT", 0.15, 0.30,
        "lag adds to every RTT and every loss detection: 5 % and 10 % of a recovery target of 3 RTTs",
    ),
    Limit(
        "lag_worst", "host loop lag (p99 of the intervals, worst host)", "base RTT", 1.0, 2.0,
        "a hiccup of a round trip delays one loss detection by as much: a recovery of 2 RTTs then reads as 3",
    ),
    Limit(
        "lag_once", "longest single standstill of a host loop (worst host)", "base RTT", 3.0, 6.0,
        "as long as the whole recovery that is asked for (3 RTTs), and twice that: one at the wrong moment is the result",
    ),
    Limit(
        "delay_late", "lateness of the delay line (mean over intervals)", "of the delay", 0.05, 0.20,
        "lateness is jitter that the fabric did not make; the NFQUEUE line's p99 was 0.57 ms under real-time priority",
    ),
    Limit(
        "port_over", "excess of a port over its rate, over a second", "of the rate", 0.02, 0.05,
        "a port faster than its link hides queues; counting error is taken off before",
    ),
    Limit(
        "backlog", "real backlog of a port ahead of its virtual queue (p99)", "frames", 1.5, 2.0,
        "the virtual queue drains at the configured rate; a port that the machine serves late falls behind it (DESIGN 7)",
    ),
    Limit(
        "early", "packets that beat propagation (earliest 0.1 %)", "frame times", 1.0, 2.0,
        "the sender's departure clock may be a burst late, below a frame; more means clocks, delays or records are wrong",
    ),
    Limit(
        "socket_drops", "packets dropped by socket buffers", "of packets sent", 0.0, 1e-4,
        "they look like path losses to the transport and retire healthy EVs",
    ),
    Limit(
        "fabric_failures", "packets that the fabric itself lost or could not treat", "of packets sent", 0.0, 1e-4,
        "a full delay queue or a port program's failed call is the machine's doing and looks like a loss of the path",
    ),
    Limit(
        "fault_late", "a fault's confirmed time after its planned one", "RTT", 0.5, 25.0,
        "metrics count from the confirmed time, so lateness distorts none; but by more the run is not the one that was planned",
    ),
    Limit(
        "rtt_error", "measured base RTT away from the computed one", "of the base RTT", 0.10, 0.25,
        "the base RTT is the unit of every _rtts",
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Check:
    """One measure against its limit. `value` is None where the run did not record it."""

    limit: Limit
    value: float | None
    where: str = ""

    @property
    def verdict(self) -> Verdict:
        if self.value is None:
            return Verdict.VALID
        if self.value > self.limit.invalid:
            return Verdict.INVALID
        return Verdict.DEGRADED if self.value > self.limit.degraded else Verdict.VALID

    @property
    def reason(self) -> str:
        value = 0.0 if self.value is None else self.value
        bound = self.limit.invalid if self.verdict is Verdict.INVALID else self.limit.degraded
        unit = f" {self.limit.unit}" if self.limit.unit else ""
        where = f" ({self.where})" if self.where else ""
        return f"{self.limit.what}{where}: {value:.3g}{unit}, limit {bound:.3g}{unit}"


@dataclass(frozen=True, slots=True)
class Fidelity:
    verdict: Verdict
    reasons: tuple[str, ...]
    checks: tuple[Check, ...]


REQUIRED = frozenset({"busy", "port_dry", "lag_mean", "delay_late", "port_over"})  # their absence is itself a doubt


def assess(view: View) -> Fidelity:
    """Check everything that was recorded. No delay line is needed where the scenario's delay is zero."""
    measured = {
        **_machine(view),
        **_dry(view),
        **_lag(view),
        **_delay(view),
        **_ports(view),
        **_early(view),
        **_sockets(view),
        **_failures(view),
        **_fault_late(view),
        **_rtt(view),
    }
    checks = tuple(Check(limit, *measured.get(limit.name, (None, ""))) for limit in LIMITS)
    reasons = [check.reason for check in checks if check.verdict is not Verdict.VALID]
    required = REQUIRED - {"port_dry"} if view.run.scenario.transport.kind.is_kernels else REQUIRED  # the kernel tells no such
    unknown = [check.limit.what for check in checks if check.value is None and check.limit.name in required]
    reasons += [f"not recorded: {what}" for what in dict.fromkeys(unknown)]
    verdicts = {check.verdict for check in checks}
    doubtful = Verdict.DEGRADED if reasons else Verdict.VALID
    return Fidelity(Verdict.INVALID if Verdict.INVALID in verdicts else doubtful, tuple(reasons), checks)


_Measures = dict[str, tuple[float | None, str]]


def _rows(view: View, *who: str) -> Bools:
    times = ints(view.run.cpu, "t_ns")
    return (times > view.start_ns) & (times <= view.end_ns) & is_text(view.run.cpu, "who", *who)


def _machine(view: View) -> _Measures:
    rows = _rows(view, "machine")
    busy, steal = floats(view.run.cpu, "busy")[rows], floats(view.run.cpu, "steal")[rows]
    found: _Measures = {}
    if np.any(~np.isnan(busy)):
        known = busy[~np.isnan(busy)]
        found["busy"] = (float(np.mean(known)), "")
        found["saturated"] = (float(np.mean(known > 0.98)), "")
    if np.any(~np.isnan(steal)):
        found["steal"] = (float(np.nanmean(steal)), "")
    return found


def _lag(view: View) -> _Measures:
    """The worst host's lag, in base RTTs: its mean, its worst intervals, and the longest of all."""
    found: _Measures = {}
    times = ints(view.run.cpu, "t_ns")
    for host in view.topology.hosts:
        mine = _rows(view, host)
        for start, end in _pauses(view, host):
            mine &= (times < start) | (times > end + 2 * view.run.scenario.measure.interval_ns)
        lag, longest = (floats(view.run.cpu, name)[mine] for name in ("lag_ms_p99", "lag_ms_max"))
        lag, longest = lag[~np.isnan(lag)], longest[~np.isnan(longest)]
        if not lag.size:
            continue
        values = {"lag_mean": float(np.mean(lag)), "lag_worst": percentile(lag, WORST_SHARE)}
        if longest.size:
            values["lag_once"] = float(np.max(longest))
        for name, value in values.items():
            rtts = value * 1e6 / view.rtt_base_ns
            known = found.get(name, (None, ""))[0]
            if known is None or rtts > known:
                found[name] = (rtts, host)
    return found


def _dry(view: View) -> _Measures:
    """manifest["counters"][host]["port_dry_ns"]: summed over the host's ports, from start to stop."""
    manifest, planes = view.run.manifest, view.run.scenario.topology.planes
    begun, stopped = manifest.get("t0_ns"), manifest.get("stop_ns")
    if begun is None or stopped is None:
        return {}
    shares = {}
    for host, counters in manifest.get("counters", {}).items():
        if "port_dry_ns" in counters:  # a host that a fault paused is meant to leave its ports dry
            paused = sum(end - start for start, end in _pauses(view, str(host)))
            dry = max(0, int(counters["port_dry_ns"]) - planes * paused)
            shares[str(host)] = dry / (planes * (int(stopped) - int(begun)))
    return {"port_dry": max((share, host) for host, share in shares.items())} if shares else {}


def _delay(view: View) -> _Measures:
    smallest_ms = min((delay for delay in view.run.scenario.links.delay_ns if delay), default=0) / 1e6
    if not smallest_ms:
        return {"delay_late": (0.0, "no delay asked for")}
    lags = floats(view.run.cpu, "lag_ms_p99")[_rows(view, "delay")]
    late = float(np.mean(lags[~np.isnan(lags)])) if np.any(~np.isnan(lags)) else float("nan")
    if np.isnan(late) and view.run.manifest.get("delay_method") == "netem":
        return {"delay_late": (0.0, "netem keeps its own time")}
    return {} if np.isnan(late) else {"delay_late": (late / smallest_ms, "")}


def _ports(view: View) -> _Measures:
    rates = port_rates(view)
    found: _Measures = {}
    if rates.over is not None:
        found["port_over"] = (rates.over.value, rates.over.port)
    if rates.backlog is not None:
        found["backlog"] = (rates.backlog.value, rates.backlog.port)
    return found


def _early(view: View) -> _Measures:
    """How far the earliest arrivals undercut their plane's propagation delay."""
    packets = view.packets
    arrived = view.in_window & (packets.placed_ns > 0)
    if not np.any(arrived):
        return {}
    delays = np.array(view.run.scenario.links.delay_ns)[packets.plane[arrived]]
    early = (delays - (packets.placed_ns[arrived] - packets.sent_ns[arrived])).astype(np.float64)
    frame_ns = view.frame_bytes * 8e9 / view.run.scenario.links.rate_bps
    return {"early": (max(0.0, percentile(early, 0.999)) / frame_ns, "")}


def _sockets(view: View) -> _Measures:
    """manifest["socket_drops"]: a count, or a mapping host -> count."""
    drops = view.run.manifest.get("socket_drops")
    if drops is None:
        return {}
    hosts = drops if isinstance(drops, Mapping) else {"all hosts": drops}
    count, where = sum(int(value) for value in hosts.values()), ", ".join(str(host) for host, value in hosts.items() if value)
    return {"socket_drops": (count / max(1, len(view.packets.psn)), where)}


def _pauses(view: View, host: str) -> list[tuple[int, int]]:
    """When faults had this host stopped, apart and in order: pauses that overlap are one."""
    found: list[tuple[int, int]] = []
    for fault in view.faults:
        if fault.action != FaultAction.PAUSE or fault.places != (host,):
            continue
        start, end = fault.start_ns, view.end_ns if fault.end_ns is None else fault.end_ns
        if found and start <= found[-1][1]:
            start, end = found[-1][0], max(end, found.pop()[1])
        found.append((start, end))
    return found


def _fault_late(view: View) -> _Measures:
    """The latest start or end of a fault, over all its links."""
    events = view.run.events
    mine = is_text(events, "kind", "fault_start", "fault_end")
    if not np.any(mine):
        return {}
    late = (ints(events, "t_ns") - ints(events, "planned_ns"))[mine]
    where = events["where"].to_numpy()[mine][int(np.argmax(late))]
    return {"fault_late": (float(np.max(late)) / view.rtt_base_ns, str(where))}


def _failures(view: View) -> _Measures:
    """manifest["fabric_failures"]: counts by kind; each must be 0 in a fabric that works."""
    failures = view.run.manifest.get("fabric_failures")
    if not failures:
        return {}
    count = sum(int(value) for value in failures.values())
    where = ", ".join(f"{kind} {value}" for kind, value in failures.items() if value)
    return {"fabric_failures": (count / max(1, len(view.packets.psn)), where)}


def _rtt(view: View) -> _Measures:
    """manifest["rtt_measured"]: one idle WRITE per plane, against twice that plane's delay plus what the shapers add."""
    delays = view.run.scenario.links.delay_ns
    slowest_ns = 2 * max(delays)
    worst, where = float("nan"), ""
    for entry in view.run.manifest.get("rtt_measured") or ():
        plane, measured = int(entry["plane"]), float(entry["rtt_ns"])
        expected = view.rtt_base_ns - slowest_ns + 2 * delays[plane]
        error = abs(measured - expected) / view.rtt_base_ns
        if not error <= worst:
            worst, where = error, f"plane {plane}"
    return {} if np.isnan(worst) else {"rtt_error": (worst, where)}
