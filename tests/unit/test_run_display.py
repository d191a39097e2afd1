"""What the display writes, on a terminal and elsewhere."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest

from testbed.run.display import LIVE_EVERY_S, PLAIN_EVERY_S, Display, View, live_lines, plain_line, rate

VIEW = View(
    elapsed_s=5,
    duration_s=20,
    goodput_bps=148.2e6,
    plane_bps=(38.5e6, 38.4e6),
    faults=("down p0t0-0:p0t1-2",),
    messages=91,
    retransmissions=7,
    busy=0.41,
    lag_ms=1.25,
)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("bps", "text"),
    [(0, "0 bit/s"), (999, "999 bit/s"), (38.71e6, "38.7 Mbit/s"), (148.2e6, "148 Mbit/s"), (1.5e9, "1.5 Gbit/s")],
)
def test_rates_keep_three_digits(bps: float, text: str) -> None:
    assert rate(bps) == text


def test_elsewhere_a_plain_line_every_few_seconds() -> None:
    stream = io.StringIO()
    display = Display(stream)
    assert display.every_s == PLAIN_EVERY_S
    display.show(VIEW)
    assert stream.getvalue() == plain_line(VIEW) + "\n"
    assert "\x1b" not in stream.getvalue()
    for part in ("5.0/20 s", "148 Mbit/s", "retransmitted 7", "cpu 41%", "down p0t0-0:p0t1-2"):
        assert part in stream.getvalue()


def test_on_a_terminal_the_lines_are_replaced() -> None:
    stream = Terminal()
    display = Display(stream)
    assert display.every_s == LIVE_EVERY_S
    display.show(VIEW)
    display.show(VIEW)
    assert stream.getvalue().count("\x1b[4A\x1b[J") == 1
    display.say("over")
    assert stream.getvalue().count("\x1b[4A\x1b[J") == 2
    assert stream.getvalue().endswith("over\n")


def test_live_lines_show_everything() -> None:
    text = "\n".join(live_lines(VIEW))
    for part in (
        "[#####     ",
        "5.0/20 s",
        "148 Mbit/s",
        "sent by plane 38.5 38.4 Mbit/s",
        "down p0t0-0:p0t1-2",
        "host lag 1.2 ms",
    ):
        assert part in text


def test_live_lines_fit_a_terminal() -> None:
    wide = replace(VIEW, plane_bps=(99.9e6,) * 8, elapsed_s=119.5, duration_s=120, messages=99999, retransmissions=9999)
    assert max(len(line) for line in live_lines(wide)) < 80


def test_after_the_end_it_drains() -> None:
    assert "draining" in plain_line(replace(VIEW, elapsed_s=20.5))


def test_quiet_is_silent() -> None:
    stream = Terminal()
    display = Display(stream, quiet=True)
    display.show(VIEW)
    display.say("anything")
    assert stream.getvalue() == ""
