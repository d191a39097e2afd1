"""What a host process may do: once its sockets and files are open it needs no more than any ordinary process.

capset(2), prctl(2) PR_SET_NO_NEW_PRIVS; numbers from linux/capability.h.
"""

from __future__ import annotations

import ctypes
import os
import struct

DAC_OVERRIDE = 1  # read and write files whatever their owner says
DAC_READ_SEARCH = 2  # read them
NET_ADMIN = 12
NET_RAW = 13
_VERSION_3 = 0x20080522
_HEADER = struct.Struct("=Ii")
_SETS = struct.Struct("=6I")  # effective, permitted, inheritable of capabilities 0 to 31; then of 32 to 63
_NO_NEW_PRIVS = 38


def keep(*capabilities: int) -> None:
    """Give up every capability but these, for good and for all that this process starts. One it lacks is no error.

    Of a single-threaded process. OSError when the kernel refuses.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    header, sets = ctypes.create_string_buffer(_HEADER.pack(_VERSION_3, 0)), ctypes.create_string_buffer(_SETS.size)
    _checked(libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    _checked(libc.capget(header, sets), "capget")
    _, low, _, _, high, _ = _SETS.unpack(sets.raw[: _SETS.size])
    left = (high << 32 | low) & sum(1 << capability for capability in set(capabilities))
    low, high = left & 0xFFFFFFFF, left >> 32
    header = ctypes.create_string_buffer(_HEADER.pack(_VERSION_3, 0))
    _checked(libc.capset(header, _SETS.pack(low, low, 0, high, high, 0)), "capset")


def _checked(result: int, call: str) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, f"{call}: {os.strerror(number)}")
