"""The host process: `python -m testbed.host --plan FILE --control FD`. Started by the runner, one per host.

Exit status: 0 after `quit`; 1 on an error, which is also told on the channel; 2 for a wrong command line; 143 after
SIGTERM, records flushed. When the runner closes the channel or dies, the host flushes and exits with 1 at once.
"""

from __future__ import annotations

import gc
import os
import socket
import sys
import time
from contextlib import suppress

from testbed.host import carrier, compiled, privileges
from testbed.host.control import ChannelClosedError, Control, ControlError
from testbed.host.flows import FlowError
from testbed.host.loop import EXIT_QUIT, Loop, Wakeup
from testbed.host.nic import MakeNic, Nic, build
from testbed.host.plan import HostPlan, PlanError, read
from testbed.host.rawsocket import RawSocket
from testbed.host.recorder import Recorder
from testbed.host.records import RecordsError
from testbed.host.session import Session

USAGE = "usage: python -m testbed.host --plan FILE --control FD   (started by the runner, not by hand)"
EXIT_ERROR = 1
EXIT_USAGE = 2
LAST_WORDS_S = 0.5


def main(arguments: list[str], make_nic: MakeNic = build) -> int:
    """Run one host; returns the exit status."""
    options = _options(arguments)
    if options is None:
        print(USAGE, file=sys.stderr)
        return EXIT_USAGE
    plan_file, descriptor = options
    try:
        control = Control(_inherited(descriptor))
    except OSError as error:
        print(f"control channel {descriptor}: {error.strerror}\n{USAGE}", file=sys.stderr)
        return EXIT_USAGE
    try:
        return _serve(plan_file, control, make_nic)
    except ChannelClosedError:
        return EXIT_ERROR
    except Exception as error:  # noqa: BLE001 - whatever it is, the runner must hear of it
        return _report(error, control)


def _inherited(descriptor: int) -> socket.socket:
    """The channel under the lowest number that is free: select cannot watch what a runner of a thousand nodes hands down."""
    lowest = os.dup(descriptor)
    os.close(descriptor)
    return socket.socket(fileno=lowest)


def _serve(plan_file: str, control: Control, make_nic: MakeNic) -> int:
    wakeup = Wakeup()
    plan = read(plan_file)
    is_compiled = compiled.use(os.environ)
    wire = RawSocket({address: plane for peer in plan.peers for _, plane, address in peer.paths})
    try:
        carriers = carrier.of_ports({port.interface: port.plane for port in plan.ports})
    except OSError as error:
        raise PlanError(f"ports {', '.join(port.interface for port in plan.ports)}: {error}") from error

    def made(plan: HostPlan, recorder: Recorder) -> Nic:
        """A path policy's own code runs from here on: it may read, for modules are still to be found, and nothing else."""
        privileges.become_nobody(privileges.DAC_READ_SEARCH)
        return make_nic(plan, recorder)

    session = Session(plan, control, made, time.monotonic_ns())
    session.extra_counters = wire.counters
    privileges.keep()
    _settle_collector()
    session.announce(is_compiled)
    try:
        status = Loop(session, wire, carriers, control, wakeup).run()
    except BaseException:
        with suppress(RecordsError):  # when the disk is full, that is the error already on its way up
            session.close()
        raise
    session.close()
    if status == EXIT_QUIT:
        session.farewell()
        control.finish(LAST_WORDS_S)
    return status


def _settle_collector() -> None:
    """Keep the cyclic collector out of the packet path.

    Nothing on that path makes reference cycles, so counting references frees everything in time; a full collection
    would stop the host for milliseconds to find nothing. Set-up's objects live as long as the process: they are moved
    where the collector does not look. It stays on, far from the defaults, for what an unusual path may leave behind.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


def _report(error: Exception, control: Control) -> int:
    """Tell the runner in one line and the log in full. The runner first: the log may lie on the disk that is full."""
    import traceback  # costs milliseconds; only needed here

    place = traceback.extract_tb(error.__traceback__)[-1]
    message = str(error)
    if not isinstance(error, (PlanError, RecordsError, ControlError, FlowError)):  # those say all there is to say
        message = f"{type(error).__name__}: {error} ({place.filename.rpartition('/')[2]}:{place.lineno})"
    with suppress(ChannelClosedError):
        control.send({"type": "error", "message": message})
        control.finish(LAST_WORDS_S)
    with suppress(OSError):
        traceback.print_exception(error, file=sys.stderr)
    return EXIT_ERROR


def _options(arguments: list[str]) -> tuple[str, int] | None:
    """(plan, descriptor). By hand: argparse would be a tenth of the start-up time."""
    if len(arguments) != 4:
        return None
    given = dict(zip(arguments[::2], arguments[1::2], strict=True))
    if given.keys() != {"--plan", "--control"} or not given["--control"].isdecimal():
        return None
    return given["--plan"], int(given["--control"])


def leave(status: int) -> None:
    """Exit without tearing the interpreter down: everything is flushed, and a runner with 64 hosts waits for each."""
    with suppress(OSError):  # the disk may be full
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(status)
