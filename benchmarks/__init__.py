"""Benchmarks: each compares two things in one run and prints the ratio. `python -m benchmarks` lists them.

May import anything here except the tests; nothing outside this folder but the tests imports it.
"""
