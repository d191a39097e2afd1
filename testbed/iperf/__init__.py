"""TCP and MPTCP: one process per host that runs iperf3 at each end of its flows and samples what the kernel did.

May import testbed.host (channel, records) and iperf3; it is started by the runner, in the host's namespace.
"""
