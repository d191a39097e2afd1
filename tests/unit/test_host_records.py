"""Raw record files: form, truncated tails, a full disk."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from testbed.host.records import FLUSH_BYTES, TABLES, RecordFiles, RecordsError, Table
from tests.support.host_plans import read_records


def test_the_header_describes_the_records(tmp_path: Path) -> None:
    RecordFiles(str(tmp_path), trace=True).close()
    Table(str(tmp_path), "connections").close()  # of a host whose flows are the kernel's
    for name, fields in TABLES.items():
        first, _, rest = (tmp_path / f"{name}.rec").read_bytes().partition(b"\n")
        assert json.loads(first) == {"table": name, "fields": [list(field) for field in fields]}
        assert rest == b""


def test_numpy_reads_what_was_written(tmp_path: Path) -> None:
    table = Table(str(tmp_path), "packets")
    table.row(1 << 62, -5, 2**32 - 1, 0xFFFFFF, 7 << 16, 4096, True, 3, 5, 0)
    table.row(2, 3, 4, 5, 6, 7, 0, 1, 0, 1)
    table.close()
    rows = read_records(Path(table.path))
    assert rows[0].tolist() == (1 << 62, -5, 2**32 - 1, 0xFFFFFF, 7 << 16, 4096, 1, 3, 5, 0)
    assert rows[1].tolist() == (2, 3, 4, 5, 6, 7, 0, 1, 0, 1)


@pytest.mark.parametrize("name", sorted(TABLES))
def test_rows_reach_the_file_when_the_buffer_is_full(tmp_path: Path, name: str) -> None:
    table = Table(str(tmp_path), name)
    size = np.dtype([tuple(field) for field in TABLES[name]]).itemsize
    values = (1,) * len(TABLES[name])
    whole = FLUSH_BYTES // size
    for _ in range(whole - 1):
        table.row(*values)
    assert len(read_records(Path(table.path))) == 0
    table.row(*values)
    assert len(read_records(Path(table.path))) == whole
    table.row(*values)
    table.flush()
    table.flush()
    assert len(read_records(Path(table.path))) == whole + 1


def test_the_last_row_is_readable_before_and_after_a_flush(tmp_path: Path) -> None:
    table = Table(str(tmp_path), "loop")
    table.row(1, 2, 3, 4, 5, 6)
    table.row(7, 8, 9, 10, 11, 12)
    assert table.last() == (7, 8, 9, 10, 11, 12)
    table.flush()
    assert table.last() == (7, 8, 9, 10, 11, 12)


def test_h23_a_record_cut_short_is_ignored(tmp_path: Path) -> None:
    table = Table(str(tmp_path), "received")
    for psn in range(10):
        table.row(psn, 1, psn, 0, 4096, 0, 0)
    table.close()
    whole = Path(table.path).read_bytes()
    for cut in range(1, 26):
        Path(table.path).write_bytes(whole[:-cut])
        assert read_records(Path(table.path))["psn"].tolist() == list(range(9))


def test_a_full_disk_says_so(tmp_path: Path) -> None:
    (tmp_path / "packets.rec").symlink_to("/dev/full")
    with pytest.raises(RecordsError, match="no space left for the records of this run"):
        Table(str(tmp_path), "packets")


def test_a_directory_that_cannot_be_made_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RecordsError, match="cannot create"):
        RecordFiles(str(tmp_path / "file" / "records"))
