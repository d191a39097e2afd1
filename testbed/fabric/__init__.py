"""The kernel: namespaces, links, SRv6 routes, queues, the port program, delay, faults, telemetry, verify, doctor.

May import testbed.model and testbed.errors, mininet and pyroute2; knows no transport protocol.
"""
