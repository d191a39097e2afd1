"""`python -m testbed COMMAND`: look at the machine, a scenario and its fabric without running an experiment."""

import sys

from testbed import venv

if __name__ == "__main__":
    venv.enter(["-m", "testbed", *sys.argv[1:]])
    from testbed.run import commands

    sys.exit(commands.main(sys.argv[1:]))
