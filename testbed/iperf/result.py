"""What iperf3 said, made safe: its JSON is not always JSON (pitfall H-12), and a result that cannot be used has a reason."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Result:
    """One end of one flow. Bytes as iperf3 counted them; CPU in percent of one core, of this end. `failure` empty: all is well.

    A number that iperf3 gave as NaN, or not at all, is None.
    """

    failure: str
    sent_bytes: float | None = None
    received_bytes: float | None = None
    retransmits: float | None = None
    cpu_percent: float | None = None


def parse(text: str) -> Result:
    """Read one result. Never raises: text that is no result is a failure that says what it was."""
    text = text.strip()
    if not text:
        return Result("iperf3 said nothing")
    try:
        found, end = json.JSONDecoder().raw_decode(text)
    except ValueError:
        return Result(f"iperf3 gave no JSON: {_short(text)}")
    if not isinstance(found, dict):
        return Result(f"iperf3 gave no result: {_short(text)}")
    rest = text[end:].strip()
    end_part = found.get("end")
    values = _values(end_part if isinstance(end_part, dict) else {})
    error = found.get("error")
    if error:
        return Result(f"iperf3: {error}", *values)
    if rest:
        return Result(f"iperf3 added to its result: {_short(rest)}", *values)
    if values[0] is None and values[1] is None:
        return Result("iperf3's result has no end", *values)
    if not (values[0] or values[1]):
        return Result("no byte was carried", *values)
    return Result("", *values)


def _values(end: dict[str, Any]) -> tuple[float | None, float | None, float | None, float | None]:
    sent, received, cpu = (end.get(name) for name in ("sum_sent", "sum_received", "cpu_utilization_percent"))
    return (
        _number(sent, "bytes"),
        _number(received, "bytes"),
        _number(sent, "retransmits"),
        _number(cpu, "host_total"),
    )


def _number(part: Any, name: str) -> float | None:
    value = part.get(name) if isinstance(part, dict) else None
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not math.isfinite(value):
        return None
    return float(value)


def _short(text: str) -> str:
    return repr(text[:80])
