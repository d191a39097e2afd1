"""Plans for tests of the host, and a reader for raw record files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

NDArray = np.ndarray[Any, np.dtype[Any]]


def pair_plan(
    directory: Path,
    index: int,
    *,
    planes: int = 2,
    message: int = 10_000,
    depth: int = 2,
    payload: int = 1024,
    rate_bps: int = 50_000_000,
    stop_ns: int | None = None,
    both: bool = True,
    addresses: tuple[str, str] = ("5f00:{plane}:4000::", "5f00:{plane}:4001::"),
    transport: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """The plan of host `index` of two; flow 0 goes from h0 to h1, flow 1 (with `both`) back."""
    other = 1 - index
    flows = [{"flow": flow, "source": f"h{flow}", "target": f"h{1 - flow}"} for flow in ((0, 1) if both else (0,))]
    return {
        "host": f"h{index}",
        "index": index,
        "seed": 7,
        "records": str(directory / f"h{index}"),
        "inner": f"fd00::1:{index}",
        "ports": [
            {
                "plane": plane,
                "interface": f"h{index}-eth{plane}",
                "rate_bps": rate_bps,
                "sid": addresses[index].format(plane=plane),
            }
            for plane in range(planes)
        ],
        "overhead_bytes": 24,
        "interval_ns": 100_000_000,
        "transport": {
            "kind": "mrc",
            "payload": payload,
            "policy": "mrc",
            "window_bytes": 64 * payload,
            "sack_bytes": 4 * payload,
            "probes": True,
            "reshuffle": True,
            "rtt_base_ns": 10_000_000,
        }
        | (transport or {}),
        "peers": [
            {
                "host": f"h{other}",
                "index": other,
                "inner": f"fd00::1:{other}",
                "paths": [
                    {"ev": plane << 16, "plane": plane, "address": addresses[other].format(plane=plane)}
                    for plane in range(planes)
                ],
            }
        ],
        "flows": [
            flow | {"message": message, "depth": depth, "start_ns": 0, "stop_ns": stop_ns, "job": "pair"} for flow in flows
        ],
    }


def read_records(path: Path) -> NDArray:
    """One raw table; a record cut short at the end is ignored, as the contract says."""
    header, _, body = path.read_bytes().partition(b"\n")
    fields = json.loads(header)["fields"]
    dtype = np.dtype([(name, kind) for name, kind in fields])
    return np.frombuffer(body[: len(body) // dtype.itemsize * dtype.itemsize], dtype)
