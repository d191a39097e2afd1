"""Results folders: names, the `latest` link, refusals that leave nothing behind, whole-or-nothing files."""

from __future__ import annotations

import errno
import json
import os
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest

from testbed.errors import ExitStatus, RunError, ScenarioError
from testbed.run import results

NOON = datetime(2026, 5, 1, 12, 0, 0, tzinfo=UTC)


def test_name_and_latest(tmp_path: Path) -> None:
    folder = results.create(tmp_path, "quickstart", 7, NOON)
    assert folder.path == tmp_path / "quickstart" / "20260501T120000Z-s7"
    assert (tmp_path / "quickstart" / "latest").resolve() == folder.path
    assert folder.live.is_dir()
    assert folder.logs.is_dir()


def test_two_runs_in_one_second_do_not_meet(tmp_path: Path) -> None:
    first = results.create(tmp_path, "quickstart", 7, NOON)
    second = results.create(tmp_path, "quickstart", 7, NOON)
    assert second.run_id == f"{first.run_id}-2"
    assert (tmp_path / "quickstart" / "latest").resolve() == second.path


def test_a_place_that_is_a_file_is_the_callers_mistake(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ScenarioError, match=r"--out: cannot write results to .*: Not a directory") as caught:
        results.create(tmp_path / "file" / "deeper", "quickstart", 1)
    assert caught.value.exit_status is ExitStatus.BAD_INPUT


def test_a_full_disk_is_the_runs_trouble_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_path: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(results, "_reserve", full)
    with pytest.raises(RunError, match="No space left on device") as caught:
        results.create(tmp_path / "new" / "out", "quickstart", 1)
    assert caught.value.exit_status is ExitStatus.BROKEN
    assert list(tmp_path.iterdir()) == []


def test_refusal_leaves_what_was_there_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = results.create(tmp_path, "quickstart", 1, NOON)

    def full(_path: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(results, "_reserve", full)
    with pytest.raises(RunError):
        results.create(tmp_path, "quickstart", 2, NOON)
    assert sorted(path.name for path in (tmp_path / "quickstart").iterdir()) == [kept.run_id, "latest"]


def test_what_happens_to_a_folder_during_a_run_is_the_runs_trouble_and_named(tmp_path: Path) -> None:
    folder = results.create(tmp_path, "quickstart", 1)
    for lost in (folder.live, folder.raw, folder.path):
        shutil.rmtree(lost)
        with pytest.raises(FileNotFoundError) as caught:
            results.write_atomically(folder.outcome, "")
        error = results.broken(folder, caught.value)
        assert str(error) == f"{lost}: was deleted during the run"
        assert error.exit_status is ExitStatus.BROKEN
    for number, words in ((errno.ENOSPC, "No space left on device"), (errno.EROFS, "Read-only file system")):
        error = results.broken(folder, OSError(number, words))
        assert str(error) == f"{folder.path}: cannot write results: {words}"


def test_a_manifest_is_replaced_as_a_whole(tmp_path: Path) -> None:
    folder = results.create(tmp_path, "quickstart", 1)
    folder.write_manifest({"status": "running"})
    with pytest.raises(TypeError):
        folder.write_manifest({"status": object()})
    assert folder.read_manifest() == {"status": "running"}
    assert json.loads((folder.path / "manifest.json").read_text())["status"] == "running"
    assert [path.name for path in folder.path.glob(".*")] == []


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give files away")
def test_through_sudo_everything_made_belongs_to_the_caller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUDO_UID", "1234")
    monkeypatch.setenv("SUDO_GID", "1235")
    folder = results.create(tmp_path / "new" / "out", "quickstart", 1)
    (folder.logs / "h0.log").write_text("")
    results.give_to_caller(folder)
    made = [tmp_path / "new", *(tmp_path / "new").rglob("*")]
    assert {(path.lstat().st_uid, path.lstat().st_gid) for path in made} == {(1234, 1235)}
    assert tmp_path.stat().st_uid == 0
