"""A stand-in for Transformer Engine on the CPU, with the parts of its interface that the provider uses and no more.

Written for the tests from the interface alone. ``tests/support/te.py`` puts it on the path.
"""
