"""What happened to packets on each path over time: four heat maps of path x time, sent, marked, trimmed and lost."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Colormap, LinearSegmentedColormap, Normalize, to_rgba
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from analysis.arrays import Bools, Floats, Ints
from analysis.figures import style
from analysis.metrics.faults import affected
from analysis.packets import MARKED, TRIMMED
from analysis.view import View

NAME = "paths"
ROWS_MAX = 64  # rows that can still be labelled
ROW_HEIGHT = 0.1  # inches
PANELS = (
    ("sent", style.BLUE),
    ("marked", style.ORANGE),
    ("trimmed", style.PURPLE),
    ("lost", style.VERMILION),
)

Row = tuple[int, int, str]  # plane, EV, name


def draw(view: View, target: style.Target) -> style.Drawn | None:
    edges = style.bin_edges(view, 2 * view.run.scenario.measure.interval_ns)
    flows = flows_shown(view)
    rows = _rows(view, flows)
    if len(edges) < 2 or not rows:
        return None
    counts = _counts(view, edges, flows, rows)
    names = [name for _, _, name in rows]
    tall = ROW_HEIGHT * min(len(rows), ROWS_MAX)
    with style.styled(NAME):
        figure = Figure(figsize=(style.WIDTH, max(tall, 0.8) + 0.85))
        labelled = len(rows) <= ROWS_MAX
        style.margins(figure, 0.55 if labelled else 0.3, 0.15, 0.3, 0.45, wspace=0.07)
        grid = figure.subplots(1, len(PANELS), sharex=True, sharey=True)
        for axes, (what, colour) in zip(grid, PANELS, strict=True):
            _panel(figure, axes, view, edges, rows, counts[what], what, colour)
        if labelled:
            grid[0].set_yticks(np.arange(len(rows)) + 0.5, names, fontsize=6)
            _embolden(grid[0], view, names)
        else:
            grid[0].set_yticks([])
            grid[0].set_ylabel(f"{len(rows)} paths, plane by plane")
        figure.supxlabel("time since start (s)", y=0.02, fontsize=8.5)
        columns = {"t_s": (edges[:-1] + edges[1:] - 2 * view.t0_ns) / 2e9}
        columns |= {f"{what} {name}": counts[what][:, at] for what, _ in PANELS for at, name in enumerate(names)}
        style.save(figure, target, NAME, style.data_frame(columns))
    whose = "the flows that a fault touched" if view.faults else "all flows"
    caption = (
        f"One row per path (plane and T1) of {whose}, by the time of sending. Blank: none; grey: nothing was recorded. Dashed: "
        "faults; faulty paths in bold. Marked is what senders learnt of ECN, trimmed what NACKs told them, lost "
        "what never arrived."
    )
    return style.Drawn(
        NAME, "Packets by path", caption, "Four heat maps of path against time: packets sent, marked, trimmed, lost."
    )


def flows_shown(view: View) -> list[int]:
    """The flows that some fault touched; all of them without one."""
    return sorted({flow for fault in view.faults for flow in affected(view, fault)}) or list(range(len(view.flows)))


def _rows(view: View, flows: list[int]) -> list[Row]:
    used = (view.packets.paths[at] for at in np.unique(view.packets.path))
    return sorted({(path.plane, path.ev, path.name) for path in used if path.flow in flows})


def _counts(view: View, edges: Ints, flows: list[int], rows: list[Row]) -> dict[str, Floats]:
    """Packets per [bin, row] of `flows` together; NaN in bins that some sender did not record."""
    packets, bins, width = view.packets, len(edges) - 1, len(rows)
    row_of = {row: at for at, row in enumerate(rows)}
    by_path = [row_of.get((p.plane, p.ev, p.name), -1) if p.flow in flows else -1 for p in packets.paths]
    row = np.array([*by_path, -1], dtype=np.int64)[packets.path]
    at = np.searchsorted(edges, packets.sent_ns, side="right") - 1
    kept = (row >= 0) & (at >= 0) & (at < bins)

    def count(mask: Bools) -> Floats:
        cells = np.bincount(at[kept & mask] * width + row[kept & mask], minlength=bins * width)
        return cells.reshape(bins, width).astype(np.float64)

    found = {
        "sent": count(kept),
        "marked": count(packets.fate == MARKED),
        "trimmed": count(packets.fate == TRIMMED),
        "lost": count(packets.never_arrived),
    }
    for host in {view.sender(flow) for flow in flows}:
        gap = ~view.coverage.bins(host, edges)
        for counts in found.values():
            counts[gap] = np.nan
    return found


def _panel(
    figure: Figure, axes: Axes, view: View, edges: Ints, rows: list[Row], counts: Floats, what: str, colour: str
) -> None:
    some = counts[~np.isnan(counts) & (counts > 0)]
    top = max(1.0, float(np.quantile(some, 0.99))) if len(some) else 1.0
    shades = LinearSegmentedColormap.from_list(what, [_tint(colour, 0.18), _tint(colour, 0.55), _tint(colour, 1.0)])
    image = shades(np.clip(np.nan_to_num(counts.T) / top, 0, 1))
    image[np.nan_to_num(counts.T) == 0] = to_rgba("white")
    image[np.isnan(counts.T)] = to_rgba(style.GAP)
    axes.imshow(image, aspect="auto", interpolation="nearest", extent=style.heat_extent(view, edges, len(rows)))
    axes.grid(visible=False)
    for at in range(1, len(rows)):
        if rows[at][0] != rows[at - 1][0]:
            axes.axhline(at, color=style.MUTED, linewidth=0.6)
    style.fault_lines(axes, view)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=4, prune="upper"))
    total = int(np.nansum(counts))
    axes.set_title(f"{what}: {total:,}".replace(",", "\u202f"))
    if total:
        _scale(figure, axes, shades, top)


def _scale(figure: Figure, axes: Axes, shades: Colormap, top: float) -> None:
    """A small colour scale above the panel, at its right."""
    place = axes.get_position()
    height = float(figure.get_size_inches()[1])
    inset = figure.add_axes((place.x1 - 0.06, place.y1 + 0.06 / height, 0.06, 0.06 / height))
    bar = figure.colorbar(ScalarMappable(Normalize(0, top), shades), cax=inset, orientation="horizontal", ticks=[0, top])
    bar.ax.xaxis.set_ticks_position("top")
    bar.ax.tick_params(labelsize=6, length=0, pad=1)
    bar.ax.set_xticklabels(["0", f"{top:.0f}"])
    bar.outline.set_visible(False)


def _tint(colour: str, strength: float) -> tuple[float, float, float]:
    red, green, blue, _ = to_rgba(colour)
    return (1 - strength * (1 - red), 1 - strength * (1 - green), 1 - strength * (1 - blue))


def _embolden(axes: Axes, view: View, names: list[str]) -> None:
    hit = {path.name for path in view.packets.paths if any(path.ways & fault.ways for fault in view.faults)}
    for label, name in zip(axes.get_yticklabels(), names, strict=True):
        if name in hit and len(hit) < len(names):
            label.set_color(style.VERMILION)
            label.set_fontweight("bold")
