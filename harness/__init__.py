"""Conformance harness for FP8 training under ``torch.compile``.

Data goes one way: plan -> run -> observe -> judge -> report. See docs/architecture.md.
"""

__version__ = "0.1.0"
