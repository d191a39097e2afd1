"""The order of things: load, plan, build, verify, start, fault, stop, collect, judge, clean up.

May import everything but testbed.transport and testbed.host, which it starts as processes; imports analysis after traffic.
"""
