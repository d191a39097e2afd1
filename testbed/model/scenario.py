"""A resolved scenario: every key of DESIGN 4.2 that is understood today, with its default filled in. Frozen, pure data.

Integers carry their unit in the name: rates in bit/s, times in ns, sizes in bytes. `load.py` makes these from YAML.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class TransportKind(StrEnum):
    MRC = "mrc"
    RC = "rc"
    TCP = "tcp"
    MPTCP = "mptcp"

    @property
    def is_kernels(self) -> bool:
        """Whether the kernel's own stack carries the flows, and iperf3 fills them."""
        return self in (TransportKind.TCP, TransportKind.MPTCP)


class Routing(StrEnum):
    SRV6 = "srv6"
    ECMP = "ecmp"
    BGP = "bgp"


class WorkloadKind(StrEnum):
    STREAM = "stream"
    PERMUTATION = "permutation"
    INCAST = "incast"
    ALL_TO_ALL = "all_to_all"
    RING_ALLREDUCE = "ring_allreduce"
    TRAINING = "training"
    POISSON = "poisson"


class FaultAction(StrEnum):
    DOWN = "down"
    FLAP = "flap"
    BLACKHOLE = "blackhole"
    LOSS = "loss"
    CORRUPT = "corrupt"
    RATE = "rate"
    REBOOT = "reboot"
    HANG = "hang"
    PAUSE = "pause"
    KILL = "kill"


@dataclass(frozen=True, slots=True)
class TopologySpec:
    """A multi-plane two-tier Clos. A T0 group is one T0 per plane; hosts = t0_groups x hosts_per_t0."""

    planes: int
    t0_groups: int
    t1_per_plane: int
    hosts_per_t0: int

    @property
    def hosts(self) -> int:
        return self.t0_groups * self.hosts_per_t0


@dataclass(frozen=True, slots=True)
class LinkSpec:
    """Link parameters. `delay_ns[p]` is plane p's one-way, host-to-host propagation delay."""

    rate_bps: int
    fabric_rate_bps: int
    delay_ns: tuple[int, ...]
    mtu: int
    overhead_bytes: int


@dataclass(frozen=True, slots=True)
class BfdSpec:
    """Bidirectional forwarding detection (RFC 5880) of every BGP session: a packet each interval, down after so many missed."""

    interval_ns: int
    multiplier: int


@dataclass(frozen=True, slots=True)
class RoutingSpec:
    """How switches find the way. What is not of the kind is at its default.

    `hash_policy` 3 hashes the 5-tuple, 0 addresses and flow label, as `net.ipv6.fib_multipath_hash_policy`; `hash_seed` 0:
    one made from the scenario's seed.
    """

    kind: Routing = Routing.SRV6
    hash_policy: int = 3
    hash_seed: int = 0
    keepalive_ns: int = 3_000_000_000
    hold_ns: int = 9_000_000_000
    bfd: BfdSpec | None = None

    @property
    def hashes(self) -> bool:
        """Whether switches choose among equal paths, instead of following the packet's own list."""
        return self.kind is not Routing.SRV6


@dataclass(frozen=True, slots=True)
class SwitchSpec:
    """Queue thresholds in bytes of charged frames (frame on the veth plus `overhead_bytes`)."""

    trimming: bool
    ecn: bool
    ecn_min_bytes: int
    ecn_max_bytes: int
    trim_bytes: int
    trim_last_hop_bytes: int
    trim_size: int
    ecn_last_hop: bool = False


@dataclass(frozen=True, slots=True)
class DenySpec:
    """EVs whose path crosses this link are denied from `at_ns` (0: before any traffic) for `for_ns`, None: to the end."""

    ends: tuple[str, str]
    at_ns: int = 0
    for_ns: int | None = None


@dataclass(frozen=True, slots=True)
class EvField:
    """One field of a GENERATED EV. Values outside [`minimum`, `maximum`] name nothing."""

    width: int
    mask: int
    init: int
    minimum: int
    maximum: int


@dataclass(frozen=True, slots=True)
class TransportSpec:
    """What every endpoint is configured with; `timeout_n` is the n of 1.024 us x 2^n, None for what suits the round trip."""

    kind: TransportKind
    payload: int
    qps: int
    evs: int
    active_evs: int  # per destination; 0: all
    ev_list: tuple[str, ...]  # names of paths, as `paths.Path.name`; empty: chosen
    ev_fields: tuple[EvField, ...]  # what EVs are generated from; empty: chosen or listed
    denylist: tuple[DenySpec, ...]
    policy: str  # mrc | oblivious | single_path | reps | FILE.py:Class
    policy_text: str  # what is in that file
    replacement: str  # same_plane | any
    cc: str  # mrc: nscc | fixed | none; rc: dcqcn | none; tcp, mptcp: cubic | bbr
    backpressure: bool  # the responder asks for smaller windows after trims at its last hop
    window_frames: int  # 0: chosen from the BDP; rc: none
    sack_bytes: int
    probes: bool
    probe_interval_ns: int  # 0: two base round trips
    probe_count: int  # answers in a row that restore a path
    reshuffle: bool
    mpr: int  # PSNs in flight, in units of 128: as requester
    mpr_dest: int  # as responder
    dynamic_mpr: bool
    max_wimm: int  # WRITE_WITH_IMMs under way: as requester
    max_wimm_dest: int  # as responder
    timeout_n: int | None
    timeout_linear: int
    timeout_exponential: int  # 25: for ever

    @property
    def policy_file(self) -> str:
        """Of a policy of one's own: its file, relative to the scenario's; empty for a policy by name."""
        return self.policy.rpartition(":")[0]


