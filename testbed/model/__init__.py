"""Pure: what a scenario means. Schema, units, topology, uSID plan, paths, fluid ideal, planning.

May import the standard library, PyYAML and testbed.errors; nothing here touches the kernel or a socket.
"""
