"""The fabric as small SVG drawings, one per plane: T1s above T0s above the hosts' ports, faulty links marked.

Plain SVG text without scripts or fonts of its own, so it goes straight into the report.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from analysis.confirmed import Fault
from testbed.model.scenario import FaultAction
from testbed.model.topology import Link, Tier, Topology, host_name, t0_name, t1_name

STEP = 34.0  # between neighbours of a row, in SVG units
ROW_T1, ROW_T0, ROW_HOST = 22.0, 92.0, 150.0
HEIGHT = 172.0
MARGIN = 18.0
CARRIER_LOST = (FaultAction.DOWN, FaultAction.FLAP, FaultAction.REBOOT)
NAMED_MAX = 20  # more nodes in a row than this are drawn smaller and unnamed


@dataclass(frozen=True, slots=True)
class PlaneDrawing:
    plane: int
    svg: str
    faulty: tuple[str, ...]  # names of the plane's faulty links


def drawings(topology: Topology, faults: Sequence[Fault]) -> tuple[PlaneDrawing, ...]:
    """One drawing per plane."""
    hit = {link.name: fault for fault in reversed(faults) for link in fault.links}
    return tuple(_plane(topology, plane, hit) for plane in range(topology.spec.planes))


def _plane(topology: Topology, plane: int, hit: dict[str, Fault]) -> PlaneDrawing:
    spec = topology.spec
    widest = max(spec.t1_per_plane, spec.t0_groups, spec.hosts)
    width = 2 * MARGIN + STEP * max(widest - 1, 3)
    places = _row([t1_name(plane, at) for at in range(spec.t1_per_plane)], width, ROW_T1)
    places |= _row([t0_name(plane, at) for at in range(spec.t0_groups)], width, ROW_T0)
    places |= _row([host_name(at) for at in range(spec.hosts)], width, ROW_HOST)
    links = [link for link in topology.links if link.plane == plane]
    sound = "".join(_line(link, places, "") for link in links if link.name not in hit)
    faulty = [link for link in links if link.name in hit]
    marked = "".join(_line(link, places, hit[link.name].action) for link in faulty)
    touched = {node for link in faulty for node in (link.lower.node, link.upper.node)}
    nodes = "".join(_node(name, x, y, named=widest <= NAMED_MAX, touched=name in touched) for name, (x, y) in places.items())
    label = f"Plane {plane}: {spec.t1_per_plane} T1s, {spec.t0_groups} T0s, {spec.hosts} host ports"
    if faulty:
        label += "; faulty: " + ", ".join(link.name for link in faulty)
    svg = (
        f'<svg class="plane" viewBox="0 0 {width:g} {HEIGHT:g}" role="img" aria-label="{escape(label)}" '
        f'xmlns="http://www.w3.org/2000/svg">{sound}{marked}{nodes}</svg>'
    )
    return PlaneDrawing(plane, svg, tuple(link.name for link in faulty))


def _row(names: list[str], width: float, y: float) -> dict[str, tuple[float, float]]:
    """Names spread over the width, centred in equal cells."""
    cell = (width - 2 * MARGIN + STEP) / len(names)
    return {name: (MARGIN - STEP / 2 + cell * (at + 0.5), y) for at, name in enumerate(names)}


def _line(link: Link, places: dict[str, tuple[float, float]], action: str) -> str:
    (x1, y1), (x2, y2) = places[link.lower.node], places[link.upper.node]
    silent = "" if action in CARRIER_LOST else " silent"
    kind = f"link faulty{silent}" if action else f"link {'nic' if link.tier is Tier.NIC_T0 else 'fabric'}"
    title = f"<title>{escape(link.name)}: {escape(action)}</title>" if action else ""
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:g}" x2="{x2:.1f}" y2="{y2:g}">{title}</line>'


def _node(name: str, x: float, y: float, *, named: bool, touched: bool) -> str:
    """A switch is a rounded box with its number, a host's port a disc; the drawing's heading names the plane."""
    mark = " touched" if touched else ""
    short = escape(name if name.startswith("h") else name.split("t", 1)[1].replace("-", ".", 1))
    text = f'<text x="{x:.1f}" y="{y + 3:g}">{short}</text>' if named else ""
    title = f"<title>{escape(name)}</title>"
    if name.startswith("h"):
        radius = 11 if named else 3
        return f'<g class="host{mark}">{title}<circle cx="{x:.1f}" cy="{y:g}" r="{radius}"/>{text}</g>'
    half = 14 if named else 3
    box = f'<rect x="{x - half:.1f}" y="{y - 9:g}" width="{2 * half}" height="18" rx="3"/>'
    return f'<g class="switch{mark}">{title}{box}{text}</g>'
