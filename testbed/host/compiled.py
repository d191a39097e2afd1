"""The transport, compiled: the same Python files through mypyc, kept outside the source tree, used only while they match.

`python -m testbed.host.compiled` builds them (half a minute, at set-up). A host looks for a build whose fingerprint is that of
the sources it would import; after any edit there is none, and the sources themselves run, about two and a half times slower.
The environment variable MRC_PURE_PYTHON, when not empty, asks for the sources too.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import testbed.transport

ROOT = Path(__file__).resolve().parent.parent.parent
SOURCES = ROOT / "testbed" / "transport"
BUILDS = ROOT / ".venv" / "compiled"
PURE = "MRC_PURE_PYTHON"
# Not compiled: package files, and headers.py, whose frozen dataclasses with class variables mypyc does not take.
LEFT_OUT = ("__init__.py", "headers.py")


def fingerprint() -> str:
    """Changes with any source file and with the interpreter."""
    digest = hashlib.sha256(f"{sys.implementation.cache_tag}".encode())
    for source in sorted(SOURCES.rglob("*.py")):
        digest.update(f"\0{source.relative_to(SOURCES)}\0".encode())
        digest.update(source.read_bytes())
    return digest.hexdigest()[:24]


def use(environment: dict[str, str] | os._Environ[str]) -> bool:
    """Import the transport from a matching build from now on; False when there is none. Call before it is imported."""
    if environment.get(PURE):
        return False
    build = BUILDS / fingerprint()
    if not build.is_dir():
        return False
    testbed.transport.__path__.insert(0, str(build / "testbed" / "transport"))
    sys.path.append(str(build))  # the modules share one library, which lies at the build's top
    return True


def main() -> int:
    """Build for the present sources, unless that has been done; older builds are removed. Returns mypyc's exit status."""
    target = BUILDS / fingerprint()
    if target.is_dir():
        return 0
    with tempfile.TemporaryDirectory() as scratch:
        work = Path(scratch)
        copy = work / "testbed" / "transport"
        shutil.copytree(SOURCES, copy, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(SOURCES.parent / "__init__.py", copy.parent)
        modules = [str(path.relative_to(work)) for path in sorted(copy.rglob("*.py")) if path.name not in LEFT_OUT]
        command = [sys.executable, "-m", "mypyc", *modules]
        # The cache of type checks is of no use for a build that is made once.
        done = subprocess.run(
            command, cwd=work, env=os.environ | {"MYPYC_OPT_LEVEL": "2"}, capture_output=True, text=True, check=False
        )
        if done.returncode:
            sys.stderr.write(done.stdout + done.stderr)
            return done.returncode
        shutil.rmtree(work / "build", ignore_errors=True)
        shutil.rmtree(work / ".mypy_cache", ignore_errors=True)
        shutil.rmtree(BUILDS, ignore_errors=True)
        shutil.copytree(work, target)
    return 0


if __name__ == "__main__":
    sys.exit(main())
