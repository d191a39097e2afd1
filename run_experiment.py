#!/usr/bin/python3
"""The one entry point: a scenario name in, a results folder out. Everything is in testbed/run; see --help."""

import sys
from pathlib import Path

from testbed import venv

if __name__ == "__main__":
    venv.enter([str(Path(__file__).resolve()), *sys.argv[1:]])
    from testbed.run import cli

    sys.exit(cli.main(sys.argv[1:]))
