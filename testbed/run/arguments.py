"""What both command lines read the same way: whole numbers, and a mistake said in one line."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import NoReturn

from testbed.errors import ExitStatus

LONGEST = 10  # digits; more is no seed and no count


class Parser(argparse.ArgumentParser):
    """A mistake is one line on standard error, not a page of usage; exit status 2 (DESIGN 4.1)."""

    def error(self, message: str) -> NoReturn:
        sys.stderr.write(f"{message.removeprefix('argument ')} (see {self.prog} --help)\n")
        sys.exit(ExitStatus.BAD_INPUT)


def whole(low: int) -> Callable[[str], int]:
    """A reader of whole numbers from `low` up."""

    def read(text: str) -> int:
        if not (text.isascii() and text.isdecimal() and len(text) <= LONGEST and int(text) >= low):
            raise argparse.ArgumentTypeError(f"expected a whole number from {low} up, found {text[:40]!r}")
        return int(text)

    return read
