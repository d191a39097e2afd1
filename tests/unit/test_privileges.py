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
    privileges.{call}(*kept)
    status = dict(line.split(":") for line in open("/proc/self/status"))
    print(int(status["CapInh"], 16), int(status["CapPrm"], 16), int(status["CapEff"], 16), end=" ", flush=True)
    os.system("grep CapEff /proc/self/status")
    try:
        print(open(sys.argv[1]).read())
    except PermissionError:
        print("refused")
"""


def after(file: Path, first: tuple[int, ...], then: tuple[int, ...], call: str = "keep") -> list[str]:
    """After each of two calls: inheritable, permitted and effective capabilities, those of a child; and what `file` says."""
    program = PROGRAM.format(first=first, then=then, call=call)
    command = [sys.executable, "-c", program, str(file)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return [line.replace("CapEff:\t", "").replace("0000000000000", "") for line in done.stdout.splitlines()]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to have any")
def test_what_is_given_up_is_gone_and_what_is_kept_is_there(tmp_path: Path) -> None:
    """CAP_DAC_READ_SEARCH is bit 2. Of nobody's children the kernel keeps none."""
    others, roots = tmp_path / "others", tmp_path / "roots"
    for file in (others, roots):
        file.write_text("words")
        file.chmod(0o400)
    os.chown(others, 1234, 1234)
    assert after(others, (2,), ()) == ["0 4 4 004", "words", "0 0 0 000", "refused"]
    assert after(others, (), (2,)) == ["0 0 0 000", "refused"] * 2, "nothing comes back"
    assert after(roots, (), ()) == ["0 0 0 000", "words"] * 2, "what is root's own"
    assert after(roots, (2,), (), "become_nobody") == ["0 4 4 000", "words", "0 0 0 000", "refused"]
    assert after(others, (2,), (2,), "become_nobody") == ["0 4 4 000", "words"] * 2
    # Where it may not change its user, as in many containers, capabilities go all the same.
    limited = "keep(2); privileges.become_nobody"
    assert after(roots, (2,), (), limited) == ["0 4 4 004", "words", "0 0 0 000", "words"]
