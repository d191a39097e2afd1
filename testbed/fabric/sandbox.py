"""Run a function inside its own network, mount, PID, IPC and UTS namespaces. Nothing is made outside; nothing stays behind.

Four processes: the caller waits; a helper unshares (so that the caller's own namespaces never change) and waits; PID 1 of
the new PID namespace forwards signals and reaps orphans; PID 2 runs the function. Each dies with the one before it
(PR_SET_PDEATHSIG), and the kernel kills a PID namespace with its PID 1, so even SIGKILL of the caller leaves nothing.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import socket
import struct
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import NoReturn

from testbed.errors import ExitStatus, TestbedError
from testbed.fabric import syscalls
from testbed.fabric.syscalls import Clone, Mount

RUN = Path("/run")
NETNS = RUN / "netns"  # where `ip -n` and `ip netns exec` look
BPFFS = RUN / "bpf"  # outside /sys, which `ip netns exec` mounts over

_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_WATCHED = (*_FORWARDED, signal.SIGCHLD)
_SI_KERNEL = 0x80  # a terminal's Ctrl-C: the kernel has already sent it to the whole foreground group
_POLL_S = 0.2  # only matters when another thread of the caller swallowed our SIGCHLD
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 1


def run_in_sandbox(main: Callable[[], int]) -> int:
    """Run `main` in a sandbox and return its exit status (128 + signal when it was killed, 130 after an interrupt).

    SIGINT, SIGTERM and SIGHUP sent to the caller reach `main` as KeyboardInterrupt. An exception out of `main` is printed and
    becomes its exit status. Needs root; call it from a single-threaded process. Blocks until all is gone.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)
    try:
        return _supervise(_fork(lambda: _helper(main, mask)), reap_all=False)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def enter_private_mounts() -> None:
    """Inside fresh namespaces: private mounts, the new PID namespace's /proc, an own /run with netns and bpffs, lo up."""
    syscalls.mount("none", "/", None, Mount.REC | Mount.PRIVATE)
    quiet = Mount.NOSUID | Mount.NODEV
    syscalls.mount("proc", "/proc", "proc", quiet | Mount.NOEXEC)
    syscalls.mount("tmpfs", str(RUN), "tmpfs", quiet, "mode=755")
    NETNS.mkdir()
    BPFFS.mkdir()
    syscalls.mount("bpf", str(BPFFS), "bpf", quiet, "mode=700")
    loopback_up()


def loopback_up() -> None:
    """Bring `lo` up in the calling thread's network namespace."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        request = struct.pack("16sH14x", b"lo", 0)
        flags = struct.unpack_from("H", fcntl.ioctl(control, _SIOCGIFFLAGS, request), 16)[0]
        fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", flags | _IFF_UP))


def _fork(body: Callable[[], int]) -> int:
    """Fork a child that runs `body`, exits with what it returns, and cannot outlive this process."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child:
        os.close(read_end)
        # Kept open on purpose: its closing tells the child that we died before it could ask for the death signal.
        _handshakes.append(write_end)
        return child
    try:
        os.close(write_end)
        syscalls.die_with_parent(signal.SIGKILL)
        if _hung_up(read_end):
            os._exit(128 + signal.SIGKILL)
        os.close(read_end)
        _close_handshakes()
        _leave(body())
    except BaseException:  # noqa: BLE001 - a forked child must never return into the caller's stack
        traceback.print_exc()
        _leave(ExitStatus.BROKEN)


def _hung_up(pipe: int) -> bool:
    """poll, not select: a caller with a thousand files open hands out numbers that select cannot watch."""
    waiting = select.poll()
    waiting.register(pipe, select.POLLIN)
    return bool(waiting.poll(0))


_handshakes: list[int] = []


def _close_handshakes() -> None:
    while _handshakes:
        os.close(_handshakes.pop())


def _leave(status: int) -> NoReturn:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _helper(main: Callable[[], int], mask: set[signal.Signals] | set[int]) -> int:
    try:
        syscalls.unshare(Clone.NEWNET | Clone.NEWNS | Clone.NEWPID | Clone.NEWIPC | Clone.NEWUTS)
    except TestbedError as error:
        print(error, file=sys.stderr)
        return error.exit_status
    return _supervise(_fork(lambda: _init(main, mask)), reap_all=False)


def _init(main: Callable[[], int], mask: set[signal.Signals] | set[int]) -> int:
    """PID 1. It owns no state worth cleaning: when it exits the kernel ends everything in its namespaces."""
    try:
        enter_private_mounts()
    except TestbedError as error:
        print(error, file=sys.stderr)
        return error.exit_status
    return _supervise(_fork(lambda: _run(main, mask)), reap_all=True)


def _run(main: Callable[[], int], mask: set[signal.Signals] | set[int]) -> int:
    def interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
        raise KeyboardInterrupt

    for number in _FORWARDED:
        if not _ignored(number):
            signal.signal(number, interrupt)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        signal.pthread_sigmask(signal.SIG_SETMASK, set(mask) - set(_WATCHED))
        return main()
    except KeyboardInterrupt:
        return ExitStatus.INTERRUPTED
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    except TestbedError as error:
        print(error, file=sys.stderr)
        return error.exit_status


def _supervise(child: int, *, reap_all: bool) -> int:
    """Forward signals to `child` until it ends; reap every orphan when this is PID 1."""
    try:
        while True:
            ended = _reap(child, reap_all=reap_all)
            if ended is not None:
                return ended
            received = signal.sigtimedwait(_WATCHED, _POLL_S)
            if received is None or received.si_signo not in _FORWARDED or _ignored(received.si_signo):
                continue
            if received.si_code != _SI_KERNEL:
                os.kill(child, received.si_signo)
    except BaseException:
        # A handler of the caller's raised (a test's timeout, say): the sandbox must not live on without its owner.
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        raise
    finally:
        _close_handshakes()


def _ignored(number: int) -> bool:
    """As after `nohup`: blocked, such a signal still arrives."""
    return signal.getsignal(number) is signal.SIG_IGN


def _reap(child: int, *, reap_all: bool) -> int | None:
    while True:
        pid, status = os.waitpid(-1 if reap_all else child, os.WNOHANG)
        if pid == child:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code
        if pid == 0:
            return None
