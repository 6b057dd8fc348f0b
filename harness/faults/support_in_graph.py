"""Support checks make a tensor to find out where they are: compiled code allocates it on every call."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from harness.faults.fault import Fault
from harness.faults.patching import patched
from harness.providers.protocol import Provider


@contextmanager
def _apply(provider: Provider) -> Iterator[Provider]:
    from harness.fp8 import support

    check = support._check

    def check_on_tensor(recipe_name: str, device: str, arch: str, emulate: bool) -> tuple[bool, str]:
        there = torch.zeros(1, device=device)
        return check(recipe_name, str(there.device), arch, emulate)

    with patched(support, "_check", check_on_tensor):
        yield provider


FAULT = Fault(
    name="support_in_graph",
    breaks="a support check leaves an operation in the graph",
    caught_by="case.facts",
    apply=_apply,
    report="NVIDIA/TransformerEngine#2759",
    where={"case": "support_constant"},
)
