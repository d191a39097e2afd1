"""The sandbox fixture: run a test's body in its own namespaces and bring its failure back."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable

import pytest

from testbed.fabric.sandbox import run_in_sandbox
from tests.support.machine import Certain, undisturbed

Sandbox = Callable[[Callable[[], None]], None]
SKIPPED, ASSERTED = 77, 78  # no exit statuses of ours


@pytest.fixture
def sandbox() -> Sandbox:
    """Call it with the body. A failed assertion inside fails the test with its own traceback; anything else is `Certain`."""
    if os.geteuid() != 0:
        pytest.skip("needs root")

    def run(body: Callable[[], None]) -> None:
        read_end, write_end = os.pipe()

        def main() -> int:
            try:
                body()
            except pytest.skip.Exception as reason:
                os.write(write_end, str(reason).encode())
                return SKIPPED
            except BaseException as trouble:  # noqa: BLE001 - whatever it was, it goes to the parent
                os.write(write_end, traceback.format_exc()[-60_000:].encode())
                return ASSERTED if isinstance(trouble, (AssertionError, pytest.fail.Exception)) else 1
            return 0

        try:
            status = run_in_sandbox(main)
        finally:
            os.close(write_end)
        with os.fdopen(read_end, "rb") as report:
            text = report.read().decode()
        if status == SKIPPED:
            pytest.skip(text)
        if status == ASSERTED:
            pytest.fail(text, pytrace=False)
        if status != 0:
            raise Certain(text or f"the sandbox ended with status {status}")

    return run


@pytest.fixture
def steady(sandbox: Sandbox) -> Sandbox:
    """The same for what only an evenly running machine can show: a failed assertion counts when no processor was held up."""
    return lambda body: undisturbed(lambda: sandbox(body))
