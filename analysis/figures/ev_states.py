"""The states that senders held for their EVs over time: of those over faulty links, or of those that changed at all."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap, to_rgba
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from analysis.arrays import Bools, Floats, Ints, index_in, ints, is_text
from analysis.figures import style
from analysis.packets import UsedPath
from analysis.view import View

NAME = "ev_states"
STATES = ("GOOD", "SKIP", "ASSUMED_BAD", "DENIED", "UNKNOWN")
PLANE_STATES = ("OPEN", "HERE_DOWN", "THERE_DOWN", "BOTH_DOWN", "CHECKING")
PORT_DOWN, CHECKING = "PORT_DOWN", "CHECKING"  # a plane that is not in use hides the states of its EVs
SHOWN = (*STATES, PORT_DOWN, CHECKING)
COLOURS = ("#e3eef6", style.SKY, style.VERMILION, style.INK, style.PURPLE, style.MUTED, style.YELLOW)
ROWS_MAX = 32  # rows that can still be labelled


def draw(view: View, target: style.Target) -> style.Drawn | None:
    edges = style.bin_edges(view, 2 * view.run.scenario.measure.interval_ns)
    changes, planes = _Changes.of(view, "ev_state", "ev", STATES), _Changes.of(view, "plane_state", "plane", PLANE_STATES)
    crossing = [path for path in view.packets.paths if any(path.ways & fault.ways for fault in view.faults)]
    watched = crossing or [path for path in view.packets.paths if changes.any(view, path, path.ev)]
    watched = sorted(watched, key=lambda path: (path.plane, path.ev, path.flow))[:ROWS_MAX]
    if len(edges) < 2 or not watched or "events" in view.run.missing:
        return None
    states = _states(view, edges, watched, changes, planes)
    labels = [f"{view.label(path.flow)} via {path.name}" for path in watched]
    with style.styled(NAME):
        figure = Figure(figsize=(style.WIDTH, 0.95 + 0.13 * max(4, len(watched))))
        style.margins(figure, 1.35, 0.15, 0.3, 0.45)
        axes = figure.subplots()
        _draw(axes, view, edges, states, labels)
        names = np.array([*SHOWN, ""], dtype=object)
        shown = names[np.where(np.isnan(states), len(SHOWN), states).astype(np.int64)]
        columns = {"t_s": (edges[1:] - view.t0_ns) / 1e9} | {label: shown[:, at] for at, label in enumerate(labels)}
        style.save(figure, target, NAME, style.data_frame(columns))
    which = "over the faulty links" if crossing else "that changed"
    return style.Drawn(
        NAME,
        "EV states",
        f"The state that each sender held for its EVs {which}. While a path is ASSUMED_BAD no data is sent on it, only probes, "
        "and answered probes make it GOOD again; SKIP gives up turns to congestion. Where a NIC port is down, here or at "
        "the peer, its plane leaves use as a whole, and EVs keep their states; it is checked before it is used again. "
        "Dashed: faults.",
        "Heat map of EV states of single paths over time.",
    )


class _Changes:
    """Every change of state of EVs, or of planes, in order of time."""

    def __init__(self, times: Ints, hosts: Ints, peers: Ints, keys: Ints, after: Ints) -> None:
        self._times, self._hosts, self._peers, self._keys, self._after = times, hosts, peers, keys, after

    @staticmethod
    def of(view: View, kind: str, key: str, states: tuple[str, ...]) -> _Changes:
        events = view.run.events
        mine = is_text(events, "kind", kind)
        hosts, peers = (index_in(events, end, view.topology.hosts)[mine] for end in ("host", "peer"))
        times, keys = (ints(events, name)[mine] for name in ("t_ns", key))
        order = np.argsort(times, kind="stable")
        return _Changes(*(column[order] for column in (times, hosts, peers, keys, index_in(events, "after", states)[mine])))

    def _own(self, view: View, path: UsedPath, key: int) -> Bools:
        flow = view.flows[path.flow]
        return np.asarray((self._hosts == flow.source) & (self._peers == flow.target) & (self._keys == key), dtype=np.bool_)

    def any(self, view: View, path: UsedPath, key: int) -> bool:
        """Whether the EV or plane `key` of this path's pair of hosts ever changed."""
        return bool(self._own(view, path, key).any())

    def at_end(self, view: View, path: UsedPath, key: int, edges: Ints) -> Ints:
        """State number of the same at each bin's end; the first until something changes."""
        own = self._own(view, path, key)
        found = np.searchsorted(self._times[own], edges[1:], side="left")
        return np.asarray(np.concatenate([[0], self._after[own]])[found], dtype=np.int64)


def _states(view: View, edges: Ints, watched: list[UsedPath], changes: _Changes, planes: _Changes) -> Floats:
    """Number in SHOWN per [bin, row] at each bin's end; NaN where the sender was not recording."""
    result = np.zeros((len(edges) - 1, len(watched)))
    for row, path in enumerate(watched):
        plane = planes.at_end(view, path, path.plane, edges)
        hidden = np.where(plane == PLANE_STATES.index(CHECKING), SHOWN.index(CHECKING), SHOWN.index(PORT_DOWN))
        result[:, row] = np.where(plane == 0, changes.at_end(view, path, path.ev, edges), hidden)
        result[~view.coverage.bins(view.sender(path.flow), edges), row] = np.nan
    return result


def _draw(axes: Axes, view: View, edges: Ints, states: Floats, labels: list[str]) -> None:
    image = ListedColormap(COLOURS)(np.nan_to_num(states.T).astype(np.int64))
    image[np.isnan(states.T)] = to_rgba(style.GAP)
    axes.imshow(image, aspect="auto", interpolation="nearest", extent=style.heat_extent(view, edges, len(labels)))
    axes.grid(visible=False)
    for row in range(1, len(labels)):
        axes.axhline(row, color="white", linewidth=1)
    axes.set_yticks(np.arange(len(labels)) + 0.5, labels, fontsize=6.5)
    style.fault_lines(axes, view)
    axes.set_xlabel("time since start (s)")
    seen = sorted({int(state) for state in np.unique(states[~np.isnan(states)])} | {0, 2})
    handles = [Patch(color=COLOURS[state], label=SHOWN[state]) for state in seen]
    if np.any(np.isnan(states)):
        handles.append(Patch(color=style.GAP, label="not recorded"))
    axes.legend(handles=handles, loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=6, fontsize=7, borderaxespad=0.2)
