"""Which exit status and which status word a run ends with (DESIGN 4.1 and 4.4)."""

from __future__ import annotations

from collections.abc import Iterable

from testbed.errors import PRECEDENCE, ExitStatus

WORDS: dict[ExitStatus, str] = {
    ExitStatus.PASSED: "passed",
    ExitStatus.EXPECTATION_FAILED: "failed",
    ExitStatus.INVALID: "invalid",
    ExitStatus.BROKEN: "error",
    ExitStatus.INTERRUPTED: "interrupted",
}


def combine(statuses: Iterable[ExitStatus]) -> ExitStatus:
    """The one that wins; PASSED when there is none."""
    return min(statuses, key=PRECEDENCE.index, default=ExitStatus.PASSED)


def of_word(word: str) -> ExitStatus:
    """The exit status of a summary's status word. KeyError for a word that is not in the contract."""
    return {text: status for status, text in WORDS.items()}[word]
