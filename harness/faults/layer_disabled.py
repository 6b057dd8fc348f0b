"""The FP8 layers are switched off for Dynamo, so that nothing fails and nothing of them is compiled."""

from __future__ import annotations

import torch

from harness.faults.fault import Fault
from harness.faults.seams import BOTH, layer_fault

FAULT = Fault(
    name="layer_disabled",
    breaks="FP8 layers run outside of every graph, each a graph break where no region is around it",
    caught_by="compile.breaks",
    apply=layer_fault(torch.compiler.disable),
    report="NVIDIA/TransformerEngine#308",
    where={"case": "autocast_outside", "fullgraph": False},
    providers=BOTH,
)
