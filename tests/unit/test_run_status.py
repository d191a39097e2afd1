"""Which exit status wins, and its word in summary.json."""

from __future__ import annotations

import itertools

import pytest

from testbed.errors import PRECEDENCE, ExitStatus
from testbed.run.status import WORDS, combine, of_word


def test_precedence_is_the_contract() -> None:
    assert [int(status) for status in PRECEDENCE] == [130, 2, 3, 5, 4, 1, 0]


@pytest.mark.parametrize(("one", "other"), list(itertools.combinations(PRECEDENCE, 2)))
def test_the_higher_in_the_list_wins_whatever_the_order(one: ExitStatus, other: ExitStatus) -> None:
    assert combine([one, other]) is one
    assert combine([other, one]) is one


def test_no_run_is_a_pass() -> None:
    assert combine([]) is ExitStatus.PASSED


def test_words_lead_back_to_their_status() -> None:
    assert set(WORDS.values()) == {"passed", "failed", "invalid", "error", "interrupted"}
    assert all(of_word(word) is status for status, word in WORDS.items())
    with pytest.raises(KeyError):
        of_word("fine")
