"""Ctrl-C, twice Ctrl-C and the overall limit, in a process of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
START = """
import os, select, signal, sys, time
from testbed.run.interrupts import Interrupted, Interrupts
me, interrupts = os.getpid(), Interrupts()
"""
RAISES = """
interrupts.install(10)
try:
    os.kill(me, signal.SIGTERM)
    time.sleep(1)
except Interrupted:
    print("raised")
"""
WAKES = """
interrupts.install(10)
interrupts.raising = False
os.kill(me, signal.SIGINT)
ready, _, _ = select.select([interrupts], [], [], 5)
interrupts.drain()
print(bool(ready), interrupts.asked, select.select([interrupts], [], [], 0)[0])
try:
    interrupts.check()
except Interrupted:
    print("raised")
"""
ONE_PRESS = """
time.monotonic = lambda: 5.0
interrupts.install(10)
interrupts.raising = False
os.kill(me, signal.SIGINT)
os.kill(me, signal.SIGINT)
print("still here")
"""
TWICE = """
interrupts.install(10)
interrupts.raising = False
os.kill(me, signal.SIGINT)
time.sleep(0.4)
os.kill(me, signal.SIGINT)
print("still here")
"""
LIMIT = """
from testbed.errors import RunError
try:
    interrupts.install(0.2)
    time.sleep(60)
except RunError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("script", "status", "said"),
    [
        (RAISES, 0, "raised\n"),
        (WAKES, 0, "True True []\nraised\n"),
        (ONE_PRESS, 0, "still here\n"),
        (TWICE, 130, ""),
        (LIMIT, 0, "the run took more than 0.2 s, its overall limit (duration + drain + 60 s)\n"),
    ],
    ids=["raises", "wakes", "one press", "twice", "limit"],
)
def test_interrupts(script: str, status: int, said: str) -> None:
    done = subprocess.run([sys.executable, "-c", START + script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (status, said), done.stderr
