"""A RoCEv2-like reliable connection, sans-IO and in the same shape as `mrc`: what MRC is compared with.

May import the standard library and `testbed.transport.common` only. docs/protocol.md, "The baseline rc", says what it follows.
"""

from testbed.transport.common.config import PolicyError, PortConfig
from testbed.transport.common.events import Event, ImmediateReceived, QueuePairError, Recorder, WriteComplete
from testbed.transport.rc.config import EndpointConfig, QpLimits
from testbed.transport.rc.endpoint import Endpoint

__all__ = [
    "Endpoint",
    "EndpointConfig",
    "Event",
    "ImmediateReceived",
    "PolicyError",
    "PortConfig",
    "QpLimits",
    "QueuePairError",
    "Recorder",
    "WriteComplete",
]
