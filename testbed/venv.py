"""Find the project's own Python. Standard library only, and syntax any Python 3 can read: it runs before anything else."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NEEDED = ("yaml", "numpy", "pandas", "pyarrow", "pyroute2", "mininet")
MISSING_CAPABILITY = 3  # errors.ExitStatus, which an older Python could not import


def enter(arguments: list[str]) -> None:
    """Go on inside `.venv`, by replacing this process when another Python runs it.

    `arguments` is what follows the interpreter, for example `[script, *sys.argv[1:]]`. Without a `.venv`, a Python that
    has every package is as good (a container, a distribution's packages); otherwise the process exits with status 3.
    """
    home = ROOT / ".venv"
    python = home / "bin" / "python"
    if Path(sys.prefix).resolve() == home.resolve():
        return
    if python.exists():
        os.execv(str(python), [str(python), *arguments])  # noqa: S606 - no shell is the point
    absent = [name for name in NEEDED if find_spec(name) is None]
    if absent:
        sys.stderr.write(f"no {home} and this Python ({sys.executable}) lacks {', '.join(absent)}: run `make setup` first\n")
        sys.exit(MISSING_CAPABILITY)
    if sys.version_info < (3, 11):  # noqa: UP036 - this very line runs in whatever Python there is
        sys.stderr.write(f"Python 3.11 or newer is needed, this is {sys.version.split()[0]}: run `make setup` first\n")
        sys.exit(MISSING_CAPABILITY)
