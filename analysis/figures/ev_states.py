"""What senders did with their paths: packets sent and lost per path over time, and the states of EVs over faulty links."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, ListedColormap, Normalize, to_rgba
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from analysis.arrays import Bools, Floats, Ints, index_in, ints, is_text
from analysis.figures import style
from analysis.metrics.faults import affected
from analysis.packets import UsedPath
from analysis.view import View
from testbed.model.flows import Flow
from testbed.model.topology import host_name

NAME = "ev_states"
STATES = ("GOOD", "SKIP", "ASSUMED_BAD", "DENIED", "UNKNOWN")
# A plane that is not in use hides the states of its EVs.
PLANE_SHOWN = {"HERE_DOWN": "port down", "THERE_DOWN": "port down", "BOTH_DOWN": "port down", "CHECKING": "checking"}
SHOWN = (*STATES, "port down", "checking")
SHOWN_COLOURS = ("#e3eef6", style.SKY, style.VERMILION, style.INK, style.PURPLE, style.MUTED, style.YELLOW)
STATE_ROWS_MAX = 32  # rows that can still be labelled
PATH_ROWS_MAX = 64
GAP_COLOUR = "#b9bec6"  # no data; white is no packets


def draw(view: View, folder: Path) -> style.Drawn | None:
    packets = view.packets
    edges = style.bin_edges(view, 2 * view.run.scenario.measure.interval_ns)
    flows = sorted({flow for fault in view.faults for flow in affected(view, fault)}) or list(range(len(view.flows)))
    paths = sorted(
        {(packets.paths[at].plane, packets.paths[at].ev) for at in np.unique(packets.path) if packets.paths[at].flow in flows}
    )
    if len(edges) < 2 or not paths:
        return None
    sent, lost = _counts(view, edges, flows, paths)
    crossing = (path for path in packets.paths if any(path.ways & fault.ways for fault in view.faults))
    watched = sorted(crossing, key=lambda path: (path.plane, path.ev, path.flow))[:STATE_ROWS_MAX]
    names = [next(path.name for path in packets.paths if path.ev == ev and path.flow in flows) for _, ev in paths]
    tall = 0.7 + 0.105 * min(len(paths), PATH_ROWS_MAX)
    low = 0.55 + 0.125 * len(watched) if watched else 0.0
    with style.styled(NAME):
        figure = Figure(figsize=(style.WIDTH, tall + low + 0.5))
        style.margins(figure, 1.25 if watched else 0.65, 0.75, 0.3, 0.42, hspace=0.2)
        if watched:
            top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=(tall, low))
            states = _states(view, edges, watched)
            _draw_states(bottom, view, edges, watched, states)
        else:
            top, bottom = figure.subplots(), None
        _draw_counts(figure, top, view, edges, paths, names, sent, lost)
        (bottom or top).set_xlabel("time since start (s)")
        middle = (edges[:-1] + edges[1:] - 2 * view.t0_ns) / 2e9
        columns = {"t_s": middle} | {f"sent {name}": sent[:, at] for at, name in enumerate(names)}
        columns |= {f"lost {name}": lost[:, at] for at, name in enumerate(names)}
        style.save(figure, folder, NAME, style.data_frame(columns))
    rows = "the flows that a fault touched" if view.faults else "all flows"
    caption = (
        f"One row per path (plane and T1) of {rows}: the darker, the more packets were sent; red where some were "
        "lost; white where none were sent; grey where nothing was recorded."
    )
    if watched:
        caption += (
            " Below, the state that each sender held for its EVs over the faulty links: a path leaves use (red) soon after its "
            "first loss, and comes back by itself some time after the link does. Where a NIC port is down, here or at the "
            "peer, the plane leaves use as a whole and its EVs keep their states."
        )
    alt = "Heat map of packets sent per path over time with losses marked, and EV states of affected paths."
    return style.Drawn(NAME, "Paths in use and EV states", caption, alt)


def _counts(view: View, edges: Ints, flows: list[int], paths: list[tuple[int, int]]) -> tuple[Floats, Floats]:
    """Packets (sent, lost) per [bin, path row] of `flows` together; NaN in bins that some sender did not record."""
    packets, bins, rows = view.packets, len(edges) - 1, len(paths)
    row_of = {pair: at for at, pair in enumerate(paths)}
    rows_by_path = [row_of.get((path.plane, path.ev), -1) if path.flow in flows else -1 for path in packets.paths]
    row = np.array([*rows_by_path, -1], dtype=np.int64)[packets.path]
    at = np.searchsorted(edges, packets.sent_ns, side="right") - 1
    kept = (row >= 0) & (at >= 0) & (at < bins)

    def count(mask: Bools) -> Floats:
        return np.bincount(at[mask] * rows + row[mask], minlength=bins * rows).reshape(bins, rows).astype(np.float64)

    sent, lost = count(kept), count(kept & packets.never_arrived)
    for host in {view.sender(flow) for flow in flows}:
        gap = ~view.coverage.bins(host, edges)
        sent[gap] = lost[gap] = np.nan
    return sent, lost


def _draw_counts(
    figure: Figure,
    axes: Axes,
    view: View,
    edges: Ints,
    paths: list[tuple[int, int]],
    names: list[str],
    sent: Floats,
    lost: Floats,
) -> None:
    top = float(np.nanquantile(sent, 0.99)) if np.any(~np.isnan(sent)) else 1.0
    shades = LinearSegmentedColormap.from_list("sent", ["#f4f6f8", "#9cc3dd", style.BLUE])
    image = shades(np.clip(np.nan_to_num(sent.T) / max(top, 1.0), 0, 1))
    image[np.isnan(sent.T)] = to_rgba(GAP_COLOUR)
    image[np.nan_to_num(lost.T) > 0] = to_rgba(style.VERMILION)
    span = _extent(view, edges, len(paths))
    axes.imshow(image, aspect="auto", interpolation="nearest", extent=span)
    axes.grid(visible=False)
    for at in range(1, len(paths)):
        if paths[at][0] != paths[at - 1][0]:
            axes.axhline(at, color="white", linewidth=2)
    if len(paths) <= PATH_ROWS_MAX:
        hit = {path.name for path in view.packets.paths if any(path.ways & fault.ways for fault in view.faults)}
        axes.set_yticks(np.arange(len(paths)) + 0.5, names, fontsize=6)
        for label, name in zip(axes.get_yticklabels(), names, strict=True):
            if name in hit:
                label.set_color(style.VERMILION)
                label.set_fontweight("bold")
    else:
        axes.set_yticks([])
        axes.set_ylabel(f"{len(paths)} paths, plane by plane")
    _fault_lines(axes, view)
    place = axes.get_position()
    beside = figure.add_axes((place.x1 + 0.012, place.y0, 0.012, place.height))
    scale = figure.colorbar(_scale(shades, max(top, 1.0)), cax=beside, label=f"packets sent per {_width_ms(edges):g} ms")
    scale.outline.set_visible(False)
    handles = [Patch(color=style.VERMILION, label="some lost")]
    if np.any(np.isnan(sent)):
        handles.append(Patch(color=GAP_COLOUR, label="not recorded"))
    axes.legend(handles=handles, loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=2, fontsize=7, borderaxespad=0.2)


def _scale(shades: LinearSegmentedColormap, top: float) -> ScalarMappable:
    return ScalarMappable(Normalize(0, top), shades)


def _states(view: View, edges: Ints, watched: list[UsedPath]) -> Floats:
    """Place in SHOWN per [bin, row] at each bin's end; NaN where the sender was not recording. EVs begin GOOD."""
    evs, planes = _changes(view, "ev_state", "ev"), _changes(view, "plane_state", "plane")
    of_plane = np.array([0, *(SHOWN.index(PLANE_SHOWN[state]) for state in PLANE_SHOWN)])
    result = np.zeros((len(edges) - 1, len(watched)))
    for row, path in enumerate(watched):
        flow = view.flows[path.flow]
        own = _course(evs, flow, path.ev, STATES, edges)
        plane = of_plane[_course(planes, flow, path.plane, ("OPEN", *PLANE_SHOWN), edges)]
        result[:, row] = np.where(plane > 0, plane, own)
        result[~view.coverage.bins(view.sender(path.flow), edges), row] = np.nan
    return result


