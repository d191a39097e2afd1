"""The port program: C source, how it is built and loaded, and its shared memory seen from Python."""
