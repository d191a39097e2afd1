"""`python -m testbed.host`."""

import sys

from testbed.host.main import leave, main

leave(main(sys.argv[1:]))
