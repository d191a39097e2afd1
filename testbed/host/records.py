"""Raw record files: how a host writes what happened without slowing down. Reading them is the runner's business.

`<directory>/<table>.rec` is one JSON line `{"table": ..., "fields": [[name, numpy dtype], ...]}` and then packed
little-endian records of fixed size. A file may end in the middle of a record when the process was killed; a reader
ignores that tail. Rows gather in a preallocated buffer and reach the file at 64 KiB or when `flush` is called, which
the loop does twice a second: what a SIGKILL can lose is half a second, and nothing waits for a reader.
"""

from __future__ import annotations

import errno
import json
import os
import struct
from collections.abc import Callable

FLUSH_BYTES = 64 * 1024
FLUSH_NS = 500_000_000  # the contract says each second; half of it leaves room for a late loop

_CODES = {"<i8": "q", "<u4": "I", "<u2": "H", "u1": "B"}

TABLES: dict[str, tuple[tuple[str, str], ...]] = {
    "packets": (
        ("sent_ns", "<i8"),
        ("fate_ns", "<i8"),
        ("qp", "<u4"),
        ("psn", "<u4"),
        ("ev", "<u4"),
        ("bytes", "<u2"),
        ("retransmission", "u1"),
        ("fate", "u1"),
        ("reason", "u1"),
        ("marked", "u1"),
    ),
    "received": (
        ("placed_ns", "<i8"),
        ("qp", "<u4"),
        ("psn", "<u4"),
        ("ev", "<u4"),
        ("bytes", "<u2"),
        ("flags", "<u2"),
        ("plane", "u1"),
    ),
    "messages": (
        ("flow", "<u4"),
        ("message", "<u4"),
        ("role", "u1"),
        ("bytes", "<u4"),
        ("start_ns", "<i8"),
        ("end_ns", "<i8"),
        ("verdict", "u1"),
    ),
    "posts": (
        ("flow", "<u4"),
        ("message", "<u4"),
        ("bytes", "<u4"),
        ("t_ns", "<i8"),
    ),
    "steps": (
        ("job", "<u2"),
        ("step", "<u4"),
        ("start_ns", "<i8"),
        ("ready_ns", "<i8"),
        ("end_ns", "<i8"),
        ("verdict", "u1"),
    ),
    "ev_states": (
        ("t_ns", "<i8"),
        ("peer", "<u2"),
        ("ev", "<u4"),
        ("before", "u1"),
        ("after", "u1"),
        ("reason", "u1"),
    ),
    "port_states": (
        ("t_ns", "<i8"),
        ("plane", "u1"),
        ("up", "u1"),
    ),
    "plane_states": (
        ("t_ns", "<i8"),
        ("peer", "<u2"),
        ("plane", "u1"),
        ("before", "u1"),
        ("after", "u1"),
        ("reason", "u1"),
    ),
    "trace": (
        ("t_ns", "<i8"),
        ("kind", "u1"),
        ("qp", "<u4"),
        ("psn", "<u4"),
        ("ev", "<u4"),
        ("value", "<i8"),
    ),
    "samples": (
        ("t_ns", "<i8"),
        ("flow", "<u4"),
        ("plane", "u1"),
        ("role", "u1"),
        ("bytes", "<u4"),
        ("window", "<u4"),
        ("inflight", "<u4"),
        ("rtt_ns", "<u4"),
    ),
    "connections": (
        ("t_ns", "<i8"),
        ("flow", "<u4"),
        ("plane", "u1"),
        ("role", "u1"),
        ("bytes", "<u4"),
        ("window", "<u4"),
        ("inflight", "<u4"),
        ("rtt_ns", "<u4"),
        ("segments", "<u4"),
        ("retransmissions", "<u4"),
    ),
    "loop": (
        ("t_ns", "<i8"),
        ("lag_ns_max", "<u4"),
        ("lag_ns_p99", "<u4"),
        ("cpu_ns", "<u4"),
        ("wakeups", "<u4"),
        ("packets", "<u4"),
    ),
}

