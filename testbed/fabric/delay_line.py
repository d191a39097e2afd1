"""The delay daemon: holds packets in the kernel's netfilter queues and lets each go when its delay has passed.

One process for all hosts, standard library only. Started by delay.py with one netlink socket per host, each opened in that
host's network namespace. Packets stay in the kernel (metadata-only copies); a queue holds one delay, so its packets fall due
in order and one batch verdict lets several go.

Why this is cheap and exact at once: a packet falls due `delay` after its *receive timestamp*, which the kernel took when the
packet came in, so the daemon need not wake for arrivals. It drains all queues with recvmmsg every few milliseconds, and
wakes for due times, rounded to QUANTUM: 10,000 wake-ups a second would cost more than the packets themselves.
"""

from __future__ import annotations

import ctypes
import errno
import gc
import json
import os
import select
import socket
import struct
import sys
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush, heapreplace

SUBSYSTEM = 3 << 8  # NFNL_SUBSYS_QUEUE
MSG_PACKET, MSG_CONFIG, MSG_VERDICT_BATCH = SUBSYSTEM | 0, SUBSYSTEM | 2, SUBSYSTEM | 3
CFG_CMD, CFG_PARAMS, CFG_QUEUE_MAXLEN, CFG_MASK, CFG_FLAGS = 1, 2, 3, 4, 5
CMD_BIND, COPY_META, FLAG_GSO = 1, 1, 4
ATTR_VERDICT_HEADER, ATTR_TIMESTAMP = 2, 4
NF_ACCEPT = 1
NLM_F_REQUEST, NLM_F_ACK, NLMSG_ERROR = 1, 4, 2
_SOL_NETLINK, _NETLINK_NO_ENOBUFS = 270, 5
_SO_RCVBUFFORCE, _SO_TIMESTAMP = 33, 29

QUEUE_PACKETS = 1_000_000  # a queue never overflows before the bandwidth-delay product does
RECEIVE_BUFFER = 64 << 20
BURST = 64  # messages per recvmmsg
SLOT = 256  # bytes of one metadata message, with room to spare
BUCKET_SHIFT = 13  # lateness histogram: 8 us a bucket
BUCKETS = 8192  # up to 67 ms; the last bucket takes the rest

_HEAD = struct.Struct("=IHHII")
_ID = struct.Struct(">I")
# A packet's message, read in one unpack with network byte order: the netlink header's type at 4, nfgenmsg's queue number at
# 18, then the packet header attribute (always first) with the packet id at 24. What is in native order is compared as such.
_START = struct.Struct(">4xH12xH4xI")
_PACKET = int.from_bytes(struct.pack("=H", MSG_PACKET), "big")
_STAMP = int.from_bytes(struct.pack("=HH", 20, ATTR_TIMESTAMP), "big")
_FIRST_ATTRIBUTE = 20
# (type, queue number, packet id, attribute header, seconds, microseconds) of the message at an offset
Layout = Callable[[bytearray, int], tuple[int, ...]]
_libc = ctypes.CDLL(None, use_errno=True)


