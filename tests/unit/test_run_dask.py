"""Which workers are refused, and what a worker may send. The engine with real workers is under tests/fabric."""

from __future__ import annotations

from typing import Any

import pytest

from testbed.errors import RunError
from testbed.run import daskengine

HERE: dict[str, Any] = {"source": "abc", "versions": {"python": "3.11.2", "numpy": "2.4.6", "iproute2": "6.1"}}


@pytest.mark.parametrize(
    ("there", "said"),
    [
        ({"missing": [], **HERE}, []),
        ({"missing": [], **HERE, "source": "abd"}, ["w: the same source"]),
        (
            {"missing": [], **HERE, "versions": {"python": "3.12.1"}},
            ["w: python 3.11.2, it has 3.12.1", "w: numpy 2.4.6, it has none"],
        ),
        ({"missing": ["seg6local: needed by routing"], **HERE}, ["w: seg6local: needed by routing"]),
        ({"error": "No module named testbed"}, ["w: this project (No module named testbed)"]),
        (ModuleNotFoundError("testbed"), ["w: this project (ModuleNotFoundError: testbed)"]),
    ],
)
def test_a_worker_must_be_what_the_caller_is(there: Any, said: list[str]) -> None:
    assert [one.what for one in daskengine.differences("w", HERE, there)] == said


@pytest.mark.parametrize("name", ["../summary.json", "/etc/passwd", "figures/../../x"])
def test_a_worker_cannot_write_outside_its_runs_folder(name: str) -> None:
    with pytest.raises(RunError):
        daskengine._safe(name)
