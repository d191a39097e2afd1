"""BGP as in a data centre: unnumbered eBGP on every link between switches, a private AS per T0, one for all T1s of a plane.

RFC 7938 gives the shape (eBGP only, one AS per T0, T1s of a cluster share one, ECMP over equal AS path lengths). T0s announce
their hosts' prefixes; planes never meet, so each numbers its ASs by itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv6Network

from testbed.model.hashed import prefixes
from testbed.model.scenario import RoutingSpec
from testbed.model.topology import Tier, Topology

T1_AS = 4_200_000_000  # RFC 6996: private use, 32 bits
T0_AS = 4_200_000_001  # of T0 0; the next of T0 1, and so on
S = 10**9
# Next hops in the routes themselves, not as objects of their own: when a port loses its carrier Linux drops the objects that
# use it, FRR 8.4 does not notice, and when the link is back it believes the group that it made before to be whole. The switch
# then never uses that link again, though the session is up and zebra shows the route (measured; docs/baselines.md).
ZEBRA_CONFIG = "frr version 8.4\nfrr defaults datacenter\nno zebra nexthop kernel enable\n"
LOG_TIMES = "log timestamp precision 6"


@dataclass(frozen=True, slots=True)
class Speaker:
    """One switch's BGP: its AS, the ports it speaks on, what it announces, and how many ways it must find to other prefixes."""

    switch: str
    asn: int
    router_id: str
    ports: tuple[str, ...]
    announces: tuple[IPv6Network, ...]
    expects: tuple[tuple[IPv6Network, int], ...]


def speakers(topology: Topology) -> tuple[Speaker, ...]:
    """Every switch, in topology order."""
    ports: dict[str, list[str]] = {switch: [] for switch in topology.switches}
    plane_of: dict[str, int] = {}
    group_of: dict[str, int] = {}
    for link in topology.links:
        if link.tier is Tier.T0_T1:
            for port in (link.lower, link.upper):
                ports[port.node].append(port.name)
                plane_of[port.node] = link.plane
            group_of[link.lower.node] = int(link.lower.node.rpartition("-")[2])
    found = []
    for number, switch in enumerate(topology.switches):
        plane, group = plane_of[switch], group_of.get(switch)
        mine: list[IPv6Network] = []
        others: list[IPv6Network] = []
        for host in range(len(topology.hosts)):
            (mine if topology.group_of(host) == group else others).extend(prefixes(plane, host))
        asn = T1_AS if group is None else T0_AS + group
        ways = 1 if group is None else topology.spec.t1_per_plane
        router_id = f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"
        expects = tuple((prefix, ways) for prefix in others)
        found.append(Speaker(switch, asn, router_id, tuple(ports[switch]), tuple(mine), expects))
    return tuple(found)


def config(speaker: Speaker, routing: RoutingSpec) -> str:
    """bgpd's configuration file. `frr defaults datacenter` also sets the timers that are written out."""
    bfd = [" neighbor FABRIC bfd profile fabric"] if routing.bfd else []
    lines = [
        "frr version 8.4",
        "frr defaults datacenter",
        LOG_TIMES,
        f"router bgp {speaker.asn}",
        f" bgp router-id {speaker.router_id}",
        " no bgp ebgp-requires-policy",
        " no bgp default ipv4-unicast",
        " no bgp network import-check",
        " bgp bestpath as-path multipath-relax",
        " neighbor FABRIC peer-group",
        " neighbor FABRIC remote-as external",
        f" neighbor FABRIC timers {routing.keepalive_ns // S} {routing.hold_ns // S}",
        *bfd,
        *(f" neighbor {port} interface peer-group FABRIC" for port in speaker.ports),
        " address-family ipv6 unicast",
        "  neighbor FABRIC activate",
        *(f"  network {prefix}" for prefix in speaker.announces),
        "  maximum-paths 64",
        " exit-address-family",
    ]
    return "\n".join(lines) + "\n"


def bfd_config(routing: RoutingSpec) -> str:
    """bfdd's configuration file; empty where there is no BFD."""
    if routing.bfd is None:
        return ""
    interval = routing.bfd.interval_ns // 10**6
    lines = [
        "frr version 8.4",
        "frr defaults datacenter",
        "bfd",
        " profile fabric",
        f"  detect-multiplier {routing.bfd.multiplier}",
    ]
    lines += [f"  receive-interval {interval}", f"  transmit-interval {interval}"]
    return "\n".join(lines) + "\n"
