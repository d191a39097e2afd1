"""Capabilities given up: really gone, for good, for children too; in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import os, sys
from testbed.host import privileges
for kept in ({first}, {then}):
    privileges.keep(*kept)
    os.system("grep -E 'Cap(Prm|Eff|Inh)' /proc/self/status")
try:
    print(open(sys.argv[1]).read())
except PermissionError:
    print("refused")
"""


def after(file: Path, first: tuple[int, ...], then: tuple[int, ...]) -> list[str]:
    """What a child of the process finds itself able to do after each, and what the process reads of another user's file."""
    program = PROGRAM.format(first=first, then=then)
    command = [sys.executable, "-c", program, str(file)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return [line.rpartition("\t")[2].lstrip("0") or "0" for line in done.stdout.splitlines()]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to have any")
def test_what_is_given_up_is_gone_and_what_is_kept_is_there(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("words")
    secret.chmod(0o400)
    os.chown(secret, 1234, 1234)
    none, read = ["0", "0", "0"], ["0", "4", "4"]  # inheritable, permitted, effective; CAP_DAC_READ_SEARCH is bit 2
    assert after(secret, (2,), ()) == [*read, *none, "refused"]
    assert after(secret, (), (2,)) == [*none, *none, "refused"], "nothing comes back"
    assert after(secret, (2, 13), (2,)) == ["0", "2004", "2004", *read, "words"]
