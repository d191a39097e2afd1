"""Measures the idle round trip: full-payload single-packet WRITEs, one at a time, before any workload starts.

The time is the endpoint's own: from when the packet left the NIC to when its acknowledgement was taken (DESIGN 4.4,
`rtt_base_ms`), read from the packet row that the endpoint has just recorded. The writes land in the receiver's first
slot, which message 0 overwrites.
"""

from __future__ import annotations

from collections.abc import Mapping

from testbed.host.flows import FlowError, SenderFlow
from testbed.host.memory import Content
from testbed.host.nic import Endpoint
from testbed.host.recorder import FATE_ACKNOWLEDGED
from testbed.host.records import Table


class Calibration:
    """`count` writes on one flow's QP. `rtts` grows until `done`."""

    def __init__(
        self,
        sender: SenderFlow,
        count: int,
        *,
        payload: int,
        endpoint: Endpoint,
        content: Content,
        packets: Table,
        plane_of: Mapping[int, int],
    ) -> None:
        self.qp = sender.qp
        self.rtts: list[dict[str, int]] = []
        self._sender = sender
        self._left = count
        self._size = min(payload, sender.remote.length)
        self._endpoint = endpoint
        self._content = content
        self._packets = packets
        self._plane_of = plane_of

    @property
    def done(self) -> bool:
        """Every write has been answered."""
        return self._left == 0

    def post(self, now: int) -> None:
        """Send the next write, if one is left."""
        if self._left:
            remote = self._sender.remote
            data = self._content.slice(self._sender.flow.flow, 0, self._size)
            self._endpoint.post_write(self.qp, self._left, data, remote.address, remote.rkey, None, now)

    def on_complete(self, now: int) -> None:
        """The write has been answered: note its time, send the next."""
        sent_ns, fate_ns, qp, _, ev, _, retransmission, fate, _, _ = self._packets.last()
        if qp != self.qp or fate != FATE_ACKNOWLEDGED:
            raise FlowError("a calibration write completed without its packet being recorded as acknowledged")
        if not retransmission:  # the time of a retransmitted packet is not a round trip; the run sees fewer times
            self.rtts.append({"plane": self._plane_of[ev], "rtt_ns": fate_ns - sent_ns})
        self._left -= 1
        self.post(now)
