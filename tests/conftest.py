"""What all tests share: property tests draw the same examples every time and have no deadline, so no test needs luck; and the
signals that end a run are not ignored, as they are below `nohup` or in a script's background, which children would inherit.

`pytest --hypothesis-profile=explore` draws new examples.
"""

from __future__ import annotations

import signal

from hypothesis import HealthCheck, settings

settings.register_profile("steady", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("explore", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("steady")

for number, handler in (
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGTERM, signal.SIG_DFL),
    (signal.SIGHUP, signal.SIG_DFL),
):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, handler)
