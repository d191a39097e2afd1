"""What the runner tells one host of its TCP or MPTCP flows. Times are ns after t = 0, `limit_ns` after the runner's `stop`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Flow:
    """One end of a flow: from `source` and `client_port` to `address` and `port`, where the server listens.

    `device`: the port that the client's first connection is bound to; empty where routing chooses.
    """

    flow: int
    sends: bool
    address: str
    source: str
    device: str
    port: int
    client_port: int
    start_ns: int
    seconds: int


@dataclass(frozen=True, slots=True)
class HostPlan:
    """`mptcp`: connections must be MPTCP's. `planes`: the plane of each address that this host or a peer has in one plane only;
    `plane_of_flow` where a flow's plane is known otherwise.
    """

    host: str
    records: str
    interval_ns: int
    limit_ns: int
    mptcp: bool
    congestion: str
    planes: dict[str, int]
    plane_of_flow: dict[int, int]
    flows: tuple[Flow, ...]


def read(path: str) -> HostPlan:
    """Read a plan file."""
    raw = json.loads(Path(path).read_text())
    flows = tuple(Flow(**flow) for flow in raw["flows"])
    planes = {int(flow): plane for flow, plane in raw["plane_of_flow"].items()}
    return HostPlan(
        raw["host"],
        raw["records"],
        raw["interval_ns"],
        raw["limit_ns"],
        raw["mptcp"],
        raw["congestion"],
        raw["planes"],
        planes,
        flows,
    )
