"""iperf3 at one end of a flow, in a process of its own: libiperf keeps its state in globals, and a process can be ended.

The package's objects run the test; the client's port and the reports' interval are set through the library that it loads. The
result goes to a file as text: the package would raise where iperf3's JSON is none.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from testbed.iperf.plan import Flow

# iperf3's JSON must fit the pipe that the package reads when the test is over (64 KiB): few reports; the kernel is sampled.
REPORT_S = 30.0
CONNECT_MS = 10_000
_PR_SET_PDEATHSIG = 1


class End:
    """A child process. `text` is its result once it has ended by itself."""

    def __init__(self, flow: Flow, folder: str, congestion: str) -> None:
        self.flow = flow
        self._congestion = congestion
        self.file = Path(folder) / f"flow{flow.flow}-{'client' if flow.sends else 'server'}.json"
        self.pid = 0
        self.failure = ""
        self._status: int | None = None

    def start(self) -> None:
        """Fork. The child never returns."""
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if not self.pid:
            code = 1
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            try:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                self.file.write_text(_run(self.flow, self._congestion))
                code = 0
            except BaseException as error:  # noqa: BLE001 - a child must not go on as its parent
                print(f"flow {self.flow.flow}: {error!r}", file=sys.stderr, flush=True)
            finally:
                os._exit(code)

    @property
    def ended(self) -> bool:
        """Whether it has; never blocks."""
        if self._status is None and self.pid:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self._status = os.waitstatus_to_exitcode(status)
        return self._status is not None

    def end(self, why: str) -> None:
        """End it for the reason `why`, if it still runs."""
        if self.pid and not self.ended:
            self.failure = why
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            self._status = -signal.SIGKILL

    def text(self) -> str:
        """What iperf3 said; empty when it said nothing."""
        try:
            return self.file.read_text(errors="replace")
        except FileNotFoundError:
            return ""

    def cpu_ticks(self) -> int:
        """User and system time so far, in clock ticks; 0 once it has ended."""
        if not self.pid or self._status is not None:
            return 0
        try:
            fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return 0
        return int(fields[11]) + int(fields[12])


def _run(flow: Flow, congestion: str) -> str:
    import iperf3

    end: Any = iperf3.Client(verbose=False) if flow.sends else iperf3.Server(verbose=False)
    end.port = flow.port
    _set(end, "iperf_set_test_reporter_interval", REPORT_S)
    _set(end, "iperf_set_test_stats_interval", REPORT_S)
    if flow.sends:
        end.server_hostname = flow.address
        end.bind_address = flow.source
        if flow.device:
            end.lib.iperf_set_test_bind_dev(_pointer(end), ctypes.c_char_p(flow.device.encode()))
        end.duration = flow.seconds
        # Set on the socket: a network namespace may only have as its default what the whole machine allows everyone.
        end.lib.iperf_set_test_congestion_control(_pointer(end), ctypes.c_char_p(congestion.encode()))
        end.lib.iperf_set_test_bind_port(_pointer(end), flow.client_port)
        end.lib.iperf_set_test_connect_timeout(_pointer(end), CONNECT_MS)
    try:
        found = end.run()
    except ValueError:  # the package reads the JSON at once; what is wrong with it is for `result.parse`
        end.lib.iperf_get_test_json_output_string.restype = ctypes.c_char_p
        return (end.lib.iperf_get_test_json_output_string(_pointer(end)) or b"").decode(errors="replace")
    return str(found.text)


def _pointer(end: Any) -> Any:
    return ctypes.c_void_p(end._test)  # noqa: SLF001 - the package has no other way to it


def _set(end: Any, function: str, value: float) -> None:
    getattr(end.lib, function)(_pointer(end), ctypes.c_double(value))
