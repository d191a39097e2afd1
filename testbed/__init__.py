"""MRC on a real SRv6 multi-plane fabric, on one Linux VM.

Rooms: model (pure), transport (the protocol, no I/O), host (one process per NIC), fabric (the kernel), run (the order
of things).
Arrows: model <- fabric <- run; transport <- host; run starts hosts as processes. tests/unit/test_arrows.py enforces them.
"""
