"""Goodput of each plane over time: does spraying keep the planes equal, and which one does a fault touch?"""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from analysis.arrays import Floats, Ints, bins_ending, ints, is_text
from analysis.figures import style
from analysis.view import View

NAME = "planes"


def draw(view: View, target: style.Target) -> style.Drawn | None:
    edges = style.bin_edges(
        view, 2 * view.run.scenario.measure.interval_ns
    )  # a plane carries a fraction: wider bins, less grain
    if "packets" in view.run.missing or len(edges) < 2 or not knows_planes(view):
        return None
    per_plane = by_plane(view, edges) * 8 / ((edges[1:] - edges[:-1])[:, None] / 1e9) / 1e6
    middle = (edges[:-1] + edges[1:] - 2 * view.t0_ns) / 2e9
    planes = per_plane.shape[1]
    with style.styled(NAME):
        figure = Figure(figsize=(style.WIDTH, 2.6))
        style.margins(figure, 0.55, 0.15, 0.5, 0.42)
        axes = figure.subplots()
        for plane in range(planes):
            axes.plot(middle, per_plane[:, plane], color=style.colour(plane), linewidth=1.1, label=f"plane {plane}")
        highest = float(np.nanmax(per_plane)) if np.any(~np.isnan(per_plane)) else 1.0
        axes.set_ylim(0, max(highest * 1.12, 1e-6))
        axes.set_ylabel("goodput (Mbit/s)")
        style.shade_faults(axes, view, label=True)
        style.time_axis(axes, view)
        style.legend_above(axes, loc="lower left", bbox_to_anchor=(0.0, 1.09), ncols=8)
        style.save(
            figure,
            target,
            NAME,
            style.data_frame({"t_s": middle} | {f"plane_{p}_mbps": per_plane[:, p] for p in range(planes)}),
        )
    return style.Drawn(
        NAME,
        "Goodput per plane",
        "Unique payload placed per plane. Equal lines mean that the rotation loads every plane alike. A dead T0-T1 link should "
        "leave its plane at full height, because the plane's other T1s take over; a dead NIC link takes its host's share.",
        "Line chart of goodput per plane over time.",
    )


def knows_planes(view: View) -> bool:
    """Whether it is known over which plane everything came: of TCP that a flow label hashes it is not."""
    if not view.run.scenario.transport.kind.is_kernels:
        return True
    planes = ints(view.run.samples, "plane")[is_text(view.run.samples, "role", "receiver")]
    return bool(len(planes)) and bool(np.all(planes >= 0))


def by_plane(view: View, edges: Ints) -> Floats:
    """Placed bytes per [bin, plane]; NaN where any receiver was not recording throughout the bin."""
    planes, bins = view.run.scenario.topology.planes, len(edges) - 1
    if view.run.scenario.transport.kind.is_kernels:
        rows = view.run.samples[is_text(view.run.samples, "role", "receiver")]
        at, plane, size = bins_ending(edges, ints(rows, "t_ns")), ints(rows, "plane"), ints(rows, "bytes")
    else:
        packets, first = view.packets, view.packets.first_arrival
        at = np.searchsorted(edges, packets.placed_ns[first], side="right") - 1
        plane, size = packets.plane[first], packets.size[first]
    kept = (at >= 0) & (at < bins)
    cell = at[kept] * planes + plane[kept]
    placed = np.bincount(cell, weights=size[kept], minlength=bins * planes).astype(np.float64).reshape(bins, planes)
    for host in {view.receiver(flow) for flow in range(len(view.flows))}:
        placed[~view.coverage.bins(host, edges)] = np.nan
    return placed
