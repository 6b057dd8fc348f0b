"""The backward_outside case: compiled autograd is proved to have run."""

from __future__ import annotations

import pytest
import torch

from harness import torch_compat


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiled_autograd_takes_the_whole_backward_and_is_off_again(backend: str) -> None:
    torch_compat.reset_dynamo()
    x = torch.ones(4, requires_grad=True)
    with torch_compat.compiled_autograd(backend):
        torch.autograd.backward((x * x).sum())
    assert torch_compat.compiled_autograd_captures() == 1
    torch.autograd.backward((x * x).sum())
    assert torch_compat.compiled_autograd_captures() == 1
    assert x.grad is not None
    assert torch.equal(x.grad, torch.full((4,), 4.0))
