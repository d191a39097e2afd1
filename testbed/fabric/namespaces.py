"""Named network namespaces, made in bulk without starting a process in each, and entered by file descriptor."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from testbed.errors import KernelError
from testbed.fabric import syscalls
from testbed.fabric.sandbox import NETNS, loopback_up
from testbed.fabric.syscalls import Clone, Mount

# Inherited by every interface made later. No router discovery, no DAD, no link-local address: traffic flows from the first
# packet and the kernel has nothing of its own to say. `keep_addr_on_down` would restore only addresses, so it stays off
# and an undone fault restores everything from the plan.
COMMON_SYSCTLS: Mapping[str, str] = {
    "net/ipv6/conf/all/accept_ra": "0",
    "net/ipv6/conf/default/accept_ra": "0",
    "net/ipv6/conf/default/accept_dad": "0",
    "net/ipv6/conf/default/router_solicitations": "0",
    "net/ipv6/conf/default/addr_gen_mode": "1",
    "net/ipv6/conf/default/seg6_enabled": "1",
    "net/ipv6/conf/all/seg6_enabled": "1",
}
# Only once the links exist and are set to NOMULTICAST: an interface born as a router's joins the all-routers group and tells.
FORWARDING: Mapping[str, str] = {"net/ipv6/conf/all/forwarding": "1"}


class Namespaces:
    """The fabric's namespaces by node name. Only the thread that calls `inside` moves, and it always comes home."""

    def __init__(self, directory: Path = NETNS) -> None:
        self._directory = directory
        self._handles: dict[str, int] = {}
        self._home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)

    def create(self, names: Sequence[str]) -> None:
        """Make one namespace per name with `lo` up and COMMON_SYSCTLS written inside it."""
        try:
            for name in names:
                syscalls.unshare(Clone.NEWNET)
                self._bind(name)
                loopback_up()
                self._write_sysctls(name, COMMON_SYSCTLS)
        finally:
            syscalls.setns(self._home, Clone.NEWNET, "sandbox")

    def _bind(self, name: str) -> None:
        path = self._directory / name
        path.touch(exist_ok=False)
        syscalls.mount("/proc/thread-self/ns/net", str(path), None, Mount.BIND)
        self._handles[name] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def start_forwarding(self, name: str) -> None:
        """Make `name` a router. Call it after its links were made."""
        with self.inside(name):
            self._write_sysctls(name, FORWARDING)

    def write_sysctls(self, name: str, sysctls: Mapping[str, str]) -> None:
        """Set parameters inside `name`, by path below /proc/sys. KernelError names the one that the kernel refused."""
        with self.inside(name):
            self._write_sysctls(name, sysctls)

    def read_sysctls(self, name: str, keys: Iterable[str]) -> dict[str, str]:
        """What parameters are inside `name`, white space evened; one that this kernel does not have is left out."""
        found = {}
        with self.inside(name):
            for key in keys:
                with suppress(FileNotFoundError):
                    found[key] = " ".join(Path(f"/proc/sys/{key}").read_text().split())
        return found

    @staticmethod
    def _write_sysctls(name: str, sysctls: Mapping[str, str]) -> None:
        for key, value in sysctls.items():
            try:
                fd = os.open(f"/proc/sys/{key}", os.O_WRONLY)
                try:
                    os.write(fd, value.encode())
                finally:
                    os.close(fd)
            except OSError as error:
                raise KernelError(name, f"sysctl {key}={value}", error.strerror or str(error)) from error

    @contextmanager
    def inside(self, name: str) -> Iterator[None]:
        """The calling thread is in `name`'s namespace for the duration: sockets and children made there belong to it."""
        syscalls.setns(self._handles[name], Clone.NEWNET, name)
        try:
            yield
        finally:
            syscalls.setns(self._home, Clone.NEWNET, "sandbox")

    def handle(self, name: str) -> int:
        """The namespace's file descriptor; this object keeps owning it."""
        return self._handles[name]

    def __contains__(self, name: str) -> bool:
        return name in self._handles

    def close(self) -> None:
        """Let go of every namespace; the kernel removes each with its interfaces once nobody is inside."""
        for name, fd in self._handles.items():
            os.close(fd)
            path = self._directory / name
            syscalls.unmount(str(path))
            path.unlink()
        self._handles.clear()
        if self._home >= 0:
            os.close(self._home)
            self._home = -1
