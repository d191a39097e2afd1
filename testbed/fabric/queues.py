"""Each port's shaper: TBF at the link's rate over pfifo_fast's strict bands, behind the port program.

TBF charges `overhead` per frame by itself (its `overhead` parameter), so shaper, virtual queue and ideal count the same
bytes. The bucket holds one full frame, so an isolated frame is not delayed, plus a slack that covers the timer's lateness:
a wake-up that comes later than the slack loses rate for ever. Half a frame at low rates and 1 ms at high ones was enough
with both cores busy; more would only blur the queue (the virtual queue has no bucket, so the two differ by the burst).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from testbed.errors import KernelError
from testbed.fabric.namespaces import Namespaces
from testbed.fabric.netlink import NLM_F_ACK, NLM_F_REQUEST, Netlink, attribute, attributes, message
from testbed.fabric.plan import SID_DEVICE, NodePlan
from testbed.model import timing
from testbed.model.codepoints import Dscp
from testbed.model.scenario import LinkSpec, SwitchSpec
from testbed.model.topology import Link, Port, Tier

NS_PER_S = 1_000_000_000
# Without a `trim` limit in force (not trimmable, trimming off) data is dropped at this multiple of it: UEC's advice is 2 to
# 5 BDP (mrc-facts 3.6) and the default trim threshold is a third of the reference BDP of 24 frames.
DROP_PER_TRIM = 6
CONTROL_HEADROOM_FRAMES = 16
# A host's own port never marks or trims; it only must not grow without bound.
HOST_LIMIT_FRAMES = 512
SMALLEST_FRAME = 128  # charged bytes of the smallest frame that matters when bytes become packets

RTM_NEWQDISC, RTM_GETQDISC = 36, 38
_TCA_KIND, _TCA_OPTIONS = 1, 2
_TBF_PARMS, _TBF_RATE64, _TBF_BURST = 1, 4, 6
_ROOT_HANDLE, _ROOT = 0x10000, 0xFFFFFFFF
_LINKLAYER_ETHERNET = 1
_TICK_NS = 64  # of the kernel's packet scheduler clock (PSCHED_SHIFT 6)


@dataclass(frozen=True, slots=True)
class Shaper:
    """One port's TBF. Rate in bit/s; bytes are charged bytes."""

    rate_bps: int
    burst: int
    overhead: int


@dataclass(frozen=True, slots=True)
class Thresholds:
    """One port's virtual-queue settings, member by member of `struct port_settings` in port.h."""

    rate: int
    limit: int
    control_limit: int
    trim: int
    ecn_min: int
    ecn_max: int
    overhead: int
    trim_size: int
    trim_dscp: int


def full_frame(links: LinkSpec) -> int:
    """Charged bytes of the largest frame."""
    return timing.full_frame_bytes(links)


def rate_of(link: Link, links: LinkSpec) -> int:
    return links.rate_bps if link.tier is Tier.NIC_T0 else links.fabric_rate_bps


def shaper(link: Link, links: LinkSpec) -> Shaper:
    return shaper_at(rate_of(link, links), links)


def shaper_at(rate: int, links: LinkSpec) -> Shaper:
    """The shaper of a port whose rate (bit/s) is not, or no longer, the link's own."""
    return Shaper(rate, timing.burst_bytes(rate, links), links.overhead_bytes)


def thresholds(port: Port, link: Link, links: LinkSpec, switch: SwitchSpec) -> Thresholds:
    """What the port program does at `port`: a host's only shapes; the last hop has its own trim codepoint, ECN if asked for."""
    frame = full_frame(links)
    rate = rate_of(link, links) // 8
    headroom = CONTROL_HEADROOM_FRAMES * frame
    if link.tier is Tier.NIC_T0 and port is link.lower:
        limit = HOST_LIMIT_FRAMES * frame
        return Thresholds(rate, limit, limit + headroom, 0, 0, 0, links.overhead_bytes, 0, 0)
    last_hop = link.tier is Tier.NIC_T0
    trim = switch.trim_last_hop_bytes if last_hop else switch.trim_bytes
    limit = DROP_PER_TRIM * trim or HOST_LIMIT_FRAMES * frame
    ecn = switch.ecn and (switch.ecn_last_hop or not last_hop)
    return Thresholds(
        rate=rate,
        limit=limit,
        control_limit=limit + headroom,
        trim=trim if switch.trimming else 0,
        ecn_min=switch.ecn_min_bytes if ecn else 0,
        ecn_max=switch.ecn_max_bytes if ecn else 0,
        overhead=links.overhead_bytes,
        trim_size=switch.trim_size,
        trim_dscp=Dscp.TRIMMED_LASTHOP if last_hop else Dscp.TRIMMED,
    )


