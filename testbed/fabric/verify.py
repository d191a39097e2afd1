"""Is the fabric what the plan says? Every static entry read back, then a probe over every path, with its hops.

Where switches choose among equal paths a probe goes over every plane of every pair; then others with other ports, until the
hash has used every link between switches both ways.
On large fabrics (more paths than PATHS_AT_ONCE) only one partner per host is probed; that still crosses every link both ways.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from testbed.fabric import hashing, queues
from testbed.fabric.netlink import Netlink
from testbed.fabric.network import Fabric
from testbed.fabric.probe import Prober, Route, crossings, steps
from testbed.model import hashed
from testbed.model.paths import paths
from testbed.model.topology import Link, Tier, Topology

PATHS_AT_ONCE = 4000
NAMED_AT_MOST = 20  # paths that are probed again, one by one, to say where they end
_PROBE_BYTES = 200  # charged bytes of a probe, rounded up
_MARGIN_S = 1.0  # a machine that stops for a while loses no probe; nobody waits so long where none is lost
_AGAIN_S = 0.3
ACROSS = 3  # switches between hosts of different T0 groups
# A T1 of 64 is passed over by one probe with probability 63/64; even the smallest fabric sends two a round.
ROUNDS = 1000


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """`problems` is empty when everything is as planned; each names the node and what is wrong there."""

    routes_checked: int
    paths_probed: int
    problems: list[str] = field(default_factory=list)


def verify(fabric: Fabric, topology: Topology, pairs: Iterable[tuple[int, int]] | None = None) -> VerifyReport:
    """Check everything static, then probe every path of `pairs` (source, target host indices; None: all, see above)."""
    checked, problems = _check_static(fabric)
    routes = _routes(fabric, topology, pairs)
    prober = Prober(fabric.namespaces, topology.hosts)
    try:
        problems += _probe(fabric, prober, routes)
        if fabric.routing.hashes and routes and not problems:
            problems += _unused(fabric, prober, routes)
    finally:
        prober.close()
    return VerifyReport(checked, len(routes), problems)


def _check_static(fabric: Fabric) -> tuple[int, list[str]]:
    checked = 0
    problems: list[str] = []
    for node, plan in fabric.plans.items():
        with Netlink(fabric.namespaces, node) as link:
            problems += fabric.static_problems(link, plan)
            problems += queues.problems(plan, fabric.links, link)
        if fabric.routing.hashes:
            problems += hashing.problems(fabric.namespaces, plan, fabric.routing)
        checked += len(plan.routes)
    return checked, problems + fabric.port_problems()


def _routes(fabric: Fabric, topology: Topology, pairs: Iterable[tuple[int, int]] | None) -> list[Route]:
    hosts = range(len(topology.hosts))
    of_pair = hashed.plane_paths if fabric.routing.hashes else paths
    if pairs is None:
        per_pair = topology.spec.planes * (1 if fabric.routing.hashes else topology.spec.t1_per_plane)
        pairs = [(source, target) for source in hosts for target in hosts if source != target]
        if len(pairs) * per_pair > PATHS_AT_ONCE:
            pairs = covering_pairs(topology)
    return [Route(source, target, path) for source, target in pairs for path in of_pair(topology, source, target)]


def covering_pairs(topology: Topology) -> list[tuple[int, int]]:
    """Each host to its like in the next T0 group (in the same group when there is only one): every link, both ways."""
    hosts = len(topology.hosts)
    step = topology.spec.hosts_per_t0 if topology.spec.t0_groups > 1 else 1
    return [(host, (host + step) % hosts) for host in range(hosts) if (host + step) % hosts != host]


def _probe(fabric: Fabric, prober: Prober, routes: Sequence[Route]) -> list[str]:
    before = _sent(fabric)
    arrived, problems = prober.probe(routes, _patience_s(fabric, len(routes)))
    after = _sent(fabric)
    lost = [route for index, route in enumerate(routes) if index not in arrived]
    for route in lost[:NAMED_AT_MOST]:
        problems.append(f"{route}: probe lost {_where(fabric, prober, route)}")
    if len(lost) > NAMED_AT_MOST:
        problems.append(f"and {len(lost) - NAMED_AT_MOST} more of {len(routes)} paths lost their probe")
    if not lost:
        problems += [
            f"{node}: sent {after[node, neighbour] - before[node, neighbour]} of {expected} probes towards {neighbour}"
            for (node, neighbour), expected in crossings(routes).items()
            if after[node, neighbour] - before[node, neighbour] < expected
        ]
    return problems


def _unused(fabric: Fabric, prober: Prober, routes: Sequence[Route]) -> list[str]:
    """Links between switches that the hash never chose, in as many rounds of other ports as leave no room for chance."""
    across = [route for route in routes if len(route.path.hops) == ACROSS]
    idle = {hop for link in fabric.topology.links if link.tier is Tier.T0_T1 for hop in _both_ways(link)}
    before = _sent(fabric)
    for _ in range(ROUNDS):
        after = _sent(fabric)
        idle = {hop for hop in idle if after[hop] == before[hop]}
        if not idle or not across:
            break
        arrived, problems = prober.probe(across, _patience_s(fabric, len(across)))
        if problems or len(arrived) < len(across):
            return problems or [f"{len(across) - len(arrived)} of {len(across)} probes with other ports were lost"]
    if not across:
        return []
    return [f"{node}: the hash never chose {neighbour}" for node, neighbour in sorted(idle)]


def _both_ways(link: Link) -> tuple[tuple[str, str], tuple[str, str]]:
    return (link.lower.node, link.upper.node), (link.upper.node, link.lower.node)


def _patience_s(fabric: Fabric, probes: int) -> float:
    """Long enough even if every probe crossed one and the same port."""
    slowest = min(fabric.links.rate_bps, fabric.links.fabric_rate_bps)
    return max(fabric.links.delay_ns) / 1e9 + probes * _PROBE_BYTES * 8 / slowest + _MARGIN_S


def _where(fabric: Fabric, prober: Prober, route: Route) -> str:
    """Probe once more, alone, and read from the counters how far it came."""
    before = _sent(fabric)
    arrived, _ = prober.probe([route], max(fabric.links.delay_ns) / 1e9 + _AGAIN_S)
    if arrived:
        return "once; a second one arrived"
    after = _sent(fabric)
    last = "at its sender"
    for node, neighbour in crossings([route]):
        if after[node, neighbour] == before[node, neighbour]:
            return f"{last} ({node} did not send it towards {neighbour})"
        last = f"after {node}"
    return f"{last} (sent towards {steps(route)[-1][1]})"


def _sent(fabric: Fabric) -> dict[tuple[str, str], int]:
    """Packets accepted so far by each (node, neighbour) port."""
    counters = fabric.read_ports(time.monotonic_ns())
    return {(info.node, info.neighbour): count.packets for info, count in zip(fabric.ports, counters, strict=True)}
