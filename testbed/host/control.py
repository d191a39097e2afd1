"""The control channel: newline-delimited JSON over an inherited stream socket, non-blocking both ways.

Form only; what the messages mean is `session`'s business. A runner that does not read never stalls a host: what the
socket does not take waits in memory and is sent when the loop says the socket takes more.
"""

from __future__ import annotations

import json
import socket
from typing import Any

_READ_BYTES = 65536


class ControlError(Exception):
    """The runner sent something this host does not understand."""


class ChannelClosedError(Exception):
    """The runner closed the channel or died."""


class Control:
    """One end of the channel. `waiting` says that output is pending and the loop should watch for room."""

    __slots__ = ("_incoming", "_outgoing", "_socket")

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._socket = sock
        self._incoming = bytearray()
        self._outgoing = bytearray()

    def fileno(self) -> int:
        """The descriptor to wait on."""
        return self._socket.fileno()

    def close(self) -> None:
        """Close this end."""
        self._socket.close()

    @property
    def waiting(self) -> bool:
        """Whether output is pending."""
        return bool(self._outgoing)

    def receive(self) -> list[dict[str, Any]]:
        """Complete messages that have arrived. Raises ChannelClosedError at end of file and ControlError on malformed input."""
        try:
            data = self._socket.recv(_READ_BYTES)
        except BlockingIOError:
            return []
        except ConnectionError as error:
            raise ChannelClosedError from error
        if not data:
            raise ChannelClosedError
        self._incoming += data
        if b"\n" not in data:
            return []
        *lines, rest = self._incoming.split(b"\n")
        self._incoming = rest
        return [_decode(line) for line in lines if line]

    def send(self, message: dict[str, Any]) -> None:
        """Queue a message and send what the socket takes. Raises ChannelClosedError when the runner is gone."""
        self._outgoing += json.dumps(message, separators=(",", ":")).encode() + b"\n"
        self.flush()

    def flush(self) -> None:
        """Send pending output as far as the socket takes it."""
        while self._outgoing:
            try:
                sent = self._socket.send(self._outgoing)
            except BlockingIOError:
                return
            except ConnectionError as error:
                raise ChannelClosedError from error
            del self._outgoing[:sent]

    def finish(self, timeout_s: float) -> None:
        """Send what is pending, waiting at most `timeout_s`: for the last words of a process that is about to exit."""
        self._socket.settimeout(timeout_s)
        try:
            self._socket.sendall(self._outgoing)
        except OSError:
            return
        self._outgoing.clear()


def _decode(line: bytearray) -> dict[str, Any]:
    try:
        message = json.loads(line)
    except ValueError as error:
        raise ControlError(f"not JSON: {bytes(line[:80])!r}") from error
    if not isinstance(message, dict) or not isinstance(message.get("type"), str):
        raise ControlError(f"a message without a type: {bytes(line[:80])!r}")
    return message
