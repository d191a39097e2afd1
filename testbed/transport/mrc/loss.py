"""When a packet counts as lost: by evidence, never by time alone (DESIGN section 6; docs/protocol.md, "Loss").

Evidence is an arrival: of a later packet of the same path, of one sent `reo_wnd` or later on any path, or of a reliability
probe. The requester tells what left and what arrived, and asks for the verdicts of each SACK; it alone acts on them. The
retransmission timeout is its own affair.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from testbed.transport.mrc.events import LossReason
from testbed.transport.mrc.paths import Path
from testbed.transport.mrc.sent import SentPacket
from testbed.transport.mrc.timing import ReorderWindow

PROBED = -1  # instead of a PSN, where the evidence is a probe


class Verdict(NamedTuple):
    """`packet` is lost; `proof` is the PSN of the latest arrival that says so, or PROBED."""

    packet: SentPacket
    reason: LossReason
    proof: int


class _Evidence:
    """What is known of one path: packets in order of sending, and the departure time and PSN of its latest arrival."""

    __slots__ = ("arrived", "in_flight", "proof")

    def __init__(self) -> None:
        self.in_flight: deque[SentPacket] = deque()
        self.arrived = -1
        self.proof = PROBED


class LossJudge:
    """The evidence about one QP's outstanding packets. Times are departure times in ns."""

    __slots__ = ("_latest", "_paths", "_rtt_base_ns", "reorder")

    def __init__(self, paths: Iterable[Path], rtt_base_ns: int) -> None:
        self.reorder = ReorderWindow(rtt_base_ns)
        self._rtt_base_ns = rtt_base_ns
        self._latest = _Evidence()  # of all paths together
        self._paths = {path: _Evidence() for path in paths}

    def sent(self, packet: SentPacket) -> None:
        """A packet has left; its `sent` is not before that of any packet sent on its path before."""
        self._paths[packet.path].in_flight.append(packet)

    def arrived(self, packet: SentPacket, touched: set[Path]) -> None:
        """A transmission is known to have arrived. Its path joins `touched`: the paths one SACK has news of."""
        path = packet.path
        self._note(path, packet.sent, packet.psn)
        touched.add(path)

    def probe_answered(self, path: Path, sent: int, touched: set[Path]) -> None:
        """A reliability probe that left at `sent` on `path` arrived."""
        self._note(path, sent, PROBED)
        touched.add(path)

    def _note(self, path: Path, sent: int, proof: int) -> None:
        known = self._paths[path]
        if sent > known.arrived:
            known.arrived = sent
            known.proof = proof
        latest = self._latest
        if sent > latest.arrived:
            latest.arrived = sent
            latest.proof = proof

    def was_late(self, packet: SentPacket, now: int) -> None:
        """A packet declared lost has arrived after all: the reorder window was too narrow, and its path is that slow.

        One that was written off with its port says nothing of either.
        """
        if packet.written_off:
            self.reorder.count += 1
            return
        self.reorder.spurious(now)
        packet.path.sample(now - packet.sent - self._rtt_base_ns)

    def suspects(self, path: Path) -> bool:
        """Whether a packet of `path` is overdue: later ones have arrived elsewhere, though not by enough to call it lost."""
        queue = self._paths[path].in_flight
        while queue and not queue[0].outstanding:
            queue.popleft()
        return bool(queue) and queue[0].sent + path.extra_ns + self.reorder.suspect_ns <= self._latest.arrived

    def verdicts(
        self, outstanding: dict[int, SentPacket], touched: set[Path], first: int, end: int, reason: LossReason, now: int
    ) -> list[Verdict]:
        """The packets that a SACK proves lost. It speaks only of the PSNs from `first` to before `end`.

        `outstanding`, by PSN, is in order of sending; `reason` is what the evidence of other paths is to be called.
        """
        found: list[Verdict] = []
        for path in touched:
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
        threshold = self._latest.arrived - self.reorder.value(now)
        for packet in outstanding.values():
            if packet.sent > threshold:
                break
            if packet.outstanding and packet.sent + packet.path.extra_ns <= threshold and first <= packet.psn < end:
                found.append(Verdict(packet, reason, self._latest.proof))
        return found
