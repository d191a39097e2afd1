"""What both transports share: the NIC's ports and memory, packet numbers, the ICRC, events and records, codepoints, timers.

May import the standard library and this package only.
"""
