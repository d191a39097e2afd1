"""The transport, compiled: the same Python files through mypyc, kept outside the source tree, used only while they match.

`python -m testbed.host.compiled` builds them (half a minute, at set-up). A host looks for a build whose fingerprint is that of
the sources it would import; after any edit there is none, and the sources themselves run, about two and a half times slower.
The environment variable MRC_PURE_PYTHON, when not empty, asks for the sources too. Plain os.path: pathlib alone would be a
tenth of a host's start-up.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from zlib import adler32, crc32

import testbed.transport

SOURCES = os.path.dirname(os.path.abspath(testbed.transport.__file__ or ""))  # noqa: PTH100, PTH120
BUILDS = os.path.join(os.path.dirname(os.path.dirname(SOURCES)), ".venv", "compiled")  # noqa: PTH118, PTH120
PURE = "MRC_PURE_PYTHON"
KEPT = 8  # builds; several work trees may share one virtual environment, and a bisection goes back and forth
# Not compiled: package files, and headers.py, whose frozen dataclasses with class variables mypyc does not take.
LEFT_OUT = ("__init__.py", "headers.py")


def sources(folder: str) -> Iterator[str]:
    """Every Python file below `folder`, in an order that does not change."""
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        if entry.is_dir() and entry.name != "__pycache__":
            yield from sources(entry.path)
        elif entry.name.endswith(".py"):
            yield entry.path


def fingerprint(folder: str = SOURCES) -> str:
    """Changes with any source file and with the interpreter. A checksum will do against edits; hashlib loads OpenSSL, 3 MB."""
    crc, adler, length = 0, 1, 0
    for source in sources(folder):
        with open(source, "rb") as file:  # noqa: PTH123
            text = f"\0{source[len(folder) :]}\0".encode() + file.read()
        crc, adler, length = crc32(text, crc), adler32(text, adler), length + len(text)
    return f"{sys.implementation.cache_tag}-{length:x}-{crc:08x}{adler:08x}"


def build_for(mark: str) -> str:
    """Where the build with this fingerprint is, or would be."""
    return os.path.join(BUILDS, mark)  # noqa: PTH118


def use(environment: Mapping[str, str]) -> bool:
    """Import the transport from a matching build from now on; False when there is none. Call before it is imported."""
    if environment.get(PURE):
        return False
    build = build_for(fingerprint())
    if not os.path.isdir(build):  # noqa: PTH112
        return False
    testbed.transport.__path__.insert(0, f"{build}/testbed/transport")
    sys.path.append(build)  # the modules share one library, which lies at the build's top
    return True


def main() -> int:
    """Build for the present sources, unless that has been done; the oldest builds are removed. Returns mypyc's exit status."""
    import shutil
    import subprocess
    import tempfile
    from pathlib import Path

    target = Path(build_for(fingerprint()))
    if target.is_dir():
        return 0
    with tempfile.TemporaryDirectory() as scratch:
        work = Path(scratch)
        copy = work / "testbed" / "transport"
        shutil.copytree(SOURCES, copy, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(Path(SOURCES).parent / "__init__.py", copy.parent)
        modules = [str(path.relative_to(work)) for path in sorted(copy.rglob("*.py")) if path.name not in LEFT_OUT]
        command = [sys.executable, "-m", "mypyc", *modules]
        environment = os.environ | {"MYPYC_OPT_LEVEL": "2"}
        done = subprocess.run(command, cwd=work, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.stderr.write(done.stdout + done.stderr)
            return done.returncode
        for left in ("build", ".mypy_cache"):
            shutil.rmtree(work / left, ignore_errors=True)
        # Copied beside its place and renamed, so that a host never finds half a build. Two may build at once.
        Path(BUILDS).mkdir(parents=True, exist_ok=True)
        half = Path(tempfile.mkdtemp(prefix=f"{target.name}.", dir=BUILDS))
        shutil.copytree(work, half, dirs_exist_ok=True)
        half.chmod(0o755)
        try:
            half.rename(target)
        except OSError:
            shutil.rmtree(half)
            if not target.is_dir():
                raise
    builds = sorted(Path(BUILDS).iterdir(), key=lambda build: build.stat().st_mtime)
    for old in builds[:-KEPT]:
        shutil.rmtree(old, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
