"""MRC, sans-IO: `Endpoint` is one NIC. Bytes and a time go in; datagrams, a timer and events come out.

May import the standard library, `testbed.transport.common` and this package only. docs/protocol.md says which published rule
each file follows.
"""

from testbed.transport.common.config import PolicyError, PortConfig
from testbed.transport.common.events import Event, ImmediateReceived, QueuePairError, Recorder, WriteComplete
from testbed.transport.mrc.config import EndpointConfig, QpLimits
from testbed.transport.mrc.endpoint import Endpoint
from testbed.transport.mrc.trace import Trace

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
    "Trace",
    "WriteComplete",
]
