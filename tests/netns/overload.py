"""A bare sender faster than a port, and everything that came out of it."""

from __future__ import annotations

import os
import pickle
import socket
import struct
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from testbed.fabric.network import Fabric
from testbed.model.codepoints import Dscp, Ecn
from tests.netns import kit

SENDER_BUFFER = 1 << 19  # the sender's socket blocks long before its own port's limit of 512 frames
GLANCE = 500
QUIET_S = 1.5
_NUMBER = struct.Struct("=4xI")  # behind a first octet that says "inner IPv6"


@dataclass
class Overload:
    """`arrived[size, dscp, ecn]`: packets by payload bytes, as the receiver's socket saw them; `numbers`: each one's own."""

    sent: Counter[int] = field(default_factory=Counter)
    arrived: Counter[tuple[int, Dscp, Ecn]] = field(default_factory=Counter)
    numbers: Counter[int] = field(default_factory=Counter)
    seconds: float = 0.0

    def of(self, dscp: Dscp) -> int:
        return sum(count for (_, seen, _), count in self.arrived.items() if seen is dscp)


def overload(
    net: Fabric,
    sizes: tuple[int, ...],
    count: int,
    dscp: Dscp | tuple[Dscp, ...],
    ecn: Ecn = Ecn.NOT_ECT,
    meanwhile: Callable[[], None] = lambda: None,
) -> Overload:
    """Send `count` packets, sizes in turn, from h0 to h2 as fast as h0's own port lets them; wait until all has arrived.

    Several classes take turns too, each for one packet of every size. `meanwhile` is called after every GLANCE packets.
    """
    read_end, write_end = os.pipe()
    with kit.raw(net, "h0") as source, kit.raw(net, "h2") as target:
        child = os.fork()
        if child == 0:
            try:
                os.close(read_end)
                with os.fdopen(write_end, "wb") as out:
                    pickle.dump(_collect(target), out)
            finally:
                os._exit(0)
        os.close(write_end)
        source.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SENDER_BUFFER)
        source.settimeout(100)
        classes = dscp if isinstance(dscp, tuple) else (dscp,)
        payloads = [bytearray(b"\x60" + bytes(size - 1)) for size in sizes]
        found = Overload()
        way = kit.path(net, 0, 2)
        start = time.monotonic()
        for number in range(count):
            payload = payloads[number % len(payloads)]
            _NUMBER.pack_into(payload, 0, number)
            kit.send(source, way, bytes(payload), classes[number // len(payloads) % len(classes)], ecn)
            found.sent[len(payload)] += 1
            if number % GLANCE == GLANCE - 1:
                meanwhile()
        found.seconds = time.monotonic() - start
        with os.fdopen(read_end, "rb") as answer:
            found.arrived, found.numbers = pickle.loads(answer.read())
        os.waitpid(child, 0)
    return found


def _collect(target: socket.socket) -> tuple[Counter[tuple[int, Dscp, Ecn]], Counter[int]]:
    target.settimeout(kit.LATEST_S)
    arrived: Counter[tuple[int, Dscp, Ecn]] = Counter()
    numbers: Counter[int] = Counter()
    while True:
        try:
            data, dscp, ecn = kit.receive(target)
        except TimeoutError:
            return arrived, numbers
        target.settimeout(QUIET_S)
        arrived[len(data), dscp, ecn] += 1
        numbers[_NUMBER.unpack_from(data)[0]] += 1
