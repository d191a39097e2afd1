"""Files that appear as a whole: two writers at the same moment, even with one process id between them, lose nothing."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from analysis.judge import write_atomically
from testbed.fabric.bpf import build
from testbed.whole import replacing


def test_two_writers_of_one_file_do_not_meet(tmp_path: Path) -> None:
    target = tmp_path / "file"
    with replacing(target) as one:
        one.write_text("one")
        with replacing(target) as other:
            other.write_text("other")
        assert target.read_text() == "other"
    assert target.read_text() == "one"
    assert list(tmp_path.iterdir()) == [target]


def test_what_goes_wrong_leaves_the_old_file(tmp_path: Path) -> None:
    target = tmp_path / "file"
    write_atomically(target, "old")
    with pytest.raises(FileNotFoundError), replacing(target) as part:
        (part / "below").write_text("there is no such folder")
    with pytest.raises(FileNotFoundError), replacing(target):
        pass  # nothing was written
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_two_first_runs_that_share_a_tree_both_have_the_port_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second begins and ends while the first one's compiler runs; in containers both may have the same process id."""
    begun: list[Path] = []

    def clang(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        out = Path(command[command.index("-o") + 1])
        begun.append(out)
        if len(begun) == 1:
            assert build.compile_to(tmp_path).read_text() == begun[1].name
        out.write_text(out.name)
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", clang)
    made = build.compile_to(tmp_path)
    assert made.read_text() == begun[0].name
    assert list(tmp_path.iterdir()) == [made]
