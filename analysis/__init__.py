"""Reads a results folder: tables, metrics, fidelity, figures, report.

May import testbed.model and testbed.errors, numpy, pandas, matplotlib and jinja2; knows no kernel and no host.
"""
