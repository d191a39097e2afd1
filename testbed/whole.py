"""A file appears as a whole or not at all, whoever else writes the same one at the same moment."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A name beside `path` for what is to take its place at the end of the block; when that raises, `path` stays as it was.

    No two writers are given the same name. A process id would not do: containers that share a tree count their own, from 1.
    """
    part = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        yield part
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
