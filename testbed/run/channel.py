"""One end of a control channel: newline-delimited JSON objects over a non-blocking stream socket."""

from __future__ import annotations

import json
import socket
from typing import Any

Message = dict[str, Any]
CHUNK = 65536


class Channel:
    """Never blocks. `send` keeps what the socket does not take at once; `flush` tries again. Closed, it sends nothing."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._received = b""
        self._unsent = b""
        self.closed = False

    def fileno(self) -> int:
        return self._sock.fileno()

    def send(self, message: Message) -> None:
        self._unsent += json.dumps(message, separators=(",", ":")).encode() + b"\n"
        self.flush()

    def pending(self) -> bool:
        """Whether `flush` has something to do once the socket is writable."""
        return bool(self._unsent)

    def flush(self) -> None:
        if self.closed:
            return
        try:
            while self._unsent:
                self._unsent = self._unsent[self._sock.send(self._unsent) :]
        except BlockingIOError:
            return
        except (BrokenPipeError, ConnectionResetError):
            self._unsent = b""
            self.closed = True

    def receive(self) -> list[Message]:
        """Every complete message there is. At the end of the stream `closed` is set and a half-written line is left out.

        ValueError when a line is not a JSON object.
        """
        while True:
            try:
                data = self._sock.recv(CHUNK)
            except BlockingIOError:
                break
            except ConnectionResetError:
                data = b""
            if not data:
                self.closed = True
                break
            self._received += data
        *lines, self._received = self._received.split(b"\n")
        return [_parse(line) for line in lines]

    def close(self) -> None:
        self.closed = True
        self._sock.close()


def _parse(line: bytes) -> Message:
    message = json.loads(line)
    if not isinstance(message, dict) or "type" not in message:
        raise ValueError(f"not a message: {line[:80]!r}")
    return message
