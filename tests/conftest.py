"""What all tests share: property tests draw the same examples every time and have no deadline, so no test needs luck.

`pytest --hypothesis-profile=explore` draws new examples.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("steady", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("explore", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("steady")
