"""A results folder: `<out>/<name>/<UTC time>-s<seed>/`, its manifest, the `latest` link and who owns the files."""

from __future__ import annotations

import errno
import json
import os
import shutil
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from testbed.errors import Problem, RunError, ScenarioError

SCHEMA = 1
ROOM_BYTES = 1 << 20
FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO})
Manifest = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ResultsFolder:
    """The paths of one run. `raw` and `live` (the runner's own raw records) go once the tables are complete."""

    path: Path
    made: tuple[Path, ...] = ()  # directories above it that were made for it

    @property
    def run_id(self) -> str:
        return self.path.name

    @property
    def raw(self) -> Path:
        return self.path / "raw"

    @property
    def live(self) -> Path:
        return self.raw / "run"

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    @property
    def room(self) -> Path:
        """Blocks that the run's last words may have when the disk is full."""
        return self.raw / ".room"

    def free_room(self) -> None:
        self.room.unlink(missing_ok=True)

    @property
    def outcome(self) -> Path:
        """What the part of the run inside the sandbox reports to the part outside."""
        return self.live / "outcome.json"

    def write_manifest(self, manifest: Manifest) -> None:
        write_atomically(self.path / "manifest.json", json.dumps(manifest, indent=2) + "\n")

    def read_manifest(self) -> Manifest:
        manifest: Manifest = json.loads((self.path / "manifest.json").read_text())
        return manifest

    def discard(self) -> None:
        """Nothing happened: the folder goes, with the link to it and the directories that were made for it."""
        shutil.rmtree(self.path, ignore_errors=True)
        latest = self.path.parent / "latest"
        if latest.is_symlink() and latest.readlink() == Path(self.run_id):
            latest.unlink()
        _remove_empty(self.made)

    def drop_raw(self) -> None:
        shutil.rmtree(self.raw, ignore_errors=True)


def create(out: Path, name: str, seed: int, now: datetime | None = None) -> ResultsFolder:
    """Make the folder and point `latest` at it. ScenarioError when the place cannot be written, RunError when it is full."""
    stamp = (now or datetime.now(UTC)).strftime("%Y%m%dT%H%M%SZ")
    parent = out.absolute() / name
    made = _missing_parents(parent)
    folder: ResultsFolder | None = None
    try:
        parent.mkdir(parents=True, exist_ok=True)
        folder = ResultsFolder(_new_directory(parent, f"{stamp}-s{seed}"), made)
        folder.live.mkdir(parents=True)
        folder.logs.mkdir()
        _reserve(folder.room)
        point_latest(folder.path)
    except OSError as error:
        if folder is not None:
            folder.discard()
        _remove_empty(made)
        raise refused(parent, error) from error
    return folder


def create_batch(out: Path, name: str, now: datetime | None = None) -> Path:
    """The folder of a suite or a sweep, `<out>/<name>/<UTC time>`, with `latest` pointing at it. Errors as `create`."""
    stamp = (now or datetime.now(UTC)).strftime("%Y%m%dT%H%M%SZ")
    parent = out.absolute() / name
    try:
        parent.mkdir(parents=True, exist_ok=True)
        path = _new_directory(parent, stamp)
        point_latest(path)
    except OSError as error:
        raise refused(parent, error) from error
    return path


def write_scenario(folder: Path, text: str, policy_file: str = "", policy_text: str = "", name: str = "scenario.yaml") -> None:
    """A resolved scenario, and beside it the policy it names, so that the folder's scenario can be run again."""
    (folder / name).write_text(text)
    if policy_file:
        copy = folder / policy_file
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(policy_text)


def refused(place: Path, error: OSError) -> ScenarioError | RunError:
    """The error to raise for an `OSError` while a results folder is made: a full disk is the run's trouble, a bad place the
    caller's.
    """
    if error.errno in FULL:
        return RunError(f"{place}: cannot write results: {error.strerror}")
    return ScenarioError([Problem("--out", 0, "", f"cannot write results to {place}: {error.strerror}")])


def broken(folder: ResultsFolder, error: OSError) -> RunError:
    """The error to raise for an `OSError` on a folder that could be written when the run began."""
    if error.errno == errno.ENOENT:
        lost = next((path for path in (folder.path, folder.raw, folder.live) if not path.exists()), Path(str(error.filename)))
        return RunError(f"{lost}: was deleted during the run")
    return RunError(f"{folder.path}: cannot write results: {error.strerror}")


def write_atomically(path: Path, text: str) -> None:
    """Replace a file as a whole or not at all."""
    temporary = path.with_name(f".{path.name}.new")
    try:
        with temporary.open("w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def give_to_caller(folder: ResultsFolder) -> None:
    """Through sudo, everything made belongs to the user who typed it."""
    if os.geteuid() != 0 or "SUDO_UID" not in os.environ:
        return
    uid, gid = int(os.environ["SUDO_UID"]), int(os.environ.get("SUDO_GID", "-1"))
    for parent in folder.made:
        os.chown(parent, uid, gid)
    _give(folder.path, uid, gid)


def give_batch_to_caller(path: Path) -> None:
    """As `give_to_caller`, for the folder of a suite and the one that holds it."""
    if os.geteuid() == 0 and "SUDO_UID" in os.environ:
        uid, gid = int(os.environ["SUDO_UID"]), int(os.environ.get("SUDO_GID", "-1"))
        os.chown(path.parent, uid, gid)
        _give(path, uid, gid)


def _give(path: Path, uid: int, gid: int) -> None:
    os.chown(path.parent / "latest", uid, gid, follow_symlinks=False)
    for directory, _, files in os.walk(path):
        os.chown(directory, uid, gid)
        for name in files:
            os.chown(Path(directory) / name, uid, gid, follow_symlinks=False)


def _remove_empty(directories: tuple[Path, ...]) -> None:
    for directory in directories:
        if directory.is_dir() and not any(directory.iterdir()):
            directory.rmdir()


def _missing_parents(path: Path) -> tuple[Path, ...]:
    """The directories that `mkdir -p path` would make, deepest first."""
    return tuple(directory for directory in (path, *path.parents) if not directory.exists())


def _new_directory(parent: Path, name: str) -> Path:
    """Two runs of one scenario and seed may start in one second: the second one gets `-2`."""
    for attempt in range(1, 100):
        path = parent / (name if attempt == 1 else f"{name}-{attempt}")
        try:
            path.mkdir()
        except FileExistsError:
            continue
        return path
    raise FileExistsError(errno.EEXIST, "a hundred runs in one second", str(parent / name))


def _reserve(room: Path) -> None:
    """A disk without room for a few blocks is refused before the fabric is built, not in mid-run; what is written then is
    kept until the run has ended, so that a full disk can still be told of.
    """
    with room.open("wb") as file:
        file.write(bytes(ROOM_BYTES))
        file.flush()
        os.fsync(file.fileno())


def point_latest(folder: Path) -> None:
    """`latest` beside a folder leads to it, from one moment to the next."""
    link = folder.parent / f".latest-{folder.name}"
    link.symlink_to(folder.name)
    link.replace(folder.parent / "latest")
