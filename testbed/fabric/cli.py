"""Mininet's CLI on a fabric that is up: for `shell`, and for a run with `--cli`.

Commands are Mininet's: `nodes`, `net`, `h0 ip -6 route`, `p0t1-0 tc -s qdisc`, `help`, `exit`. A host's name among the
arguments becomes its inner address. What is changed by hand is not part of any record.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import Any

from mininet import log
from mininet.cli import CLI


def interact(net: Any, stdin: Any) -> None:
    """Mininet's CLI on a fabric that is up; what it and the nodes say goes to standard output.

    Without a terminal, `stdin` is read line by line. Mininet's own loop would give the lines after a command to that
    command's input.
    """
    for handler in log.lg.handlers:
        handler.setStream(sys.stdout)
    if stdin.isatty():
        Cli(net, stdin, None)
        return
    nothing, open_end = os.pipe()  # what commands read: silence, until they end
    try:
        with os.fdopen(nothing) as silence:
            Cli(net, silence, stdin)
    finally:
        os.close(open_end)


class Cli(CLI):  # type: ignore[misc]
    """`commands` are done one after the other; None: ask the terminal."""

    identchars = CLI.identchars + "-"  # of a switch name

    def __init__(self, net: Any, stdin: Any, commands: Iterable[str] | None) -> None:
        self._commands = commands
        super().__init__(net, stdin=stdin)  # runs until `exit`

    def run(self) -> None:
        if self._commands is None:
            super().run()
            return
        for line in self._commands:
            if self.onecmd(line.strip()):
                return

    def emptyline(self) -> None:
        """Nothing, instead of the last command again."""

    def do_link(self, _line: str) -> None:
        """Refused: links go down and up through faults, which also restore what the kernel forgets."""
        print("link states are set by the scenario's faults", file=sys.stderr)
