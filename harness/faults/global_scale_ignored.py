"""NVFP4's second-level scale of one operand never reaches the GEMM, whose epilogue has one factor: the other's."""

from __future__ import annotations

import dataclasses

import torch

from harness.faults.fault import Fault
from harness.faults.products import Given, kernel_fault


def _change(given: Given) -> Given:
    if given.b.global_scale is None:
        return given
    return dataclasses.replace(
        given, b=dataclasses.replace(given.b, global_scale=torch.ones_like(given.b.global_scale))
    )


FAULT = Fault(
    name="global_scale_ignored",
    breaks="NVFP4 products leave one operand's global scale out",
    caught_by="numerics.kernel",
    apply=kernel_fault(_change),
    where={"recipe": "nvfp4_block_scaling", "nesting": "flat", "fullgraph": False},
)
