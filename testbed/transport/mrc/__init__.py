"""MRC, sans-IO: `Endpoint` is one NIC. Bytes and a time go in; datagrams, a timer and events come out.

May import the standard library and this package only. docs/protocol.md says which published rule each file follows.
"""

from testbed.transport.mrc.config import EndpointConfig, PortConfig, QpLimits
from testbed.transport.mrc.endpoint import Endpoint
from testbed.transport.mrc.events import Event, ImmediateReceived, QueuePairError, Recorder, WriteComplete
from testbed.transport.mrc.policies import PolicyError
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
