"""Quantities are read exactly as documented, or refused with a reason (pitfall H-25)."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.model import units


@pytest.mark.parametrize(
    ("text", "value"),
    [("1bit", 1), ("5mbit", 5_000_000), ("100gbit", 10**11), ("2.5gbit", 2_500_000_000), ("0.001kbit", 1), ("1tbit", 10**12)],
)
def test_rate(text: str, value: int) -> None:
    assert units.rate(text) == value


@pytest.mark.parametrize(
    ("text", "value"), [("1ns", 1), ("8us", 8_000), ("20ms", 20_000_000), ("4s", 4 * 10**9), ("1m", 60 * 10**9), ("0s", 0)]
)
def test_time(text: str, value: int) -> None:
    assert units.time(text) == value


@pytest.mark.parametrize(
    ("text", "value"), [("128B", 128), ("1500B", 1500), ("64KiB", 65536), ("1MiB", 2**20), ("1.5KiB", 1536), ("1GiB", 2**30)]
)
def test_size(text: str, value: int) -> None:
    assert units.size(text) == value


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("1e3", "no exponents"),
        ("1e3mbit", "no exponents"),
        ("100", "it has no unit; one of bit, kbit, mbit, gbit, tbit"),
        ("100MB", "did you mean 100mbit?"),
        ("100Mb", "did you mean 100mbit?"),
        ("5Mbit/s", "did you mean 5mbit?"),
        ("5 mbit", "no space before the unit; write 5mbit"),
        ("010mbit", "no leading zeros"),
        ("-5mbit", "no sign"),
        ("+5mbit", "no sign"),
        ("0x5mbit", "only decimal"),
        ("1_000mbit", "no digit grouping"),
        ("1,5mbit", "no digit grouping"),
        (".5mbit", "digits on both sides"),
        ("5.mbit", "digits on both sides"),
        ("0.5bit", "in whole bit"),
        ("20ms", "'ms' is no unit here"),
        ("yes", "found 'yes'"),
        ("", "found ''"),
        ("mbit", "found 'mbit'"),
        ("5mbit\n", "found '5mbit"),
        ("\u0665mbit", "found"),
        ("9" * 5000 + "mbit", "longer than 32 characters"),
    ],
)
def test_refused_rates_say_why(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match="expected a rate") as caught:
        units.rate(text)
    assert reason in str(caught.value)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("text", ["010", "1.0", "1e3", "-1", "+1", "1_0", "0x1", "yes", "1:30", "", " 1", "1 ", "9" * 5000])
def test_refused_integers(text: str) -> None:
    with pytest.raises(ValueError, match="expected a whole number"):
        units.integer(text)


@pytest.mark.parametrize(("text", "value"), [("0", Fraction(0)), ("0.97", Fraction(97, 100)), ("12", Fraction(12))])
def test_numbers_are_exact(text: str, value: Fraction) -> None:
    assert units.is_number(text)
    assert units.number(text) == value


@given(st.integers(0, 10**15))
def test_what_is_written_reads_back(value: int) -> None:
    assert units.rate(units.format_rate(value)) == value
    assert units.time(units.format_time(value)) == value
    assert units.size(units.format_size(value)) == value


@given(st.text(max_size=40), st.sampled_from([units.rate, units.time, units.size, units.integer]))
def test_any_text_is_read_or_refused_in_one_line(text: str, read: Callable[[str], int]) -> None:
    message = ""
    try:
        read(text)
    except ValueError as error:
        message = str(error)
    assert "\n" not in message
