"""When a packet counts as lost: by evidence, never by time alone (DESIGN section 6; docs/protocol.md, "Loss").

Evidence is an arrival: of a later packet of the same path, of one sent `reo_wnd` or later on another path, or of a reliability
probe. Paths of one plane end in the same last hop and queue there together. How long another plane's queue has been is known,
but not how long it has become, so evidence across planes allows for the longest delay seen there lately, and counts for nothing
while the last hop is known to be full. The requester tells what left and what arrived, and asks for the verdicts of each SACK;
it alone acts on them. The retransmission timeout is its own affair.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from testbed.transport.mrc.events import LossReason
from testbed.transport.mrc.paths import Path
from testbed.transport.mrc.sent import SentPacket
from testbed.transport.mrc.timing import ReorderWindow

Verdict = tuple[SentPacket, LossReason]
RECENT = 8  # round trips of a plane that are remembered


class LossJudge:
    """The evidence about one QP's outstanding packets. Times are departure times in ns."""

    __slots__ = ("_full", "_in_flight", "_latest_acked", "_path_acked", "_plane_acked", "_recent", "_rtt_base_ns", "reorder")

    def __init__(self, paths: Iterable[Path], rtt_base_ns: int) -> None:
        self.reorder = ReorderWindow(rtt_base_ns)
        self._rtt_base_ns = rtt_base_ns
        self._latest_acked = -1  # departure time of the latest packet known to have arrived
        self._in_flight: dict[Path, deque[SentPacket]] = {path: deque() for path in paths}  # in order of sending
        self._path_acked: dict[Path, int] = dict.fromkeys(self._in_flight, -1)
        planes = {path.plane for path in self._in_flight}
        self._plane_acked: dict[int, int] = dict.fromkeys(planes, -1)
        self._recent: dict[int, deque[int]] = {plane: deque([0], RECENT) for plane in planes}  # delays beyond the base
        self._full: dict[int, int] = dict.fromkeys(planes, -rtt_base_ns)  # departure of the latest packet trimmed at a last hop

    def sent(self, packet: SentPacket) -> None:
        """A packet has left; its `sent` is not before that of any packet sent on its path before."""
        self._in_flight[packet.path].append(packet)

    def arrived(self, packet: SentPacket, touched: set[Path]) -> None:
        """A transmission is known to have arrived. Its path joins `touched`: the paths one SACK has news of."""
        self.probe_answered(packet.path, packet.sent, touched)

    def probe_answered(self, path: Path, sent: int, touched: set[Path]) -> None:
        """A reliability probe that left at `sent` on `path` arrived."""
        self._latest_acked = max(self._latest_acked, sent)
        self._path_acked[path] = max(self._path_acked[path], sent)
        self._plane_acked[path.plane] = max(self._plane_acked[path.plane], sent)
        touched.add(path)

    def sampled(self, path: Path, extra_ns: int) -> None:
        """A round trip of `path` took `extra_ns` more than the base."""
        path.sample(extra_ns)
        self._recent[path.plane].append(extra_ns)

    def last_hop_full(self, packet: SentPacket) -> None:
        """`packet` was trimmed at its last hop: what is whole waits behind a full queue, in this plane at least."""
        plane = packet.path.plane
        self._full[plane] = max(self._full[plane], packet.sent)

    def was_late(self, packet: SentPacket, now: int) -> None:
        """A packet declared lost has arrived after all: the reorder window was too narrow, and its path is that slow."""
        self.reorder.spurious(now)
        self.sampled(packet.path, now - packet.sent - self._rtt_base_ns)

    def suspects(self, path: Path) -> bool:
        """Whether a packet of `path` is overdue: later ones have arrived elsewhere, though not by enough to call it lost."""
        queue = self._in_flight[path]
        while queue and not queue[0].outstanding:
            queue.popleft()
        return bool(queue) and queue[0].sent + path.extra_ns + self.reorder.suspect_ns <= self._latest_acked

    def verdicts(
        self, outstanding: dict[int, SentPacket], touched: set[Path], first: int, end: int, reason: LossReason, now: int
    ) -> list[Verdict]:
        """The packets that a SACK proves lost. It speaks only of the PSNs from `first` to before `end`.

        `outstanding`, by PSN, is in order of sending; `reason` is what the evidence of other paths is to be called.
        """
        found: list[Verdict] = []
        for path in touched:
            queue = self._in_flight[path]
            acked = self._path_acked[path]
            while queue and (not queue[0].outstanding or queue[0].sent < acked):
                packet = queue[0]
                if packet.outstanding:
                    if not first <= packet.psn < end:
                        break
                    found.append((packet, LossReason.LATER_SAME_PATH))
                    packet.outstanding = False
                queue.popleft()
        window = self.reorder.value(now)
        threshold = self._latest_acked - window
        waits: dict[int, int] = {}
        for packet in outstanding.values():
            if packet.sent > threshold:
                break
            if not packet.outstanding or not first <= packet.psn < end:
                continue
            path = packet.path
            plane = path.plane
            due = packet.sent + path.extra_ns + window
            if due > self._plane_acked[plane]:
                if plane not in waits:
                    waits[plane] = max(self._recent[plane])
                if (
                    packet.sent <= self._full[plane] + self._rtt_base_ns
                    or packet.sent + max(path.extra_ns, waits[plane]) + window > self._latest_acked
                ):
                    continue
            found.append((packet, reason))
        return found
