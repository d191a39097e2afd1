"""What a host process may do: once its sockets and files are open it needs no more than any ordinary process.

capset(2), prctl(2) PR_SET_NO_NEW_PRIVS; numbers from linux/capability.h.
"""

from __future__ import annotations

import ctypes
import os
import struct
from contextlib import suppress

DAC_OVERRIDE = 1  # read and write files whatever their owner says
DAC_READ_SEARCH = 2  # read them
NET_ADMIN = 12
NET_RAW = 13
NOBODY = 65534  # the kernel's own overflow user and group
_HEADER = struct.pack("=Ii", 0x20080522, 0)  # _LINUX_CAPABILITY_VERSION_3; this thread
_SETS = struct.Struct("=6I")  # effective, permitted, inheritable of capabilities 0 to 31; then of 32 to 63
_KEEP_CAPS, _NO_NEW_PRIVS = 8, 38


def keep(*capabilities: int) -> None:
    """Give up every capability but these, for good and for all that this process starts. One it lacks is no error.

    Of a single-threaded process. OSError when the kernel refuses.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    _checked(libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    sets = ctypes.create_string_buffer(_SETS.size)
    _checked(libc.capget(ctypes.create_string_buffer(_HEADER), sets), "capget")
    _, low, _, _, high, _ = _SETS.unpack_from(sets)
    left = (high << 32 | low) & sum(1 << capability for capability in set(capabilities))
    low, high = left & 0xFFFFFFFF, left >> 32
    _checked(libc.capset(ctypes.create_string_buffer(_HEADER), _SETS.pack(low, low, 0, high, high, 0)), "capset")


def become_nobody(*capabilities: int) -> None:
    """As `keep`, and no longer root: what belongs to root is then closed to this process too.

    Without root, and in a container that has no such user or may not change to it, only `keep`.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    _checked(libc.prctl(_KEEP_CAPS, 1, 0, 0, 0), "keep capabilities")
    with suppress(OSError):
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
    keep(*capabilities)


def _checked(result: int, call: str) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, f"{call}: {os.strerror(number)}")
