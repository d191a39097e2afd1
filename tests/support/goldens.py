"""Comparing text with a file under version control: unified diff on mismatch.

`REGENERATE_GOLDEN=1 pytest tests/unit` writes the files instead; read the diff before committing it.
"""

from __future__ import annotations

import difflib
import os
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent.parent


def check(actual: str, file: Path) -> None:
    """Fail with a diff when `actual` is not what `file` holds."""
    if os.environ.get("REGENERATE_GOLDEN") == "1":
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(actual)
        return
    expected = file.read_text() if file.exists() else ""
    if actual != expected:
        name = str(file.relative_to(TESTS))
        diff = difflib.unified_diff(expected.splitlines(True), actual.splitlines(True), f"{name} (expected)", f"{name} (now)")
        pytest.fail("".join(diff) + "\nREGENERATE_GOLDEN=1 rewrites the file, if this is meant", pytrace=False)
