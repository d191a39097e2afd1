"""A small plan for unit tests of the host, and a reader for raw record files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.host_pair import PairedHost, plan

NDArray = np.ndarray[Any, np.dtype[Any]]

SMALL = {"planes": 2, "message": 10_000, "payload": 1024, "rate_bps": 50_000_000}


LATEST_S = 60  # a limit for what hangs, not for what is slow


def until_placed(host: PairedHost, bytes_more: int) -> None:
    """Until this host has placed so much more than it had at its next report; progress on the way is read away."""
    first = host.hear("progress", LATEST_S)["placed_bytes"]
    while host.hear("progress", LATEST_S)["placed_bytes"] < first + bytes_more:
        pass


def pair_plan(directory: Path, index: int, **settings: Any) -> dict[str, Any]:
    """The plan of host `index` of two, small unless `settings` say otherwise."""
    return plan(directory, index, **(SMALL | settings))


def read_records(path: Path) -> NDArray:
    """One raw table; a record cut short at the end is ignored, as the contract says."""
    header, _, body = path.read_bytes().partition(b"\n")
    fields = json.loads(header)["fields"]
    dtype = np.dtype([(name, kind) for name, kind in fields])
    return np.frombuffer(body[: len(body) // dtype.itemsize * dtype.itemsize], dtype)
