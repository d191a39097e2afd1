"""How every figure looks: sizes, colours, axes, shaded faults, and writing PNG, SVG and CSV of one figure.

Colours are Okabe and Ito's, distinguishable with any colour vision; figures are read at half a page, so text is 7 to 9 points
at 7 inches. Matplotlib's Agg and SVG writers only: no display is needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from analysis.arrays import Ints
from analysis.view import View

WIDTH = 7.2  # inches
PNG_DPI = 160
RASTER_DPI = 200  # of dots inside an SVG

INK = "#22272e"
MUTED = "#6b7280"
GRID = "#e6e8eb"
BLUE, VERMILION, GREEN, ORANGE, SKY, PURPLE, YELLOW = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#E69F00",
    "#56B4E9",
    "#CC79A7",
    "#F0E442",
)
CYCLE = (BLUE, ORANGE, GREEN, PURPLE, SKY, VERMILION, "#8c6d31", "#4b4b4b")
FAULT_FILL = "#D55E00"
GAP = "#b9bec6"  # no data in a heat map; white is none

_SETTINGS: dict[str, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 8.5,
    "axes.titlesize": 9,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 7,
    "axes.labelsize": 8.5,
    "axes.labelcolor": INK,
    "axes.edgecolor": MUTED,
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "xtick.major.size": 3,
    "ytick.major.size": 0,
    "lines.linewidth": 1.3,
    "lines.solid_capstyle": "round",
    "legend.frameon": False,
    "legend.fontsize": 8,
    "legend.handlelength": 1.6,
    "text.color": INK,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "svg.fonttype": "path",
    "axes.prop_cycle": cycler(color=list(CYCLE)),
}


@dataclass(frozen=True, slots=True)
class Drawn:
    """A figure on disk: `name`.png, .svg and .csv. `caption` says what to see; `alt` describes it to those who cannot."""

    name: str
    title: str
    caption: str
    alt: str


@dataclass(frozen=True, slots=True)
class Target:
    """Where figures go. `mark`: words across every one of them, for a run whose numbers must not be used."""

    folder: Path
    mark: str = ""


@contextmanager
def styled(name: str) -> Iterator[None]:
    """The settings, for the time of drawing and saving one figure. The name makes SVG ids repeatable and distinct."""
    settings: Any = {**_SETTINGS, "svg.hashsalt": name}
    with mpl.rc_context(settings):
        yield


def save(figure: Figure, target: Target, name: str, data: pd.DataFrame) -> None:
    """Write PNG, SVG (no date, so equal data give equal bytes) and the drawn data as CSV."""
    folder = target.folder
    folder.mkdir(parents=True, exist_ok=True)
    if target.mark:
        size = min(44.0, 90.0 * float(figure.get_size_inches()[0]) / max(8, len(target.mark)))
        figure.text(
            0.5, 0.5, target.mark, ha="center", va="center", rotation=18, fontsize=size, color=VERMILION, alpha=0.22, zorder=99
        )
    figure.savefig(folder / f"{name}.png", dpi=PNG_DPI)
    figure.savefig(folder / f"{name}.svg", dpi=RASTER_DPI, metadata={"Date": None, "Creator": None})
    data.to_csv(folder / f"{name}.csv", index=False, float_format="%.6g")


def margins(
    figure: Figure, left: float, right: float, top: float, bottom: float, *, hspace: float = 0.2, wspace: float = 0.2
) -> None:
    """Fixed margins in inches. A layout engine would measure every label again, and take a third of the time of a report."""
    width, height = figure.get_size_inches()
    figure.subplots_adjust(
        left=left / width, right=1 - right / width, top=1 - top / height, bottom=bottom / height, hspace=hspace, wspace=wspace
    )


def bin_edges(view: View, width_ns: int) -> Ints:
    """Edges from t = 0 to the end of the window, whole bins only: a last partial bin would look like a drop (H-22)."""
    count = (view.end_ns - view.t0_ns) // width_ns
    return view.t0_ns + width_ns * np.arange(count + 1, dtype=np.int64)


def time_axis(axes: Axes, view: View, *, label: bool = True, named: bool = True) -> None:
    """Seconds since t = 0 up to the end of the window, with the warm-up told apart (and `named` where there is room)."""
    warm = (view.start_ns - view.t0_ns) / 1e9
    end = (view.end_ns - view.t0_ns) / 1e9
    axes.set_xlim(0, max(end, 1e-3))
    axes.xaxis.set_major_locator(MaxNLocator(nbins=11, steps=[1, 2, 5, 10]))
    if warm > 0:
        axes.axvspan(0, warm, color="#f3f4f6", zorder=0, linewidth=0)
        if named and warm > 0.08 * end:
            axes.text(
                warm / 2,
                0.02,
                "warm-up",
                transform=axes.get_xaxis_transform(),
                ha="center",
                va="bottom",
                fontsize=7,
                color=MUTED,
            )
    if label:
        axes.set_xlabel("time since start (s)")


def shade_faults(axes: Axes, view: View, *, label: bool = False) -> None:
    """A band while each fault held; with `label`, its name above the axes. More than four are numbered only."""
    for fault in view.faults:
        start = (fault.start_ns - view.t0_ns) / 1e9
        end = ((fault.end_ns if fault.end_ns is not None else view.end_ns) - view.t0_ns) / 1e9
        axes.axvspan(start, end, color=FAULT_FILL, alpha=0.10, zorder=0.5, linewidth=0)
        axes.axvline(start, color=FAULT_FILL, linewidth=0.8, zorder=0.6)
        if label:
            text = fault.what if len(view.faults) <= 4 and len(fault.places) == 1 else f"fault {fault.index}"
            axes.text(
                start, 1.01, text, transform=axes.get_xaxis_transform(), ha="left", va="bottom", fontsize=7, color=FAULT_FILL
            )


def fault_lines(axes: Axes, view: View) -> None:
    """Dashed lines where faults begin and end, for heat maps, which have no room for a band."""
    for fault in view.faults:
        for moment in (fault.start_ns, fault.end_ns):
            if moment is not None:
                axes.axvline((moment - view.t0_ns) / 1e9, color=INK, linewidth=0.8, linestyle=(0, (2, 2)))


def heat_extent(view: View, edges: Ints, rows: int) -> tuple[float, float, float, float]:
    """Of an image with one column per bin and one row per line, first row on top."""
    return (float(edges[0] - view.t0_ns) / 1e9, float(edges[-1] - view.t0_ns) / 1e9, float(rows), 0.0)


def colour(number: int) -> str:
    """The colour of plane or series `number`."""
    return CYCLE[number % len(CYCLE)]


def legend_above(axes: Axes, **options: Any) -> None:
    """A legend in one row at the upper right, outside the data."""
    settings: dict[str, Any] = {
        "loc": "lower right",
        "bbox_to_anchor": (1.0, 1.0),
        "ncols": 6,
        "borderaxespad": 0.1,
        "columnspacing": 1.2,
    }
    axes.legend(**(settings | options))


def data_frame(columns: Mapping[str, Sequence[Any] | np.ndarray[Any, Any]]) -> pd.DataFrame:
    return pd.DataFrame(dict(columns))
