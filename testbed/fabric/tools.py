"""Run one of the system's tools and wait for it. One that was killed says nothing about this kernel, and is told apart."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Sequence

from testbed.errors import RunError


def run(argv: Sequence[str], text: str | None = None) -> subprocess.CompletedProcess[str]:
    """What the tool printed and its status, `text` being its standard input. RunError when a signal ended it."""
    done = subprocess.run(argv, input=text, capture_output=True, text=True, check=False)
    if done.returncode < 0:
        raise RunError(f"{argv[0]} was killed ({signal.Signals(-done.returncode).name})")
    return done
