"""EV <-> path <-> address. A path is a plane and, across T0 groups, a T1; its EV names both and nothing else.

Like the paper's NIC (PAPER 2.3) the mapping is arithmetic, not a table: EV = plane << 16 | uplink, where the uplink is
the T0's uplink number, that is the T1's index. A T0-local path has uplink 0 and never meets a T1.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from ipaddress import IPv6Address

from testbed.model import usid
from testbed.model.topology import Topology, host_name, t0_name, t1_name

PLANE_SHIFT = 16


@dataclass(frozen=True, slots=True)
class Path:
    """One way from a host to another. `hops` are switch names in order; `t1` is None inside a T0 group."""

    ev: int
    plane: int
    t1: int | None
    address: IPv6Address
    hops: tuple[str, ...]

    @property
    def name(self) -> str:
        """The T1 it crosses, or the T0 when local: unique per path of a pair, as in `ev_list`."""
        return self.hops[1] if self.t1 is not None else self.hops[0]

    def links(self, source: int, target: int) -> tuple[str, ...]:
        """Names of the links crossed, `lower:upper` as `Link.name` gives them."""
        first, last = f"{host_name(source)}:{self.hops[0]}", f"{host_name(target)}:{self.hops[-1]}"
        if self.t1 is None:
            return (first, last)
        up, t1, down = self.hops
        return (first, f"{up}:{t1}", f"{down}:{t1}", last)


def ev_of(plane: int, uplink: int) -> int:
    return plane << PLANE_SHIFT | uplink


def paths(topology: Topology, source: int, target: int) -> tuple[Path, ...]:
    """Every distinct path of a host pair: planes x T1s across groups, one per plane inside a group."""
    group, other = topology.group_of(source), topology.group_of(target)
    found: list[Path] = []
    for plane in range(topology.spec.planes):
        if group == other:
            address = usid.compose(plane, usid.T0_BASE + group, usid.HOST_BASE + target)
            found.append(Path(ev_of(plane, 0), plane, None, address, (t0_name(plane, group),)))
            continue
        for t1 in range(topology.spec.t1_per_plane):
            address = usid.compose(
                plane, usid.T0_BASE + group, usid.T1_BASE + t1, usid.T0_BASE + other, usid.HOST_BASE + target
            )
            hops = (t0_name(plane, group), t1_name(plane, t1), t0_name(plane, other))
            found.append(Path(ev_of(plane, t1), plane, t1, address, hops))
    return tuple(found)


def choose(candidates: tuple[Path, ...], limit: int, rng: random.Random) -> tuple[Path, ...]:
    """At most `limit` paths, the same number in every plane, a random subset where a plane has more (PAPER 2.1, 2.4).

    Within a plane in random order: of a host's EVs the first are active. ValueError when `limit` is below one path per
    plane: planes would not be equally loaded.
    """
    planes = sorted({path.plane for path in candidates})
    if limit < len(planes):
        raise ValueError(f"{limit} EVs cannot cover {len(planes)} planes equally")
    by_plane = {plane: [path for path in candidates if path.plane == plane] for plane in planes}
    share = min(limit // len(planes), *(len(group) for group in by_plane.values()))
    chosen: list[Path] = []
    for plane in planes:
        chosen.extend(rng.sample(by_plane[plane], share))
    return tuple(chosen)
