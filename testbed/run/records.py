"""Raw record files: one JSON header line, then fixed-size little-endian records. Written as a run goes, read after it.

The format is what survives a kill: records are appended, nothing is ever rewritten, and a half-written last record is
left out when reading. Hosts write the same format; this module is the runner's side of it.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

Fields = Sequence[tuple[str, str]]  # (name, numpy type such as "<i8")
_STRUCT_CODES = {"i8": "q", "u8": "Q", "i4": "i", "u4": "I", "u2": "H", "u1": "B", "f8": "d"}


def header(table: str, fields: Fields) -> bytes:
    return json.dumps({"table": table, "fields": [list(item) for item in fields]}).encode() + b"\n"


class RecordWriter:
    """Appends to `<folder>/<table>.rec`. Each `write` is one system call, so a kill loses at most the rows not yet given."""

    def __init__(self, folder: Path, table: str, fields: Fields) -> None:
        self._record = struct.Struct("<" + "".join(_STRUCT_CODES[kind.lstrip("<|")] for _, kind in fields))
        self._file = (folder / f"{table}.rec").open("wb", buffering=0)
        self._file.write(header(table, fields))

    def write(self, rows: Sequence[tuple[Any, ...]]) -> None:
        """Append rows, each with its values in the order of the fields."""
        pack = self._record.pack
        self._write(b"".join(pack(*row) for row in rows))

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:  # an unbuffered file may take less than it is given
            view = view[self._file.write(view) or 0 :]

    def close(self) -> None:
        self._file.close()


def read(path: Path) -> npt.NDArray[np.void] | None:
    """Every complete record as a structured array; None when the file is absent or its header is not complete."""
    import numpy as np

    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    line, newline, body = data.partition(b"\n")
    if not newline:
        return None
    dtype = np.dtype([(name, kind) for name, kind in json.loads(line)["fields"]])
    return np.frombuffer(body, dtype=dtype, count=len(body) // dtype.itemsize)
