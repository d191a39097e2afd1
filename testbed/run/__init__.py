"""The order of things: load, plan, build, verify, start, fault, stop, collect, judge, clean up.

May import all but testbed.transport and testbed.host, which it starts as processes; analysis only after traffic has ended.
"""