def band_packets(links: LinkSpec, switch: SwitchSpec) -> int:
    """Packets that each pfifo_fast band must hold so that the virtual queue, never the band, decides a drop."""
    frame = full_frame(links)
    trim = max(switch.trim_bytes, switch.trim_last_hop_bytes)
    return max(1000, (DROP_PER_TRIM * trim + CONTROL_HEADROOM_FRAMES * frame) // SMALLEST_FRAME)


def lines(plan: NodePlan, links: LinkSpec, pins: Path) -> list[str]:
    """`tc -batch` lines for every port of a node: shaper, bands, port program in both directions; a switch's private device."""
    found: list[str] = []
    if not plan.is_host:
        found += [
            f"qdisc add dev {SID_DEVICE} clsact",
            f"filter add dev {SID_DEVICE} egress prio 1 handle 1 bpf da object-pinned {pins}/lost",
        ]
    for port, link in plan.ports:
        found += [
            f"qdisc add dev {port.name} root handle 1: {_tbf(shaper(link, links))}",
            f"qdisc add dev {port.name} parent 1:1 handle 2: pfifo_fast",
            f"qdisc add dev {port.name} clsact",
            f"filter add dev {port.name} egress prio 1 handle 1 bpf da object-pinned {pins}/egress",
            f"filter add dev {port.name} ingress prio 1 handle 1 bpf da object-pinned {pins}/ingress",
        ]
    return found


def _tbf(tbf: Shaper) -> str:
    # The kernel adds the overhead to the burst too.
    return f"tbf rate {tbf.rate_bps}bit burst {tbf.burst - tbf.overhead} limit {_limit(tbf)} overhead {tbf.overhead}"


def _limit(tbf: Shaper) -> int:
    """TBF insists on a limit, but with a child of its own the child's length is what counts."""
    return max(tbf.burst, 1 << 20)


def set_rate(namespaces: Namespaces, port: Port, wanted: Shaper) -> None:
    """Change a running port's shaper; what waits in it stays. Raises KernelError unless the kernel reads back the same.

    The virtual queue is a setting of its own, `Ports.set_rate`: call it right after, it drains at the old rate until then.
    That is why this goes by netlink: a `tc` process takes milliseconds.
    """
    # The kernel adds the overhead to the burst too. Buffer and table of the old interface are replaced by burst and rate64.
    rate = min(wanted.rate_bps // 8, (1 << 32) - 1)
    spec = struct.pack("=BBHhHI", 0, _LINKLAYER_ETHERNET, wanted.overhead, 0, 0, rate)
    parms = spec + bytes(len(spec)) + struct.pack("=III", _limit(wanted), 0, 0)
    options = attribute(_TBF_PARMS, parms) + attribute(_TBF_RATE64, struct.pack("=Q", wanted.rate_bps // 8))
    options += attribute(_TBF_BURST, struct.pack("=I", wanted.burst - wanted.overhead))
    body = struct.pack("=BxxxiIII", 0, port.ifindex, _ROOT_HANDLE, _ROOT, 0)
    body += attribute(_TCA_KIND, b"tbf\0") + attribute(_TCA_OPTIONS, options)
    with Netlink(namespaces, port.node) as link:
        link.execute([(f"rate of {port.name}", message(RTM_NEWQDISC, NLM_F_REQUEST | NLM_F_ACK, body))])
        there = read(link).get(port.ifindex)
    if there is None or not _same(wanted, there):
        raise KernelError(port.node, f"rate of {port.name}", f"asked for {wanted}, the kernel has {there}")


def problems(plan: NodePlan, links: LinkSpec, link: Netlink, lowered: Mapping[int, int] | None = None) -> list[str]:
    """Read every shaper back (pitfall H-04): where rate, burst or overhead is not what was asked, as "node: what".

    `lowered`: bit/s of ports, by ifindex, that a fault holds below their own rate.
    """
    found: list[str] = []
    actual = read(link)
    for port, wire in plan.ports:
        rate = (lowered or {}).get(port.ifindex, rate_of(wire, links))
        wanted, there = shaper_at(rate, links), actual.get(port.ifindex)
        if there is None:
            found.append(f"{plan.node}: {port.name} has no shaper at its root")
        elif not _same(wanted, there):
            found.append(f"{plan.node}: {port.name}: asked for {wanted}, the kernel has {there}")
    return found


def _same(wanted: Shaper, there: Shaper) -> bool:
    """Equal to what the kernel's units can hold: whole bytes per second and scheduler ticks."""
    tolerance = max(2, wanted.rate_bps * _TICK_NS // NS_PER_S)
    same_rate = there.rate_bps == wanted.rate_bps // 8 * 8
    return same_rate and there.overhead == wanted.overhead and abs(there.burst - wanted.burst) <= tolerance


def check(plan: NodePlan, links: LinkSpec, link: Netlink, lowered: Mapping[int, int] | None = None) -> None:
    """Raises KernelError with every difference."""
    found = problems(plan, links, link, lowered)
    if found:
        raise KernelError(plan.node, "queue read-back", "; ".join(found))


def read(link: Netlink) -> dict[int, Shaper]:
    """Every TBF in the namespace by ifindex."""
    found: dict[int, Shaper] = {}
    for body in link.dump(RTM_GETQDISC, struct.pack("=BxxxiIII", 0, 0, 0, 0, 0), "read queues"):
        values = attributes(body, 20)
        if bytes(values[_TCA_KIND]).rstrip(b"\0") != b"tbf":
            continue
        options = attributes(values[_TCA_OPTIONS])
        # struct tc_tbf_qopt: two tc_ratespec (cell_log, linklayer, overhead, cell_align, mpu, rate), limit, buffer, mtu
        parms = options[_TBF_PARMS]
        overhead, rate = struct.unpack_from("=xxHxxxxI", parms)
        buffer_ticks = struct.unpack_from("=I", parms, 28)[0]
        if _TBF_RATE64 in options:
            rate = struct.unpack("=Q", options[_TBF_RATE64])[0]
        burst = buffer_ticks * _TICK_NS * rate // NS_PER_S
        found[struct.unpack_from("=i", body, 4)[0]] = Shaper(rate * 8, burst, overhead)
    return found
