"""The yardstick: a windowed send/receive loop over the host's own raw sockets, the transport's packet sizes, nothing else.

No loss recovery, no content, no path choice: `WINDOW` packets out, an acknowledgement every `ACK_EVERY`, both directions
at once. What an endpoint delivers is given as a share of what this loop delivers (DESIGN section 8).
"""

from __future__ import annotations

import select
import sys
import time

from benchmarks.pair_network import address
from testbed.host.rawsocket import RawSocket

PAYLOAD = 4096
DATA_BYTES = 88 + PAYLOAD  # inner IPv6, UDP, BTH, METH, TSETH, RETH, payload, ICRC
ACK_BYTES = 100  # inner IPv6, UDP, BTH, SETH, CC_STATE, ICRC
WINDOW = 64
ACK_EVERY = 4
# Acknowledgements lost to a full buffer would stall the loop; after so long without any it starts a new window.
STALL_NS = 500_000_000
DATA_CLASS = 18
ACK_CLASS = 184


def main(side: str, planes: str, start_ns: str, seconds: str, switched: str) -> None:
    """Exchange packets from `start_ns` on for `seconds`; prints the packets received and the CPU ns they took."""
    index = "ab".index(side)
    to = [(address(1 - index, plane, switched=switched == "switched"), 0, plane, 0) for plane in range(int(planes))]
    wire = RawSocket({})
    data: list[bytes | memoryview] = [bytes(88), memoryview(bytes(PAYLOAD))]
    ack = [bytes(ACK_BYTES)]
    waiting = select.poll()
    waiting.register(wire.fileno(), select.POLLIN)
    begin = int(start_ns)
    while time.monotonic_ns() < begin:
        time.sleep(0.001)
    spent = time.process_time_ns()
    end = begin + int(float(seconds) * 1e9)
    datagrams = [[(target, DATA_CLASS, data)] for target in to]
    acks = [[(target, ACK_CLASS, ack)] for target in to]
    outstanding = received = turn = 0
    heard = begin
    send, receive, ready = wire.send, wire.receive, waiting.poll

    def take(packet: memoryview, _tclass: int, now: int) -> None:
        nonlocal outstanding, received, heard
        if len(packet) == ACK_BYTES:
            outstanding -= ACK_EVERY
            heard = now
        else:
            received += 1
            if not received % ACK_EVERY:
                send(acks[turn])

    while (now := time.monotonic_ns()) < end:
        if now - heard > STALL_NS:
            outstanding, heard = 0, now
        while outstanding < WINDOW:
            send(datagrams[turn])
            turn = turn + 1 if turn + 1 < len(to) else 0
            outstanding += 1
        if ready(STALL_NS // 1_000_000):
            receive(take)
    print(received, time.process_time_ns() - spent, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
