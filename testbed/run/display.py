"""What a person sees on standard error during a run: four live lines on a terminal, elsewhere a plain one every few seconds."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TextIO

PLAIN_EVERY_S = 5.0
LIVE_EVERY_S = 0.5
BAR_WIDTH = 20


@dataclass(frozen=True, slots=True)
class View:
    """Everything shown, at one moment. Rates in bit/s; `busy` 0..1 of all cores."""

    elapsed_s: float
    duration_s: float
    goodput_bps: float
    plane_bps: tuple[float, ...]
    faults: tuple[str, ...]
    messages: int
    retransmissions: int
    busy: float
    lag_ms: float


class Display:
    """Knows whether it talks to a terminal. `quiet` silences everything but errors, which do not pass through here."""

    def __init__(self, stream: TextIO, *, quiet: bool = False) -> None:
        self._stream = stream
        self._quiet = quiet
        self._live = stream.isatty() and not quiet
        self._lines_up = 0

    @property
    def every_s(self) -> float:
        """How often `show` wants to be called."""
        return LIVE_EVERY_S if self._live else PLAIN_EVERY_S

    def say(self, text: str) -> None:
        """A line that stays."""
        if self._quiet:
            return
        self._write(self._erased() + text + "\n")

    def show(self, view: View) -> None:
        """The current state: replaces the last one on a terminal, is one more line elsewhere."""
        if self._quiet:
            return
        lines, before = [plain_line(view)], ""
        if self._live:
            width = shutil.get_terminal_size().columns
            before = self._erased()
            lines = [line[: width - 1] for line in live_lines(view)]
            self._lines_up = len(lines)
        self._write(before + "\n".join(lines) + "\n")

    def _erased(self) -> str:
        """What takes the live lines away."""
        up, self._lines_up = self._lines_up, 0
        return f"\x1b[{up}A\x1b[J" if up else ""

    def _write(self, text: str) -> None:
        """A terminal that is gone, or a reader that has left, ends no run."""
        try:
            self._stream.write(text)
            self._stream.flush()
        except OSError:
            self._quiet = True


def live_lines(view: View) -> list[str]:
    """Four lines that fit 80 columns for up to eight planes."""
    done = min(1.0, view.elapsed_s / view.duration_s) if view.duration_s else 1.0
    bar = "#" * int(done * BAR_WIDTH)
    planes = " ".join(f"{bps / 1e6:.3g}" for bps in view.plane_bps)
    return [
        f"[{bar:<{BAR_WIDTH}}] {_clock(view)}  goodput {rate(view.goodput_bps)}  cpu {view.busy:.0%}",
        f"messages {view.messages}  retransmitted {view.retransmissions}  host lag {view.lag_ms:.1f} ms",
        f"sent by plane {planes} Mbit/s",
        f"faults: {', '.join(view.faults) or 'none'}",
    ]


def plain_line(view: View) -> str:
    return (
        f"{_clock(view)}  goodput {rate(view.goodput_bps)}  messages {view.messages}"
        f"  retransmitted {view.retransmissions}  cpu {view.busy:.0%}  faults: {', '.join(view.faults) or 'none'}"
    )


def _clock(view: View) -> str:
    if view.elapsed_s > view.duration_s:
        return "draining"
    return f"{view.elapsed_s:.1f}/{view.duration_s:g} s"


def rate(bps: float) -> str:
    """`38.7 Mbit/s`, with the unit that keeps the number between 1 and 1000."""
    for unit in ("bit/s", "kbit/s", "Mbit/s"):
        if bps < 1000:
            return f"{bps:.3g} {unit}" if bps < 100 else f"{bps:.0f} {unit}"
        bps /= 1000
    return f"{bps:.3g} Gbit/s"
