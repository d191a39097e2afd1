"""Load and pin the port program through libbpf (which iproute2 depends on), and map its two arrays into memory.

Python writes settings and reads counters as plain memory: no system call per port, no bpftool.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from functools import cache
from pathlib import Path

from testbed.errors import KernelError
from testbed.fabric.bpf.layout import Struct, struct

_NODE = "port program"
_PROGRAMS = ("egress", "ingress", "lost")
_MAPS = ("settings", "counters", "queues")
_Print = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)


class Array:
    """One memory-mapped BPF array whose values are structs of port.h."""

    def __init__(self, fd: int, entries: int, layout: Struct) -> None:
        self._layout = layout
        self._memory = mmap.mmap(fd, -(-entries * layout.size // mmap.PAGESIZE) * mmap.PAGESIZE)
        self._words = memoryview(self._memory).cast("Q")
        self._halves = memoryview(self._memory).cast("I")
        self._stride = layout.size // 8
        self.columns = {name: offset // 8 for name, offset in layout.offsets.items() if layout.sizes[name] == 8}

    def set(self, index: int, member: str, value: int) -> None:
        base = index * self._layout.size + self._layout.offsets[member]
        if self._layout.sizes[member] == 8:
            self._words[base // 8] = value
        else:
            self._halves[base // 4] = value

    def get(self, index: int, member: str) -> int:
        base = index * self._layout.size + self._layout.offsets[member]
        return self._words[base // 8] if self._layout.sizes[member] == 8 else self._halves[base // 4]

    def rows(self, indices: list[int]) -> list[list[int]]:
        """The 64-bit members of each index in order of `columns`; only for structs without 32-bit members."""
        words, stride = self._words, self._stride
        return [words[index * stride : (index + 1) * stride].tolist() for index in indices]

    def close(self) -> None:
        self._words.release()
        self._halves.release()
        self._memory.close()


class PortProgram:
    """The loaded program, pinned as `directory/egress`, `/ingress` and `/lost`, with its maps."""

    def __init__(self, path: Path, ports: int, directory: Path) -> None:
        """Load `path` with room for ifindexes below `ports`. Raises KernelError with the verifier's words."""
        self._library = _library()
        self._log: list[str] = []
        self._hook = _Print(self._print)
        self._library.libbpf_set_print(self._hook)
        self._object = self._library.bpf_object__open_file(os.fsencode(path), None)
        if not self._object:
            raise self._error("open")
        self.pins: list[Path] = []
        self._arrays: list[Array] = []
        try:
            self._load(ports, directory)
        except BaseException:
            self.close()
            raise

    def _load(self, ports: int, directory: Path) -> None:
        library = self._library
        for name in _MAPS:
            found = library.bpf_object__find_map_by_name(self._object, name.encode())
            if not found or library.bpf_map__set_max_entries(found, ports):
                raise self._error(f"map {name}")
        if library.bpf_object__load(self._object):
            raise self._error("load")
        for name in _PROGRAMS:
            pin = directory / name
            program = library.bpf_object__find_program_by_name(self._object, name.encode())
            if not program or library.bpf_obj_pin(library.bpf_program__fd(program), os.fsencode(pin)):
                raise self._error(f"pin {pin}")
            self.pins.append(pin)
        self.settings = self._array("settings", ports, "port_settings")
        self.counters = self._array("counters", ports, "port_counters")

    def _array(self, name: str, entries: int, layout: str) -> Array:
        found = self._library.bpf_object__find_map_by_name(self._object, name.encode())
        if self._library.bpf_map__value_size(found) != struct(layout).size:
            raise KernelError(_NODE, f"map {name}", f"struct {layout} of port.h is not laid out as Python reads it")
        array = Array(self._library.bpf_map__fd(found), entries, struct(layout))
        self._arrays.append(array)
        return array

    def _print(self, level: int, form: bytes, arguments: int) -> int:
        if level <= 1:  # warnings and information; level 2 is debugging
            buffer = ctypes.create_string_buffer(1 << 16)
            ctypes.CDLL(None).vsnprintf(buffer, len(buffer), form, ctypes.c_void_p(arguments))
            self._log.append(buffer.value.decode(errors="replace"))
        return 0

    def _error(self, operation: str) -> KernelError:
        words = "".join(self._log).strip()[-4000:] or os.strerror(ctypes.get_errno())
        return KernelError(_NODE, operation, words)

    def close(self) -> None:
        """Unpin and unload; the kernel keeps the program while a port still uses it."""
        for array in self._arrays:
            array.close()
        self._arrays.clear()
        for pin in self.pins:
            pin.unlink(missing_ok=True)
        self.pins.clear()
        if self._object:
            self._library.bpf_object__close(self._object)
            self._object = None
        # libbpf keeps one global hook; without this it would call into a collected object.
        self._library.libbpf_set_print(None)


@cache
def _library() -> ctypes.CDLL:
    try:
        library = ctypes.CDLL("libbpf.so.1", use_errno=True)
    except OSError as error:
        raise KernelError(_NODE, "libbpf.so.1", f"{error}; run ./setup.sh") from error
    pointer, text = ctypes.c_void_p, ctypes.c_char_p
    signatures = {
        "libbpf_set_print": (pointer, [pointer]),
        "bpf_object__open_file": (pointer, [text, pointer]),
        "bpf_object__find_map_by_name": (pointer, [pointer, text]),
        "bpf_object__find_program_by_name": (pointer, [pointer, text]),
        "bpf_object__load": (ctypes.c_int, [pointer]),
        "bpf_object__close": (None, [pointer]),
        "bpf_map__set_max_entries": (ctypes.c_int, [pointer, ctypes.c_uint32]),
        "bpf_map__value_size": (ctypes.c_uint32, [pointer]),
        "bpf_map__fd": (ctypes.c_int, [pointer]),
        "bpf_program__fd": (ctypes.c_int, [pointer]),
        "bpf_obj_pin": (ctypes.c_int, [ctypes.c_int, text]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library
