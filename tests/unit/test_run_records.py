"""Raw record files: what is written is read, and a file cut off anywhere still gives every complete record."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.run.records import RecordWriter, header, read

FIELDS = [("t_ns", "<i8"), ("port", "<u2"), ("share", "<f8"), ("who", "|u1")]
ROWS = [(1, 2, 0.5, 3), (2**40, 65535, -1.0, 255)]


def write(folder: Path) -> Path:
    writer = RecordWriter(folder, "things", FIELDS)
    writer.write(ROWS)
    writer.close()
    return folder / "things.rec"


def test_round_trip(tmp_path: Path) -> None:
    rows = read(write(tmp_path))
    assert rows is not None
    assert [tuple(row) for row in rows.tolist()] == ROWS


def test_each_write_reaches_the_file_at_once(tmp_path: Path) -> None:
    writer = RecordWriter(tmp_path, "things", FIELDS)
    writer.write(ROWS[:1])
    rows = read(tmp_path / "things.rec")
    assert rows is not None
    assert len(rows) == 1
    writer.close()


@pytest.mark.parametrize("cut", range(1, 20))  # a record is 19 bytes
def test_h23_a_half_written_record_is_left_out(tmp_path: Path, cut: int) -> None:
    path = write(tmp_path)
    path.write_bytes(path.read_bytes()[:-cut])
    rows = read(path)
    assert rows is not None
    assert len(rows) == 1


def test_a_file_without_a_complete_header_holds_nothing(tmp_path: Path) -> None:
    path = tmp_path / "things.rec"
    assert read(path) is None
    path.write_bytes(b"")
    assert read(path) is None
    path.write_bytes(header("things", FIELDS)[:-1])
    assert read(path) is None
    path.write_bytes(header("things", FIELDS))
    rows = read(path)
    assert rows is not None
    assert len(rows) == 0
