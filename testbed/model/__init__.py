"""Pure: what a scenario means. Schema, units, topology, uSID plan, paths, fluid ideal, planning.

May import the standard library, PyYAML, testbed.errors and, inside functions, numpy and scipy; touches no kernel and no socket.
"""
