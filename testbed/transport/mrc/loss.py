"""When a packet counts as lost: by evidence, never by time alone (DESIGN section 6; docs/protocol.md, "Loss").

Evidence is an arrival: of a later packet of the same path, of one sent `reo_wnd` or later on another path, or of a reliability
probe. Paths of one plane end in the same last hop and queue there together, so a packet is allowed only what its path took of
late beyond the path of the evidence, or what any of the plane took of late beyond its own least: a queue inside the fabric is
one path's alone. How long another plane's queue has been is known, but not how long it has become, so evidence across planes
allows for the longest delay seen there lately, and counts for nothing while the last hop is known to be full; but a plane
that has brought nothing at all for longer than the widest reorder window is dead, not full. The requester tells what left and
what arrived, and asks for the verdicts of each SACK; it alone acts on them. The retransmission timeout is its own affair.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple

from testbed.transport.common.events import LossReason
from testbed.transport.common.ports import ROOM_FRAMES
from testbed.transport.mrc.paths import Path
from testbed.transport.mrc.sent import SentPacket
from testbed.transport.mrc.timing import REORDER_MOST_RTTS, ReorderWindow

Touched = dict[Path, None]  # a set in order of insertion: what is judged first must not depend on addresses in memory
DOUBTS = 256  # retransmissions that arrived, remembered until it is known whether they were needed
PROBED = -1  # instead of a PSN, where the evidence is a probe
RECENT = 8  # round trips of a plane that are remembered


class Verdict(NamedTuple):
    """`packet` is lost; `proof` is the PSN of the latest arrival that says so, or PROBED."""

    packet: SentPacket
    reason: LossReason
    proof: int


class Copy(IntEnum):
    """Which transmission of a PSN an acknowledgement is for. UNKNOWN is evidence of nothing else (Karn's rule)."""

    LAST = 0
    EARLIER = 1
    UNKNOWN = 2


class _Evidence:
    """The departure time and PSN of the latest arrival that is known, of one path, one plane or all."""

    __slots__ = ("arrived", "proof")

    def __init__(self) -> None:
        self.arrived = -1
        self.proof = PROBED

    def note(self, sent: int, proof: int) -> None:
        if sent > self.arrived:
            self.arrived = sent
            self.proof = proof


class _PathEvidence(_Evidence):
    """One path's, and its packets in order of sending."""

    __slots__ = ("in_flight",)

    def __init__(self) -> None:
        super().__init__()
        self.in_flight: deque[SentPacket] = deque()


class _PlaneEvidence(_Evidence):
    """One plane's; how much longer than the base its latest round trips took, and until when its last hop counts as full.

    `extra_ns`: what the path of the latest arrival was known to take beyond the base by then. `least`: the shortest took so
    much more, or less: the base is the slowest plane's. `longest`: the most of the latest ones took so much more. `swing`: the
    most that one of them took beyond its own path's share. `full`: packets that left by then wait behind a queue which has just
    been seen to overflow. `heard`: when anything of the plane was last found to have come through.
    """

    __slots__ = ("_recent", "_swings", "extra_ns", "full", "heard", "least", "longest", "swing")

    def __init__(self) -> None:
        super().__init__()
        self._recent: deque[int] = deque([0], RECENT)
        self._swings: deque[int] = deque([0], RECENT)
        self.longest = 0
        self.swing = 0
        self.full = -1
        self.heard = 0
        self.extra_ns = 0
        self.least = 0

    def sampled(self, extra_ns: int, swing_ns: int) -> None:
        """A round trip took `extra_ns` more than the base, and `swing_ns` more than its path's own share."""
        self._recent.append(extra_ns)
        self.longest = max(self._recent)
        self._swings.append(swing_ns)
        self.swing = max(self._swings)
        self.least = min(self.least, extra_ns)

    def allows(self, path: Path) -> int:
        """How much later than this plane's latest arrival a packet of `path` may be: both have stood in the same last queue."""
        return max(0, max(path.latest_ns, path.extra_ns + self.swing) - self.extra_ns)

    def allows_elsewhere(self, path: Path) -> int:
        """How much later than an arrival on another plane a packet of `path` may be."""
        return max(path.latest_ns, self.longest)


class LossJudge:
    """The evidence about one QP's outstanding packets. Times are departure times in ns."""

    __slots__ = ("_ahead_ns", "_doubtful", "_latest", "_most_ns", "_paths", "_planes", "_rtt_base_ns", "reorder")

    def __init__(self, paths: Iterable[Path], rtt_base_ns: int) -> None:
        self._rtt_base_ns = rtt_base_ns
        self._most_ns = REORDER_MOST_RTTS * rtt_base_ns  # the widest reorder window
        self._latest = _Evidence()  # of all paths together
        self._paths = {path: _PathEvidence() for path in paths}
        frame_ns = max(path.port.frame_ns for path in self._paths)
        self._ahead_ns = ROOM_FRAMES * frame_ns  # what was handed over later may leave so much sooner, by another port
        self.reorder = ReorderWindow(rtt_base_ns, frame_ns)
        self._planes = {path.plane: _PlaneEvidence() for path in self._paths}
        self._doubtful: dict[int, SentPacket] = {}  # by PSN: what an arrived retransmission repeats

    def sent(self, packet: SentPacket) -> None:
        """A packet has left; its `sent` is not before that of any packet sent on its path before."""
        self._paths[packet.path].in_flight.append(packet)

    def arrived(self, packet: SentPacket, touched: Touched) -> None:
        """A transmission is known to have arrived. Its path joins `touched`: the paths one SACK has news of."""
        path = packet.path
        self._note(path, packet.sent, packet.psn)
        touched[path] = None

    def probe_answered(self, path: Path, sent: int, touched: Touched) -> None:
        """A reliability probe that left at `sent` on `path` arrived."""
        self._note(path, sent, PROBED)
        touched[path] = None

    def _note(self, path: Path, sent: int, proof: int) -> None:
        self._paths[path].note(sent, proof)
        plane = self._planes[path.plane]
        if sent > plane.arrived:
            plane.extra_ns = path.extra_ns
        plane.note(sent, proof)
        self._latest.note(sent, proof)

    def sampled(self, path: Path, extra_ns: int) -> None:
        """A round trip of `path` took `extra_ns` more than the base; more than the widest reorder window is not waited for."""
        extra_ns = min(extra_ns, self._most_ns)
        path.sample(extra_ns)
        self._planes[path.plane].sampled(extra_ns, max(0, extra_ns - path.extra_ns))

    def last_hop_full(self, packet: SentPacket, now: int) -> None:
        """`packet` was trimmed at its last hop, so whatever of its plane arrives whole around then has waited long."""
        plane = self._planes[packet.path.plane]
        plane.full = max(plane.full, packet.sent + self._rtt_base_ns)
        plane.heard = now

    def which(self, packet: SentPacket, echo: int | None, now: int) -> Copy:
        """What has arrived of a PSN whose last transmission is `packet`. `echo` where the SACK speaks of this PSN alone."""
        if packet.earlier is None or packet.earlier.refused or echo == packet.echo:
            return Copy.LAST
        least = self._rtt_base_ns + self._planes[packet.path.plane].least
        if echo is not None or now - packet.sent < least * 9 // 10:
            return Copy.EARLIER
        return Copy.UNKNOWN

    def doubt(self, packet: SentPacket) -> None:
        """A retransmission is acknowledged. What it repeats may still arrive, if it was not lost but late."""
        if packet.earlier is not None and not packet.earlier.refused:
            self._doubtful[packet.psn] = packet.earlier
            if len(self._doubtful) > DOUBTS:
                del self._doubtful[next(iter(self._doubtful))]

    def came_after_all(self, psn: int, echo: int) -> SentPacket | None:
        """A duplicate of `psn` has arrived: the transmission that it proves to have been late, not lost."""
        doubtful = self._doubtful.get(psn)
        if doubtful is None or doubtful.echo != echo:
            return None
        del self._doubtful[psn]
        return doubtful

    def was_late(self, packet: SentPacket, now: int) -> None:
        """A packet declared lost has arrived after all: the reorder window was too narrow, and its path is that slow.

        One that was written off with its port says nothing of either.
        """
        if packet.written_off:
            self.reorder.count += 1
            return
        self.reorder.spurious(now)
        self.sampled(packet.path, now - packet.sent - self._rtt_base_ns)

    def suspects(self, path: Path) -> bool:
        """Whether a packet of `path` is overdue: later ones have arrived elsewhere, though not by enough to call it lost."""
        queue = self._paths[path].in_flight
        while queue and not queue[0].outstanding:
            queue.popleft()
        if not queue:
            return False
        plane, due = self._planes[path.plane], queue[0].sent + self.reorder.suspect_ns
        # A turn is no loss: however long a plane's queues were, half a round trip behind the others is enough to give one up.
        elsewhere = min(plane.allows_elsewhere(path), path.extra_ns + self.reorder.start_ns)
        return due + plane.allows(path) <= plane.arrived or due + elsewhere <= self._latest.arrived

    def verdicts(
        self, outstanding: dict[int, SentPacket], touched: Touched, first: int, end: int, reason: LossReason, now: int
    ) -> list[Verdict]:
        """The packets that a SACK proves lost. It speaks only of the PSNs from `first` to before `end`.

        `outstanding`, by PSN, is in the order in which packets were handed to the ports; `reason` is what the evidence of other
        paths is to be called.
        """
        found: list[Verdict] = []
        for path in touched:
            self._planes[path.plane].heard = now
            known = self._paths[path]
            queue, acked = known.in_flight, known.arrived
            while queue and (not queue[0].outstanding or queue[0].sent < acked):
                packet = queue[0]
                if packet.outstanding:
                    if not first <= packet.psn < end:
                        break
                    found.append(Verdict(packet, LossReason.LATER_SAME_PATH, known.proof))
                    packet.outstanding = False
                queue.popleft()
        window = self.reorder.value(now)
        latest = self._latest
        for packet in outstanding.values():
            if packet.sent - self._ahead_ns + window > latest.arrived:
                break
            if not packet.outstanding or not first <= packet.psn < end:
                continue
            path = packet.path
            plane = self._planes[path.plane]
            if packet.sent + plane.allows(path) + window <= plane.arrived:
                found.append(Verdict(packet, reason, plane.proof))
            elif packet.sent <= plane.full and now - plane.heard <= self._most_ns:
                continue
            elif packet.sent + plane.allows_elsewhere(path) + window <= latest.arrived:
                found.append(Verdict(packet, reason, latest.proof))
        return found
