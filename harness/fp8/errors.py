"""Errors of the reference system. Each is a RuntimeError: Transformer Engine's callers catch that."""

from __future__ import annotations


class UnsupportedRecipeError(RuntimeError):
    """The recipe can't run on the device's architecture; the message gives the architecture and the reason."""


class DelayedScalingUnderCompileError(RuntimeError):
    """DelayedScaling was used while torch.compile was tracing (NVIDIA/TransformerEngine#2759)."""
