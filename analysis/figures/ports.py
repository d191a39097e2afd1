"""Ports over time, one column per tier and direction: utilisation above, queue below, median and range over its ports."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.arrays import NS, Floats, Ints, bins_ending, ints, is_text
from analysis.figures import style
from analysis.view import View

NAME = "ports"
_PLATE = {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.6}
GROUPS = (
    ("nic-t0", "up", "host \u2192 T0"),
    ("t0-t1", "up", "T0 \u2192 T1"),
    ("t0-t1", "down", "T1 \u2192 T0"),
    ("nic-t0", "down", "T0 \u2192 host"),
)


def draw(view: View, target: style.Target) -> style.Drawn | None:
    table = view.run.ports
    times = ints(table, "t_ns")
    edges = style.bin_edges(view, view.run.scenario.measure.interval_ns)
    if not len(times) or len(edges) < 2:
        return None
    delivered, queue, rate = (ints(table, name) for name in ("delivered_bytes", "queue_bytes_max", "rate_bps"))
    port = np.asarray(table["port"].cat.codes.to_numpy(), dtype=np.int64)
    width = _widths(port, times)
    middle = (edges[:-1] + edges[1:] - 2 * view.t0_ns) / 2e9
    columns: dict[str, Floats] = {"t_s": middle}
    with style.styled(NAME), np.errstate(divide="ignore", invalid="ignore"):
        used = np.where(width > 0, delivered * 8 / (width / NS) / rate, np.nan)
        figure = Figure(figsize=(style.WIDTH, 3.5))
        style.margins(figure, 0.52, 0.12, 0.28, 0.45, hspace=0.15, wspace=0.12)
        grid = figure.subplots(2, len(GROUPS), sharex=True, sharey="row")
        for column, (tier, direction, title) in enumerate(GROUPS):
            mine = is_text(table, "tier", tier) & is_text(table, "direction", direction)
            for row, (name, values) in enumerate((("utilisation", used), ("queue_frames", queue / view.frame_bytes))):
                low, mid, high = _band(edges, times[mine], values[mine])
                axes = grid[row, column]
                axes.fill_between(middle, low, high, color=style.SKY, alpha=0.45, linewidth=0, label="all ports")
                axes.plot(middle, mid, color=style.BLUE, linewidth=1.1, label="median port")
                style.shade_faults(axes, view)
                _plain_axis(axes, view)
                key = f"{tier} {direction} {name}"
                columns |= {f"{key} min": low, f"{key} median": mid, f"{key} max": high}
            grid[0, column].set_title(title)
            grid[1, column].set_xlabel("time (s)")
            _thresholds(
                grid[1, column],
                view,
                last_hop=(tier, direction) == ("nic-t0", "down"),
                host=(tier, direction) == ("nic-t0", "up"),
            )
        grid[0, 0].set_ylabel("share of rate used")
        grid[0, 0].set_ylim(0, 1.1)
        grid[1, 0].set_ylabel("queue peak (frames)")
        grid[1, 0].set_ylim(bottom=0)
        grid[0, 0].legend(loc="lower left", fontsize=7)
        style.save(figure, target, NAME, style.data_frame(columns))
    return style.Drawn(
        NAME,
        "Ports: load and queues",
        "Columns follow a packet from the sending host to the receiving one. Line: the median port; "
        "band: all ports of that tier. "
        "Above, the share of its rate that a port delivered; below, the largest queue in each interval "
        "in full frames, with the "
        "thresholds at which switches mark (ECN) and trim. Host ports neither mark nor trim.",
        "Utilisation and queue of ports over time, by tier and direction.",
    )


def _widths(port: Ints, times: Ints) -> Ints:
    """The length of each row's interval: since the port's row before; 0 for its first."""
    order = np.lexsort((times, port))
    width = np.zeros(len(times), np.int64)
    step = np.diff(times[order])
    width[order[1:]] = np.where(port[order][1:] == port[order][:-1], step, 0)
    return width


def _band(edges: Ints, times: Ints, values: Floats) -> tuple[Floats, Floats, Floats]:
    """(minimum, median, maximum) over the ports in each bin; NaN where no port reported."""
    bins = len(edges) - 1
    at = bins_ending(edges, times)
    kept = (at >= 0) & (at < bins) & ~np.isnan(values)
    order = np.lexsort((values[kept], at[kept]))
    at, values = at[kept][order], values[kept][order]
    first = np.searchsorted(at, np.arange(bins), side="left")
    count = np.searchsorted(at, np.arange(bins), side="right") - first
    low, mid, high = (np.full(bins, np.nan) for _ in range(3))
    some = count > 0
    low[some], high[some] = values[first[some]], values[first[some] + count[some] - 1]
    mid[some] = (values[first[some] + (count[some] - 1) // 2] + values[first[some] + count[some] // 2]) / 2
    return low, mid, high


def _thresholds(axes: Axes, view: View, *, last_hop: bool, host: bool) -> None:
    switch = view.run.scenario.switch
    if host:
        return
    lines = [(switch.ecn_min_bytes, "ECN", style.ORANGE)] if switch.ecn and not last_hop else []
    if switch.trimming:
        lines.append((switch.trim_last_hop_bytes if last_hop else switch.trim_bytes, "trim", style.VERMILION))
    for level, text, colour in lines:
        at = level / view.frame_bytes
        axes.axhline(at, color=colour, linewidth=0.9, linestyle=(0, (2, 2)))
        axes.text(
            0.99, at, text, transform=axes.get_yaxis_transform(), ha="right", va="bottom", fontsize=7, color=colour, bbox=_PLATE
        )


def _plain_axis(axes: Axes, view: View) -> None:
    axes.set_xlim(0, (view.end_ns - view.t0_ns) / 1e9)
