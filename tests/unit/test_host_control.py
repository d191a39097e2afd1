"""The control channel: framing, back-pressure, the end of the runner."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator

import pytest

from testbed.host.control import ChannelClosedError, Control, ControlError


@pytest.fixture
def ends() -> Iterator[tuple[Control, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield Control(ours), theirs


def waiting(control: Control) -> bool:
    return control.waiting


def test_messages_split_anywhere_come_whole(ends: tuple[Control, socket.socket]) -> None:
    control, runner = ends
    sent = b'{"type":"connect","flows":[]}\n{"type":"stop"}\n'
    got = []
    for at in range(len(sent)):
        runner.send(sent[at : at + 1])
        got += control.receive()
    assert got == [{"type": "connect", "flows": []}, {"type": "stop"}]
    assert control.receive() == []


def test_a_runner_that_does_not_read_does_not_stall_the_host(ends: tuple[Control, socket.socket]) -> None:
    control, runner = ends
    count = 0
    while not waiting(control):
        control.send({"type": "progress", "t_ns": count})
        count += 1
    control.send({"type": "progress", "t_ns": count})
    received = b""
    while received.count(b"\n") < count + 1:
        received += runner.recv(1 << 20)
        control.flush()
    assert not waiting(control)
    assert [json.loads(line)["t_ns"] for line in received.splitlines()] == list(range(count + 1))


def test_the_end_of_the_runner_is_noticed(ends: tuple[Control, socket.socket]) -> None:
    control, runner = ends
    runner.close()
    with pytest.raises(ChannelClosedError):
        control.receive()
    with pytest.raises(ChannelClosedError):
        control.send({"type": "ready"})
    control.finish(0.1)


@pytest.mark.parametrize("line", [b"nonsense\n", b"[1]\n", b'{"kind":"stop"}\n', b'{"type":1}\n'])
def test_what_is_not_a_message_is_an_error(ends: tuple[Control, socket.socket], line: bytes) -> None:
    control, runner = ends
    runner.send(line)
    with pytest.raises(ControlError, match=r"not JSON|without a type"):
        control.receive()
