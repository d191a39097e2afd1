"""The few Linux system calls that Python 3.11 lacks: unshare, setns, mount, umount2, prctl. Failures raise KernelError."""

from __future__ import annotations

import ctypes
import os
from enum import IntFlag

from testbed.errors import KernelError

_libc = ctypes.CDLL(None, use_errno=True)

PR_SET_PDEATHSIG = 1
MNT_DETACH = 2


class Clone(IntFlag):
    """Namespace flags of unshare(2) and setns(2)."""

    NEWNS = 0x00020000
    NEWUTS = 0x04000000
    NEWIPC = 0x08000000
    NEWPID = 0x20000000
    NEWNET = 0x40000000


class Mount(IntFlag):
    """Flags of mount(2)."""

    NOSUID = 2
    NODEV = 4
    NOEXEC = 8
    BIND = 4096
    REC = 16384
    PRIVATE = 1 << 18


def _check(result: int, node: str, operation: str) -> None:
    if result != 0:
        raise KernelError(node, operation, os.strerror(ctypes.get_errno()))


def unshare(flags: Clone) -> None:
    """Give the calling thread its own namespaces (for NEWPID: its next child)."""
    _check(_libc.unshare(int(flags)), "sandbox", f"unshare({flags!r})")


def setns(fd: int, flags: Clone, node: str) -> None:
    """Move the calling thread into the namespace behind `fd`. `node` names it in errors."""
    _check(_libc.setns(fd, int(flags)), node, "setns")


def mount(source: str, target: str, kind: str | None, flags: Mount, options: str = "") -> None:
    """mount(2). `kind` None for bind mounts and propagation changes."""
    arguments = (
        source.encode(),
        target.encode(),
        kind.encode() if kind else None,
        ctypes.c_ulong(int(flags)),
        options.encode() if options else None,
    )
    _check(_libc.mount(*arguments), "sandbox", f"mount {kind or 'bind'} on {target}")


def unmount(target: str) -> None:
    """Lazy umount: the last user frees it."""
    _check(_libc.umount2(target.encode(), MNT_DETACH), "sandbox", f"umount {target}")


def die_with_parent(signal_number: int) -> None:
    """Ask for `signal_number` when the thread that forked this process ends."""
    _check(_libc.prctl(PR_SET_PDEATHSIG, signal_number, 0, 0, 0), "sandbox", "prctl(PR_SET_PDEATHSIG)")
