"""The transports, sans-IO: bytes and a time in; bytes, a timer and events out.

May import the standard library only; knows no sockets, no topology files and no clock.
"""
