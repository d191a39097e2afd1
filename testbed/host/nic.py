"""The transport as a host sees it: one `Endpoint` per NIC. Which transport it is, the plan says.

The host depends on this shape, not on a particular transport: `testbed.transport.<kind>` provides `Endpoint`,
`EndpointConfig`, `PortConfig` and the three event classes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any, NamedTuple, Protocol

from testbed.host.plan import HostPlan, PlanError
from testbed.host.rawsocket import Datagram
from testbed.host.recorder import Recorder

KINDS = ("mrc", "rc")


class MemoryRegion(Protocol):
    """A registered buffer, open to remote WRITE."""

    @property
    def rkey(self) -> int: ...
    @property
    def address(self) -> int: ...
    @property
    def length(self) -> int: ...


class Window(Protocol):
    """What bounds a sender, in payload bytes."""

    @property
    def limit(self) -> int: ...
    @property
    def inflight(self) -> int: ...


class Requester(Protocol):
    """The sending half of a QP, as samples see it; payload bytes sent since the start and smoothed round trips, by plane."""

    @property
    def sent_bytes(self) -> Mapping[int, int]: ...
    @property
    def rtt_ns(self) -> Mapping[int, int]: ...
    @property
    def window(self) -> Window: ...


class QueuePair(Protocol):
    """One end of a connection; `psn` is the first PSN this end sends."""

    @property
    def number(self) -> int: ...
    @property
    def psn(self) -> int: ...
    @property
    def requester(self) -> Requester: ...


class Endpoint(Protocol):
    """A NIC without I/O. Times are CLOCK_MONOTONIC ns and always an argument."""

    def register(self, buffer: memoryview) -> MemoryRegion: ...
    def add_peer(self, index: int, inner: bytes, paths: Sequence[tuple[int, int, str]]) -> None: ...
    def create_qp(self, peer_index: int) -> QueuePair: ...
    def connect_qp(self, number: int, remote_number: int, remote_psn: int) -> None: ...
    def deny(self, peer_index: int, ev: int, now: int) -> None: ...
    def allow(self, peer_index: int, ev: int, now: int) -> None: ...
    def post_write(
        self,
        number: int,
        wr_id: int,
        data: memoryview,
        remote_address: int,
        rkey: int,
        immediate: int | None,
        now: int,
    ) -> None: ...
    def port_state(self, plane: int, up: bool, now: int) -> None: ...
    def receive(self, packet: memoryview, tclass: int, now: int) -> None: ...
    def transmit(self, now: int) -> Iterable[Datagram]: ...
    def next_timer(self) -> int | None: ...
    def on_timer(self, now: int) -> None: ...
    def events(self) -> Sequence[Any]: ...
    def flush(self) -> None: ...
    def statistics(self) -> dict[str, int]: ...


class Nic(NamedTuple):
    """An endpoint and the classes of its events."""

    endpoint: Endpoint
    write_complete: type
    immediate_received: type
    queue_pair_error: type


MakeNic = Callable[[HostPlan, Recorder], Nic]


def build(plan: HostPlan, recorder: Recorder) -> Nic:
    """The endpoint that `plan` asks for, with its peers. Raises PlanError when the transport refuses the configuration."""
    if plan.kind not in KINDS:
        raise PlanError(f"transport kind {plan.kind!r} is not one of {', '.join(KINDS)}")
    module = import_module(f"testbed.transport.{plan.kind}")
    settings = dict(plan.transport)
    try:
        if "policy_text" in settings:
            from testbed.host import policy  # rarely needed, and start-up time counts

            settings["own_policy"] = policy.compile_policy(settings["policy"], settings.pop("policy_text"))
        if "limits" in settings:
            settings["limits"] = module.QpLimits(**settings["limits"])
        config = module.EndpointConfig(
            host=plan.index,
            inner=plan.inner,
            ports=tuple(module.PortConfig(port.plane, port.rate_bps, port.bucket_bytes) for port in plan.ports),
            overhead_bytes=plan.overhead_bytes,
            **settings,
        )
    except (TypeError, ValueError) as error:
        raise PlanError(f"the {plan.kind} transport does not take this configuration: {error}") from error
    endpoint: Endpoint = module.Endpoint(config, recorder, f"{plan.seed}:{plan.host}")
    try:
        for peer in plan.peers:
            endpoint.add_peer(peer.index, peer.inner, peer.paths)
    except module.PolicyError as error:
        raise PlanError(str(error)) from error
    return Nic(endpoint, module.WriteComplete, module.ImmediateReceived, module.QueuePairError)