@dataclass(frozen=True, slots=True)
class WorkloadSpec:
    """One job. `depth` messages outstanding per flow; `stop_ns` is None for the whole run.

    `message` in bytes: of each WRITE; for ring_allreduce, and training with it, the whole buffer of a rank; for all_to_all the
    part for each peer; for poisson the mean.
    """

    kind: WorkloadKind
    message: int
    depth: int
    start_ns: int
    stop_ns: int | None
    job: str
    hosts: tuple[int, ...] = ()  # incast: `senders`; of a ring in its order
    cross_group: bool = True  # permutation
    source: int | None = None  # stream: `from`
    target: int | None = None  # stream: `to`; incast: `receiver`
    bystander: tuple[int, int] | None = None  # incast: one more flow, (from, to)
    steps: int | None = None  # ring_allreduce: `iterations`; training; None: until the job stops
    compute_ns: int = 0  # training: per step, before its collective
    collective: WorkloadKind | None = None  # training
    load: float = 0.0  # poisson: share of a host's line rate, in payload
    sizes: tuple[int, ...] | str = ""  # poisson: equally likely, or the name of a distribution around `message`


@dataclass(frozen=True, slots=True)
class LinkSelector:
    """Which links a fault hits: one by its ends, or `count` seeded random ones of a tier (None: all that match)."""

    ends: tuple[str, str] | None = None
    tier: str | None = None  # nic-t0 | t0-t1
    plane: int | None = None
    switch: str | None = None
    count: int | None = None


@dataclass(frozen=True, slots=True)
class FaultSpec:
    """What happens, where and when. `for_ns` None: until the end of the run. Times count from t = 0.

    A fault of a whole switch, plane or host names it; `link` then selects every link of it. It happens once, or again and
    again from `at_ns` to `until_ns` (None: the end of the run): for a share `duty` of each `period_ns`, or `per_minute` times
    a minute at random, each time for `for_ns` on one link of the selection.
    """

    action: FaultAction
    at_ns: int
    for_ns: int | None
    link: LinkSelector
    direction: str = "both"  # both | forward | backward, seen from the first-named end
    switch: str = ""  # reboot, hang
    plane: int | None = None  # every link of it
    host: str = ""  # pause, kill
    ratio: float = 0.0  # loss, corrupt: share of the packets
    to_bps: int = 0  # rate: the new one
    side: str = ""  # down, flap: lower | upper, the end that is taken down; empty: the upper one
    until_ns: int | None = None
    period_ns: int = 0
    duty: float = 0.0
    per_minute: float = 0.0
    line: int = field(default=0, compare=False)  # of the scenario file, for messages

    @property
    def repeats(self) -> bool:
        return bool(self.period_ns or self.per_minute)


@dataclass(frozen=True, slots=True)
class MeasureSpec:
    """The window is [warmup, duration]; `drain_ns` bounds how long messages under way may finish after it.

    `trace`: the transport's every decision is recorded too.
    """

    warmup_ns: int
    duration_ns: int
    interval_ns: int
    drain_ns: int
    trace: bool = False


@dataclass(frozen=True, slots=True)
class Expectation:
    """`metric op value`, for example `goodput_ratio >= 0.97`."""

    text: str
    metric: str
    op: str
    value: float


@dataclass(frozen=True, slots=True)
class ScaleSpec:
    """What the emulated link and round trip stand for."""

    link_bps: int
    rtt_ns: int


@dataclass(frozen=True, slots=True)
class Scenario:
    name: str
    description: str
    source: str
    topology: TopologySpec
    links: LinkSpec
    switch: SwitchSpec
    routing: RoutingSpec
    transport: TransportSpec
    workload: tuple[WorkloadSpec, ...]
    faults: tuple[FaultSpec, ...]
    measure: MeasureSpec
    expect: tuple[Expectation, ...]
    seed: int
    scale: ScaleSpec | None
    warnings: tuple[str, ...] = field(default=(), compare=False)  # unused keys and the like; printed, not fatal
