"""Receives a batch of packets with one system call, each with its outer traffic class.

`recvmmsg` is not in Python's socket module, and `recvmsg_into` costs more in Python than in the kernel: it builds the
sender's address as text and a list of control messages for every packet (measured: 6 us a packet against 2 to 4). So
this is the one place that calls the C library. Structures and buffers are allocated once and used again.
"""

from __future__ import annotations

import ctypes
import errno
import socket
import sys
import time
from collections.abc import Callable

# Packets per call: bounds how long an acknowledgement waits behind a burst.
BATCH = 32
# Larger than any frame a veth of this testbed carries (MTU 9,000 at most is asked for).
FRAME_BYTES = 9216

_CONTROL_BYTES = socket.CMSG_SPACE(4)  # one control message, the class as an int
_CONTROL_STRIDE = 32
# The low byte of that int.
_CLASS_AT = socket.CMSG_LEN(0) + (0 if sys.byteorder == "little" else 3)


class _IoVec(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


class _MsgHdr(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_void_p),
        ("name_length", ctypes.c_uint),
        ("iov", ctypes.c_void_p),
        ("iov_count", ctypes.c_size_t),
        ("control", ctypes.c_void_p),
        ("control_length", ctypes.c_size_t),
        ("flags", ctypes.c_int),
    )


class _MMsgHdr(ctypes.Structure):
    _fields_ = (("header", _MsgHdr), ("length", ctypes.c_uint))


_STRIDE = ctypes.sizeof(_MMsgHdr)
_LENGTH_AT = _MMsgHdr.length.offset

Take = Callable[[memoryview, int, int], None]


class BatchReceiver:
    """Reads packets from a raw socket. The views it hands out are valid only inside the call."""

    __slots__ = ("_arguments", "_classes", "_headers", "_keep", "_lengths", "_recvmmsg", "_template", "_views")

    def __init__(self, descriptor: int) -> None:
        frames = bytearray(BATCH * FRAME_BYTES)
        control = bytearray(BATCH * _CONTROL_STRIDE)
        frames_at = ctypes.addressof(ctypes.c_char.from_buffer(frames))
        control_at = ctypes.addressof(ctypes.c_char.from_buffer(control))
        vectors = (_IoVec * BATCH)()
        headers = (_MMsgHdr * BATCH)()
        for index in range(BATCH):
            vectors[index].base = frames_at + index * FRAME_BYTES
            vectors[index].length = FRAME_BYTES
            header = headers[index].header
            header.iov = ctypes.addressof(vectors[index])
            header.iov_count = 1
            header.control = control_at + index * _CONTROL_STRIDE
            header.control_length = _CONTROL_BYTES
        self._recvmmsg = ctypes.CDLL(None, use_errno=True).recvmmsg
        self._arguments = (
            ctypes.c_int(descriptor),
            ctypes.byref(headers),
            ctypes.c_uint(BATCH),
            ctypes.c_int(socket.MSG_DONTWAIT),
            ctypes.c_void_p(None),
        )
        view = memoryview(frames)
        self._views = [view[index * FRAME_BYTES : (index + 1) * FRAME_BYTES] for index in range(BATCH)]
        self._classes = memoryview(control)[_CLASS_AT::_CONTROL_STRIDE]
        self._headers = memoryview(headers).cast("B")
        self._lengths = self._headers.cast("I")[_LENGTH_AT // 4 :: _STRIDE // 4]
        self._template = bytes(self._headers)  # the kernel overwrites lengths; this puts them back
        self._keep = vectors

    def receive(self, take: Take) -> int:
        """Give `take(packet, outer class, now)` each packet that has arrived, at most `BATCH`; returns how many.

        Raises OSError for an error pending on the socket; the packets come with the next call.
        """
        count: int = self._recvmmsg(*self._arguments)
        if count <= 0:
            number = ctypes.get_errno()
            if count == 0 or number in (errno.EAGAIN, errno.EINTR):
                return 0
            raise OSError(number, errno.errorcode.get(number, "recvmmsg"))
        now_ns, views, lengths, classes = time.monotonic_ns, self._views, self._lengths, self._classes
        for index in range(count):
            take(views[index][: lengths[index]], classes[index], now_ns())
        end = count * _STRIDE
        self._headers[:end] = self._template[:end]
        return count
