"""`python -m testbed.iperf --plan FILE --control FD`, started by the runner."""

import sys

from testbed.iperf.main import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
