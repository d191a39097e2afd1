"""What a run says of where it comes from."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from testbed.run import provenance


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_the_checkout_is_looked_at_and_not_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def git(*words: str) -> str:
        settings = ("-c", "user.name=n", "-c", "user.email=n@example.org")
        return subprocess.run(
            ["git", *settings, *words], cwd=tmp_path, capture_output=True, text=True, check=True
        ).stdout.strip()

    file, index = tmp_path / "file", tmp_path / ".git" / "index"
    file.write_text("words")
    git("init", "--quiet")
    git("add", "file")
    git("commit", "--quiet", "-m", "one")
    os.utime(file, (1, 1))  # the same words at another time: git would note that in its index
    before = index.stat().st_ino, index.stat().st_mtime_ns
    monkeypatch.setattr(provenance, "ROOT", tmp_path)
    assert provenance.git() == {"commit": git("rev-parse", "HEAD"), "dirty": False}
    assert (index.stat().st_ino, index.stat().st_mtime_ns) == before
    file.write_text("other words")
    assert provenance.git()["dirty"] is True
