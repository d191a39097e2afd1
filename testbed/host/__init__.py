"""One process per host, like one NIC: event loop, raw socket, memory regions, workloads, control channel.

May import the standard library, testbed.transport and testbed.host only: a host starts in milliseconds and stays small.
"""