def _changes(view: View, kind: str, key: str) -> pd.DataFrame:
    """The changes of one kind in order of time: t_ns, host, peer, `key` and the state entered."""
    events = view.run.events
    rows = events[is_text(events, "kind", kind)].sort_values("t_ns", kind="stable")
    return rows.assign(key=ints(rows, key))


def _course(changes: pd.DataFrame, flow: Flow, key: int, states: tuple[str, ...], edges: Ints) -> Ints:
    """Place in `states` of one EV or plane at each bin's end; the first until something changes."""
    own = changes[
        is_text(changes, "host", host_name(flow.source))
        & is_text(changes, "peer", host_name(flow.target))
        & (changes["key"].to_numpy() == key)
    ]
    at = np.searchsorted(ints(own, "t_ns"), edges[1:], side="left")
    return np.concatenate([[0], index_in(own, "after", states)])[at]


def _draw_states(axes: Axes, view: View, edges: Ints, watched: list[UsedPath], states: Floats) -> None:
    colours = ListedColormap(SHOWN_COLOURS)
    image = colours(np.nan_to_num(states.T).astype(np.int64))
    image[np.isnan(states.T)] = to_rgba(GAP_COLOUR)
    axes.imshow(image, aspect="auto", interpolation="nearest", extent=_extent(view, edges, len(watched)))
    axes.grid(visible=False)
    for row in range(1, len(watched)):
        axes.axhline(row, color="white", linewidth=1)
    labels = [f"{view.label(path.flow)} via {path.name}" for path in watched]
    axes.set_yticks(np.arange(len(watched)) + 0.5, labels, fontsize=6)
    _fault_lines(axes, view)
    seen = sorted({int(state) for state in np.unique(states[~np.isnan(states)])} | {0, 2})
    handles = [Patch(color=SHOWN_COLOURS[state], label=SHOWN[state]) for state in seen]
    if np.any(np.isnan(states)):
        handles.append(Patch(color=GAP_COLOUR, label="not recorded"))
    axes.legend(handles=handles, loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=6, fontsize=7, borderaxespad=0.2)


def _fault_lines(axes: Axes, view: View) -> None:
    for fault in view.faults:
        for moment in (fault.start_ns, fault.end_ns):
            if moment is not None:
                axes.axvline((moment - view.t0_ns) / 1e9, color=style.INK, linewidth=0.8, linestyle=(0, (2, 2)))


def _extent(view: View, edges: Ints, rows: int) -> tuple[float, float, float, float]:
    return (float(edges[0] - view.t0_ns) / 1e9, float(edges[-1] - view.t0_ns) / 1e9, float(rows), 0.0)


def _width_ms(edges: Ints) -> float:
    return float(edges[1] - edges[0]) / 1e6
