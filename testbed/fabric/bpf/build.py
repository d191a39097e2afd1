"""Compile port.c with clang, once per content: the object's name carries a hash of everything that goes into it."""

from __future__ import annotations

import hashlib
import os
import platform
from pathlib import Path

from testbed.errors import KernelError
from testbed.fabric import tools
from testbed.model.codepoints import Dscp
from testbed.whole import replacing

SOURCE = Path(__file__).with_name("port.c")
HEADER = Path(__file__).with_name("port.h")


def flags() -> list[str]:
    """clang's arguments except input and output."""
    machine = platform.machine()
    defines = [f"-DDSCP_{dscp.name}={dscp.value}" for dscp in Dscp]
    # Debian and Ubuntu keep asm/types.h in the multiarch folder, which `-target bpf` does not search.
    return ["-O2", "-g", "-Wall", "-Werror", "-target", "bpf", f"-I/usr/include/{machine}-linux-gnu", *defines]


def object_name() -> str:
    content = SOURCE.read_bytes() + HEADER.read_bytes() + " ".join(flags()).encode()
    return f"port-{hashlib.sha256(content).hexdigest()[:16]}.o"


def find(directory: Path) -> Path | None:
    """An object that is already built from exactly this source: beside the source or in `directory`."""
    for place in (SOURCE.parent, directory):
        candidate = place / object_name()
        if candidate.is_file():
            return candidate
    return None


def build(directory: Path) -> Path:
    """The object's path, compiled now unless it exists. Goes to `directory` when the source folder is read-only."""
    found = find(directory)
    if found is not None:
        return found
    place = SOURCE.parent if os.access(SOURCE.parent, os.W_OK) else directory
    target = compile_to(place)
    for stale in place.glob("port-*.o"):
        if stale != target:
            stale.unlink(missing_ok=True)
    return target


def compile_to(directory: Path) -> Path:
    """Compile into `directory`. KernelError with clang's words when it fails or is absent."""
    target = directory / object_name()
    with replacing(target) as unfinished:
        command = ["clang", *flags(), "-c", str(SOURCE), "-o", str(unfinished)]
        try:
            done = tools.run(command)
        except FileNotFoundError as error:
            raise KernelError("port program", "clang", "not found on PATH; run ./setup.sh") from error
        if done.returncode != 0:
            raise KernelError("port program", "clang", done.stderr.strip())
    return target


if __name__ == "__main__":
    print(build(SOURCE.parent))
