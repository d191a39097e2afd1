"""Old results go: whole folders of single runs, and the runs and logs within a suite's folder, whose summaries stay.

Only what this project wrote is deleted: folders that carry its own record of themselves, and in them files of the names it
gives. Anything else in such a folder stays, with the folder. Links are never followed, and what `latest` points at is kept.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

STAMP = r"[0-9]{8}T[0-9]{6}Z"
RUN = re.compile(rf"{STAMP}-s[0-9]+(-[0-9]+)?")
SUITE = re.compile(rf"{STAMP}(-[0-9]+)?")
TABLES = "packets|messages|steps|events|samples|ports|cpu|trace"
WRITTEN = re.compile(  # below a run's folder
    rf"(manifest|summary|connections)\.json|scenario\.yaml|report\.html|({TABLES})\.parquet"
    r"|logs/(frr/)?[^/]+\.(log|conf|json)|figures/[^/]+\.(png|svg|csv)|raw/.+|captures/[^/]+\.pcap"
)
OF_SUITE = re.compile(r"logs/[^/]+\.log|runs/[^/]+/(member|unchanged)\.yaml")  # and the runs below runs/<member>/<scenario>/
DAY_S = 86400.0


@dataclass(frozen=True, slots=True)
class Kept:
    """One folder of ours: when it was made, what may go of it and how large that is."""

    path: Path
    age_s: float
    files: tuple[Path, ...]
    size: int


def prune(
    names: Iterable[Path], days: float | None, size: int | None, *, now: float | None = None, dry: bool = False
) -> list[Kept]:
    """Delete what is older than `days`, then the oldest until at most `size` bytes are left; None: no such limit.

    `names`: folders that hold one folder per time, `results/<scenario or suite>`. Returns what was deleted, oldest first; with
    `dry` what would be.
    """
    at = time.time() if now is None else now
    found = sorted((one for name in names for one in _ours(name, at)), key=lambda one: -one.age_s)
    total = sum(one.size for one in found)
    gone = []
    for one in found:
        if (days is not None and one.age_s > days * DAY_S) or (size is not None and total > size):
            gone.append(one)
            total -= one.size
    if not dry:
        for one in gone:
            _delete(one)
    return gone


def prune_logs(folder: Path, pattern: str, keep: int) -> None:
    """Of the files named like `pattern` the newest `keep` stay; their names sort by time."""
    for file in sorted(folder.glob(pattern))[:-keep]:
        file.unlink()


def _ours(name: Path, now: float) -> Iterator[Kept]:
    latest = name / "latest"
    newest = latest.resolve() if latest.is_symlink() else None
    for folder in directories(name):
        files = tuple(_written(folder)) if folder.resolve() != newest else ()
        if files:
            yield Kept(folder, now - _made(folder), files, sum(file.lstat().st_size for file in files))


def directories(path: Path) -> list[Path]:
    """Those in `path`, links left out."""
    return sorted(one for one in path.iterdir() if one.is_dir() and not one.is_symlink()) if path.is_dir() else []


def _made(folder: Path) -> float:
    """When, by its name: a copy or a restored backup is as old as what it holds."""
    return datetime.strptime(folder.name[:16], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC).timestamp()


def _written(folder: Path) -> Iterator[Path]:
    """The files of a folder that may go."""
    if _is_run(folder):
        yield from _matching(folder, WRITTEN)
    elif _is_suite(folder):
        yield from _matching(folder, OF_SUITE)
        for run in folder.glob("runs/*/*/*"):
            if not run.is_symlink() and _is_run(run):
                yield from _matching(run, WRITTEN)


def _is_run(folder: Path) -> bool:
    return bool(RUN.fullmatch(folder.name)) and _record(folder / "manifest.json").get("run_id") == folder.name


def _is_suite(folder: Path) -> bool:
    return bool(SUITE.fullmatch(folder.name)) and "sha256" in _record(folder / "suite.json")


def _record(file: Path) -> dict[str, object]:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) and found.get("schema") == 1 else {}


def _matching(folder: Path, names: re.Pattern[str]) -> Iterator[Path]:
    for directory, below, files in os.walk(folder):
        below.sort()
        for name in files:
            file = Path(directory) / name
            if names.fullmatch(file.relative_to(folder).as_posix()) and not file.is_symlink():
                yield file


def _delete(one: Kept) -> None:
    """The record of what the folder is goes last: a deletion that was cut off can go on."""
    for file in sorted(one.files, key=lambda file: file.name == "manifest.json"):
        file.unlink(missing_ok=True)
    _empty(one.path)


def _empty(path: Path) -> None:
    """Directories without a file in them, and the links to runs that are gone."""
    for directory, below, files in os.walk(path, topdown=False):
        for name in (*below, *files):
            link = Path(directory) / name
            if name == "latest" and link.is_symlink() and not link.exists():
                link.unlink()
        if not os.listdir(directory):  # noqa: PTH208 - os.walk gives text
            os.rmdir(directory)  # noqa: PTH106


def describe(gone: Sequence[Kept], *, dry: bool) -> list[str]:
    """A line per folder."""
    word = "would delete" if dry else "deleted"
    return [f"{word} {one.path}: {one.size / 2**20:.1f} MiB, {one.age_s / DAY_S:.1f} days old" for one in gone]
