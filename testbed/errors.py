"""The one error tree. Each class knows the exit status that DESIGN 4.1 gives it.

Messages are written for the person at the terminal: what is wrong, where, and what to do about it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class ExitStatus(IntEnum):
    """Exit statuses of `run_experiment.py`; `PRECEDENCE` says which one wins when several apply."""

    PASSED = 0
    EXPECTATION_FAILED = 1
    BAD_INPUT = 2
    MISSING_CAPABILITY = 3
    INVALID = 4
    BROKEN = 5
    INTERRUPTED = 130


PRECEDENCE: tuple[ExitStatus, ...] = (
    ExitStatus.INTERRUPTED,
    ExitStatus.BAD_INPUT,
    ExitStatus.MISSING_CAPABILITY,
    ExitStatus.BROKEN,
    ExitStatus.INVALID,
    ExitStatus.EXPECTATION_FAILED,
    ExitStatus.PASSED,
)


class TestbedError(Exception):
    """Root of every error this project raises on purpose."""

    exit_status: ExitStatus = ExitStatus.BROKEN
    __test__ = False  # not a pytest class, whatever its name says


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong in a scenario: `file:line: key.path: what (hint)`. `line` counts from 1; 0 means no line."""

    file: str
    line: int
    path: str
    message: str
    hint: str = ""

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        key = f" {_plain(self.path)}:" if self.path else ""
        hint = f" ({self.hint})" if self.hint else ""
        return f"{place}:{key} {self.message}{hint}"


def _plain(path: str) -> str:
    """A key path for a terminal: a key may hold anything."""
    printable = path if path.isprintable() else path.encode("unicode_escape").decode()
    return f"{printable[:PATH_MAX]}..." if len(printable) > PATH_MAX else printable


PATH_MAX = 120
PROBLEMS_MAX = 50  # nobody reads more at once, and a hostile file must not make millions


class ScenarioError(TestbedError):
    """The scenario or the command line is wrong. Carries every problem found, up to PROBLEMS_MAX, not only the first."""

    exit_status = ExitStatus.BAD_INPUT

    def __init__(self, problems: list[Problem]) -> None:
        self.problems = problems[:PROBLEMS_MAX]
        lines = [str(problem) for problem in self.problems]
        if len(problems) > PROBLEMS_MAX:
            lines.append(f"... and more: these are the first {PROBLEMS_MAX} problems")
        super().__init__("\n".join(lines))


@dataclass(frozen=True, slots=True)
class Missing:
    """One thing this machine lacks, the scenario keys that need it, and how to get it."""

    what: str
    needed_by: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.what}: needed by {self.needed_by}; {self.remedy}"


class MissingCapability(TestbedError):
    """This machine lacks something the scenario needs; nothing was created."""

    exit_status = ExitStatus.MISSING_CAPABILITY

    def __init__(self, missing: list[Missing]) -> None:
        super().__init__("\n".join(str(item) for item in missing))
        self.missing = missing


class KernelError(TestbedError):
    """A kernel call failed, or what was read back is not what was written."""

    def __init__(self, node: str, operation: str, message: str) -> None:
        super().__init__(f"{node}: {operation}: {message}")
        self.node = node
        self.operation = operation


class RunError(TestbedError):
    """The run broke: a process died unplanned, a fault could not be applied, a host did not answer."""
