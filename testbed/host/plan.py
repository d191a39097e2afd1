"""What the runner tells one host, read from its JSON plan file. Not the scenario: everything is resolved already.

Addresses stay text and `inner` becomes 16 bytes; rates in bit/s, sizes in bytes, times in nanoseconds after t0.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


class PlanError(Exception):
    """The plan file cannot be read or lacks something; the runner and this host disagree about its form."""


@dataclass(frozen=True, slots=True)
class Port:
    """One NIC port; port p serves plane p. `sid` is the host's own uSID address there, `bucket_bytes` its shaper's burst."""

    plane: int
    interface: str
    rate_bps: int
    bucket_bytes: int
    sid: str


@dataclass(frozen=True, slots=True)
class Peer:
    """Another host. `paths` holds (EV, plane, outer destination address), `denied` the EVs on the denylist."""

    host: str
    index: int
    inner: bytes
    paths: tuple[tuple[int, int, str], ...]
    denied: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Flow:
    """One stream of messages this host sends or receives; `depth` is per QP, `stop_ns` None means until told to stop."""

    flow: int
    source: str
    target: str
    message: int
    depth: int
    start_ns: int
    stop_ns: int | None
    job: str


@dataclass(frozen=True, slots=True)
class Job:
    """A job whose messages depend on each other or on a clock; its `flows` are those that touch this host.

    `kind` is ring_allreduce, all_to_all or poisson; `hosts` are its ranks in order, `index` its place in the scenario. `steps`
    None means until told to stop. `rate_per_s` and `sizes` are a poisson job's: messages per flow, and equally likely sizes.
    """

    index: int
    kind: str
    job: str
    hosts: tuple[str, ...]
    flows: tuple[int, ...]
    start_ns: int
    stop_ns: int | None
    compute_ns: int = 0
    steps: int | None = None
    rate_per_s: float = 0.0
    sizes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class HostPlan:
    """Everything a host knows. `transport` is the transport's own configuration, `kind` already taken out.

    `trace`: every decision of the transport is recorded too. `qps`: QPs of each flow.
    """

    host: str
    index: int
    seed: int
    records: str
    inner: bytes
    ports: tuple[Port, ...]
    overhead_bytes: int
    interval_ns: int
    kind: str
    transport: Mapping[str, Any]
    peers: tuple[Peer, ...]
    flows: tuple[Flow, ...]
    jobs: tuple[Job, ...]
    trace: bool = False
    qps: int = 1

    @property
    def payload(self) -> int:
        """Payload bytes per packet."""
        return int(self.transport["payload"])

    def peer_of(self, flow: Flow) -> Peer:
        """The host at the other end of `flow`."""
        other = flow.target if flow.source == self.host else flow.source
        for peer in self.peers:
            if peer.host == other:
                return peer
        raise PlanError(f"flow {flow.flow}: {other} is not among the peers of {self.host}")


def read(path: str) -> HostPlan:
    """Read a plan file. Raises PlanError, which names what is missing or of the wrong form."""
    try:
        # Not pathlib, here and in the records: importing it costs a host a tenth of its start-up time.
        with open(path, encoding="utf-8") as file:  # noqa: PTH123
            return parse(json.load(file))
    except OSError as error:
        raise PlanError(f"{path}: {error.strerror}") from error
    except KeyError as error:
        raise PlanError(f"{path}: key {error} is missing") from error
    except (TypeError, ValueError) as error:
        raise PlanError(f"{path}: {error}") from error


def parse(raw: Mapping[str, Any]) -> HostPlan:
    """Build the plan from decoded JSON. Raises KeyError, TypeError or ValueError where it is malformed."""
    transport = dict(raw["transport"])
    kind = transport.pop("kind")
    flows = tuple(Flow(**flow) for flow in raw["flows"])
    for flow in flows:
        if flow.message < 1 or flow.depth < 1:
            raise ValueError(f"flow {flow.flow}: message and depth must be at least 1")
    return HostPlan(
        host=raw["host"],
        index=raw["index"],
        seed=raw["seed"],
        records=raw["records"],
        inner=_packed(raw["inner"]),
        ports=tuple(Port(**port) for port in raw["ports"]),
        overhead_bytes=raw["overhead_bytes"],
        interval_ns=raw["interval_ns"],
        kind=kind,
        transport=transport,
        peers=tuple(_peer(peer) for peer in raw["peers"]),
        flows=flows,
        jobs=tuple(_job(job) for job in raw["jobs"]),
        trace=raw.get("trace", False),
        qps=raw.get("qps", 1),
    )


def _job(raw: Mapping[str, Any]) -> Job:
    lists = {key: tuple(raw[key]) for key in ("hosts", "flows", "sizes") if key in raw}
    return Job(**{**raw, **lists})


def _peer(raw: Mapping[str, Any]) -> Peer:
    paths = tuple((path["ev"], path["plane"], path["address"]) for path in raw["paths"])
    return Peer(raw["host"], raw["index"], _packed(raw["inner"]), paths, tuple(raw.get("denied", ())))


def _packed(address: str) -> bytes:
    return socket.inet_pton(socket.AF_INET6, address)