U32_MAX = 2**32 - 1


class RecordsError(Exception):
    """Records cannot be written, so the run has lost its evidence: the host must end, not go on."""


class Table:
    """One record file. `row(*values)` takes the fields in order and is the hot path: a closure, no attribute look-ups."""

    __slots__ = ("_descriptor", "flush", "last", "path", "row")

    row: Callable[..., None]
    flush: Callable[[], None]
    last: Callable[[], tuple[int, ...]]

    def __init__(self, directory: str, name: str) -> None:
        fields = TABLES[name]
        self.path = f"{directory}/{name}.rec"
        header = json.dumps({"table": name, "fields": [list(field) for field in fields]}) + "\n"
        try:
            descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise RecordsError(f"cannot create {self.path}: {error.strerror}") from error
        self._descriptor = descriptor
        _write(descriptor, memoryview(header.encode()), self.path)
        self.row, self.flush, self.last = _writer(
            struct.Struct("<" + "".join(_CODES[dtype] for _, dtype in fields)), descriptor, self.path
        )

    def close(self) -> None:
        """Flush and close."""
        self.flush()
        os.close(self._descriptor)


class RecordFiles:
    """Every table of one host; `trace` only where one is wanted."""

    def __init__(self, directory: str, *, trace: bool = False) -> None:
        try:
            os.makedirs(directory, exist_ok=True)  # noqa: PTH103 - see plan.py
        except OSError as error:
            raise RecordsError(f"cannot create {directory}: {error.strerror}") from error
        self.packets = Table(directory, "packets")
        self.received = Table(directory, "received")
        self.messages = Table(directory, "messages")
        self.posts = Table(directory, "posts")
        self.steps = Table(directory, "steps")
        self.ev_states = Table(directory, "ev_states")
        self.port_states = Table(directory, "port_states")
        self.plane_states = Table(directory, "plane_states")
        self.samples = Table(directory, "samples")
        self.loop = Table(directory, "loop")
        self.trace = Table(directory, "trace") if trace else None
        self._tables = [
            *(self.packets, self.received, self.messages, self.posts, self.steps),
            *(self.ev_states, self.port_states, self.plane_states, self.samples, self.loop),
        ]
        if self.trace is not None:
            self._tables.append(self.trace)

    def flush_messages(self) -> None:
        """So that a kill hides neither what was under way nor what had just ended."""
        self.messages.flush()
        self.posts.flush()

    def flush(self) -> None:
        """Hand everything gathered so far to the kernel."""
        for table in self._tables:
            table.flush()

    def close(self) -> None:
        """Flush and close every file."""
        for table in self._tables:
            table.close()


def _writer(
    layout: struct.Struct, descriptor: int, path: str
) -> tuple[Callable[..., None], Callable[[], None], Callable[[], tuple[int, ...]]]:
    """(row, flush, last) over one buffer."""
    size = layout.size
    pack_into = layout.pack_into
    limit = FLUSH_BYTES // size * size  # whole rows, so a file ends in the middle of one only when a write was cut short
    buffer = bytearray(limit)
    view = memoryview(buffer)
    used = 0
    newest = 0  # where the last row starts; it stays readable after a flush

    def row(*values: int) -> None:
        nonlocal used
        pack_into(buffer, used, *values)
        used += size
        if used == limit:
            flush()

    def flush() -> None:
        nonlocal used, newest
        if used:
            newest = used - size
            _write(descriptor, view[:used], path)
            used = 0

    def last() -> tuple[int, ...]:
        """The row written last. Only meaningful after one was written."""
        return layout.unpack_from(buffer, used - size if used else newest)

    return row, flush, last


def _write(descriptor: int, data: memoryview, path: str) -> None:
    """Write all of `data`; a disk that is full or a quota reached is a RecordsError that says so."""
    while data:
        try:
            data = data[os.write(descriptor, data) :]
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise RecordsError(f"no space left for the records of this run ({path})") from error
            raise RecordsError(f"cannot write {path}: {error.strerror}") from error