class _Vector(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


class _Header(ctypes.Structure):
    """struct msghdr."""

    _fields_ = (
        ("name", ctypes.c_void_p),
        ("name_length", ctypes.c_uint32),
        ("vectors", ctypes.POINTER(_Vector)),
        ("vector_count", ctypes.c_size_t),
        ("control", ctypes.c_void_p),
        ("control_length", ctypes.c_size_t),
        ("flags", ctypes.c_int),
    )


class _Message(ctypes.Structure):
    """struct mmsghdr."""

    _fields_ = (("header", _Header), ("received", ctypes.c_uint))


def _without_stamp(data: bytearray, base: int) -> tuple[int, ...]:
    return (*_START.unpack_from(data, base), 0, 0, 0)


class Receiver:
    """recvmmsg into fixed slots: one system call for up to BURST messages."""

    def __init__(self) -> None:
        self.data = bytearray(BURST * SLOT)
        base = ctypes.addressof((ctypes.c_char * len(self.data)).from_buffer(self.data))
        self._vectors = (_Vector * BURST)()
        self._messages = (_Message * BURST)()
        for index in range(BURST):
            self._vectors[index] = _Vector(base + index * SLOT, SLOT)
            self._messages[index].header.vectors = ctypes.pointer(self._vectors[index])
            self._messages[index].header.vector_count = 1
        stride = ctypes.sizeof(_Message) // 4
        words = memoryview(self._messages).cast("B").cast("I")
        self.lengths = words[_Message.received.offset // 4 :: stride]

    def receive(self, fd: int) -> int:
        """Messages received now, 0 when there is none. OSError(ENOBUFS) when the kernel dropped some."""
        count: int = _libc.recvmmsg(fd, self._messages, BURST, socket.MSG_DONTWAIT, None)
        if count >= 0:
            return count
        code = ctypes.get_errno()
        if code in {errno.EAGAIN, errno.EINTR}:
            return 0
        raise OSError(code, os.strerror(code))


@dataclass(frozen=True, slots=True)
class HostQueues:
    """One host: its netlink socket, a descriptor of its /proc/net/netfilter/nfnetlink_queue, delay in ns by queue number."""

    socket_fd: int
    statistics_fd: int
    delays_ns: tuple[int, ...]


class Queue:
    """One netfilter queue of one host."""

    def __init__(self, channel: socket.socket, number: int, delay_ns: int) -> None:
        self.channel = channel
        self.delay_ns = delay_ns
        self.waiting: deque[tuple[int, int]] = deque()  # (due ns, packet id)
        self.listed = False  # in the schedule
        generic = struct.pack(">BBH", 0, 0, number)
        verdict = struct.pack("=HH", 12, ATTR_VERDICT_HEADER) + struct.pack(">II", NF_ACCEPT, 0)
        body = generic + verdict
        self.verdict = bytearray(_HEAD.pack(16 + len(body), MSG_VERDICT_BATCH, NLM_F_REQUEST, 0, 0) + body)
        self.id_offset = len(self.verdict) - 4
        self._configure(generic, CFG_CMD, struct.pack(">BxH", CMD_BIND, socket.AF_INET6))
        self._configure(generic, CFG_PARAMS, struct.pack(">IB", 0, COPY_META))
        self._configure(generic, CFG_QUEUE_MAXLEN, struct.pack(">I", QUEUE_PACKETS))
        self._configure(generic, CFG_MASK, struct.pack(">I", FLAG_GSO), CFG_FLAGS, struct.pack(">I", FLAG_GSO))

    def _configure(self, generic: bytes, *pairs: int | bytes) -> None:
        body = generic
        for kind, value in zip(pairs[::2], pairs[1::2], strict=True):
            assert isinstance(value, bytes)
            body += struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)
        self.channel.send(_HEAD.pack(16 + len(body), MSG_CONFIG, NLM_F_REQUEST | NLM_F_ACK, 0, 0) + body)
        answer = self.channel.recv(4096)
        code = struct.unpack_from("=i", answer, 16)[0]
        if code:
            raise OSError(-code, f"netfilter queue configuration: {os.strerror(-code)}")


class Statistics:
    """Lateness since the last report, as a histogram, and drops since the start."""

    def __init__(self) -> None:
        self.packets = 0
        self.overruns = 0
        self.buckets = [0] * BUCKETS
        self.latest = 0

    def report(self, dropped: int) -> dict[str, int]:
        """Lateness in ns. Buckets count from half a quantum early; a percentile is its bucket's upper edge."""
        counts, total = self.buckets, self.packets
        answer = {"packets": total, "max": self.latest, "dropped": dropped, "overruns": self.overruns}
        for name, share in (("p50", 0.5), ("p99", 0.99)):
            answer[name] = min(_percentile(counts, total * share), self.latest) if total else 0
        self.packets = 0
        self.latest = 0
        self.buckets = [0] * BUCKETS
        return answer


def _percentile(counts: list[int], rank: float) -> int:
    seen = 0
    for bucket, count in enumerate(counts):
        seen += count
        if seen >= rank and count:
            return bucket + 1 << BUCKET_SHIFT
    return 0


class DelayLine:
    """The loop: read, schedule, let go."""

    def __init__(self, hosts: list[HostQueues], control: socket.socket) -> None:
        self._control = control
        self._statistics = Statistics()
        self._statistics_fds = [host.statistics_fd for host in hosts]
        self._receiver = Receiver()
        self._layouts: dict[int, Layout] = {}
        self._schedule: list[tuple[int, int, Queue]] = []  # (due of its first packet, tie-break, queue)
        self._order = 0
        self._poll = select.epoll()
        self._queues: dict[int, list[Queue]] = {}
        for host in hosts:
            channel = socket.socket(fileno=host.socket_fd)
            channel.settimeout(2.0)
            channel.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, RECEIVE_BUFFER)
            queues = [Queue(channel, number, delay) for number, delay in enumerate(host.delays_ns)]
            channel.setblocking(False)
            self._queues[host.socket_fd] = queues
            self._poll.register(host.socket_fd, select.EPOLLIN)
        self._poll.register(control.fileno(), select.EPOLLIN)
        shortest = min(delay for host in hosts for delay in host.delays_ns)
        self._quantum_ns = max(50_000, min(400_000, shortest // 50))
        self._read_every_ns = max(100_000, min(4_000_000, shortest // 4))
        # While this socket exists the kernel stamps every received packet.
        self._stamping = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
        self._stamping.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMP, 1)

    def run(self) -> None:
        """Until the control channel closes."""
        next_read = 0
        half = self._quantum_ns // 2
        while True:
            now = time.monotonic_ns()
            if now >= next_read:
                ready = self._poll.poll(0)
                if not ready and not self._schedule:
                    ready = self._poll.poll()  # idle: sleep until a packet or the runner comes
                if not self._serve(ready):
                    return
                now = time.monotonic_ns()
                next_read = now + self._read_every_ns
            schedule = self._schedule
            if schedule and schedule[0][0] <= now + half:
                self._let_go(now + half)
            wake = min(next_read, schedule[0][0] if schedule else next_read)
            # At least a quantum apart: packets due in between go together, on average neither early nor late.
            pause = max(wake - time.monotonic_ns(), self._quantum_ns)
            time.sleep(pause / 1e9)

    def _serve(self, ready: list[tuple[int, int]]) -> bool:
        shift = time.monotonic_ns() - time.time_ns()
        for fd, _ in ready:
            queues = self._queues.get(fd)
            if queues is not None:
                self._drain(fd, queues, shift)
            elif not self._answer():
                return False
        return True

    def _answer(self) -> bool:
        try:
            if not self._control.recv(64):
                return False
            line = json.dumps(self._statistics.report(self._dropped())) + "\n"
            self._control.sendall(line.encode())
        except ConnectionError:  # whoever asked has gone: the same as having closed the channel
            return False
        return True

    def _dropped(self) -> int:
        """Packets the kernel dropped because a queue or a socket was full: columns 6 and 7 of the table."""
        lost = 0
        for fd in self._statistics_fds:
            for line in os.pread(fd, 1 << 14, 0).splitlines():
                fields = line.split()
                lost += int(fields[5]) + int(fields[6])
        return lost

    def _drain(self, fd: int, queues: list[Queue], shift: int) -> None:
        receiver = self._receiver
        data, lengths, layouts = receiver.data, receiver.lengths, self._layouts
        only = queues[0] if len(queues) == 1 else None
        while True:
            try:
                count = receiver.receive(fd)
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise
                self._statistics.overruns += 1
                continue
            base = 0
            for index in range(count):
                layout = layouts.get(lengths[index]) or self._find_layout(base, lengths[index])
                kind, number, identity, header, seconds, micros = layout(data, base)
                if kind == _PACKET:
                    queue = only or queues[number]
                    if header == _STAMP:
                        due = (seconds * 1_000_000 + micros) * 1000 + shift + queue.delay_ns
                    else:
                        due = time.monotonic_ns() + queue.delay_ns
                    queue.waiting.append((due, identity))
                    if not queue.listed:
                        queue.listed = True
                        self._order += 1
                        heappush(self._schedule, (due, self._order, queue))
                base += SLOT
            if count < BURST:
                return

    def _find_layout(self, base: int, length: int) -> Layout:
        """How to read messages of this length: the attributes before the timestamp are the same in all of them."""
        data = self._receiver.data
        offset = _FIRST_ATTRIBUTE
        while offset + 24 <= length:
            size, attribute = struct.unpack_from("=HH", data, base + offset)
            if attribute == ATTR_TIMESTAMP:
                found = struct.Struct(f"{_START.format}{offset - _START.size}xIQQ").unpack_from
                self._layouts[length] = found
                return found
            offset += (max(size, 4) + 3) & ~3
        return _without_stamp

    def _let_go(self, limit: int) -> None:
        schedule = self._schedule
        statistics = self._statistics
        buckets = statistics.buckets
        early = self._quantum_ns // 2
        now = limit - early
        latest = statistics.latest
        while schedule and schedule[0][0] <= limit:
            queue = schedule[0][2]
            waiting = queue.waiting
            latest = max(latest, now - waiting[0][0])
            last = 0
            while waiting and waiting[0][0] <= limit:
                due, last = waiting.popleft()
                bucket = now - due >> BUCKET_SHIFT
                buckets[bucket if 0 <= bucket < BUCKETS else 0 if bucket < 0 else BUCKETS - 1] += 1
                statistics.packets += 1
            _ID.pack_into(queue.verdict, queue.id_offset, last)
            queue.channel.send(queue.verdict)
            if waiting:
                self._order += 1
                heapreplace(schedule, (waiting[0][0], self._order, queue))
            else:
                queue.listed = False
                heappop(schedule)
        statistics.latest = latest


def main(arguments: list[str]) -> int:
    """`delay_line.py CONTROL_FD JSON`: JSON is a list of [socket_fd, statistics_fd, [delay_ns, ...]]."""
    control = socket.socket(fileno=int(arguments[0]))
    hosts = [HostQueues(entry[0], entry[1], tuple(entry[2])) for entry in json.loads(arguments[1])]
    try:
        line = DelayLine(hosts, control)
    except OSError as error:
        control.sendall((json.dumps({"error": str(error)}) + "\n").encode())
        return 1
    # Nothing here makes cycles, and a collection would make every waiting packet late.
    gc.disable()
    control.sendall(b'{"ready": true}\n')
    line.run()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
