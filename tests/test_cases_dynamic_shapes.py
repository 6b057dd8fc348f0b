"""cases.dynamic_shapes: sizes of its batches, and what its probes say of good and bad refusals."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any

import pytest
import torch

from cases import CASES, dynamic_shapes
from harness.faults.patching import patched
from harness.probing import Probing
from harness.program import CaseContext, Program
from harness.providers.load import loaded_provider
from harness.providers.reference import ReferenceProvider
from harness.types import Axes, Evidence, Spec

CPU = torch.device("cpu")


def axes_of(variant: str, recipe: str = "delayed_scaling") -> Axes:
    """Delayed scaling, by default: its probes compile nothing, which is quick."""
    return Axes("dynamic_shapes", Spec("reference"), Spec(recipe), variant=variant, shape=(32, 64, 32))


def built(provider: Any, axes: Axes) -> Program:
    return dynamic_shapes.build(CaseContext(provider, axes, None, CPU, torch.bfloat16))


@pytest.mark.parametrize("variant", CASES["dynamic_shapes"].variants)
def test_sizes_of_batches(variant: str) -> None:
    with loaded_provider(Spec("reference")) as loaded:
        program = built(loaded.provider, axes_of(variant))
    assert program.inputs_at is not None
    shapes = [tuple(program.inputs_at(torch.Generator().manual_seed(0), i)[0].shape) for i in range(4)]
    wanted = {
        "varying": [(32, 64), (64, 64), (96, 64), (32, 64)],
        "marked": [(32, 64), (64, 64), (96, 64), (32, 64)],
        "batch_one": [(1, 32, 64), (2, 32, 64), (3, 32, 64), (1, 32, 64)],
        "misaligned": [(32, 64)] * 4,
    }
    assert shapes == wanted[variant]


def test_layers_off_alignment_have_one_odd_dimension_each() -> None:
    with loaded_provider(Spec("reference")) as loaded:
        context = CaseContext(loaded.provider, axes_of("misaligned"), None, CPU, torch.bfloat16)
        odd = dynamic_shapes._odd_layers(context)
    shapes = {name: tuple(next(iter(layer.parameters())).shape) for name, layer in odd.items()}
    assert shapes == {"in_features": (32, 68), "out_features": (36, 64)}
    assert all(sum(size % 16 != 0 for size in shape) == 1 for shape in shapes.values())


def probe(provider: Any) -> tuple[list[str], list[str]]:
    """What went wrong in the parts of the probes, and the facts that do not hold."""
    errors: list[str] = []

    @contextmanager
    def part(moment: str) -> Any:
        try:
            yield
        except Exception as error:
            errors.append(f"{moment}: {error}")

    axes = axes_of("misaligned")
    program = built(provider, axes)
    probing = Probing(provider, axes, Evidence.NATIVE, "cpu", CPU, torch.bfloat16, part)
    assert program.probes is not None
    program.probes(probing)
    assert len(probing.facts) + len(errors) == 3
    return errors, [fact.name for fact in probing.facts if fact.expected != fact.seen]


def test_refusals_of_the_reference_are_as_documented() -> None:
    with loaded_provider(Spec("reference")) as loaded:
        assert probe(loaded.provider) == ([], [])


def test_a_library_that_takes_any_shape_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    from harness.fp8 import shapes

    monkeypatch.setattr(shapes, "check", lambda *given: None)
    with loaded_provider(Spec("reference")) as loaded:
        errors, _ = probe(loaded.provider)
    assert [error.partition(":")[0] for error in errors] == [
        "after refused batches, eager",
        "after a layer with in_features off alignment, eager",
        "after a layer with out_features off alignment, eager",
    ]
    assert all("nothing was raised" in error for error in errors)


def test_another_text_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    from harness.fp8 import shapes

    def refuse(recipe: Any, x: torch.Tensor, weight: torch.Tensor) -> None:
        if x.shape[0] % 16:
            raise RuntimeError("CUBLAS_STATUS_NOT_SUPPORTED")

    monkeypatch.setattr(shapes, "check", refuse)
    with loaded_provider(Spec("reference")) as loaded:
        errors, _ = probe(loaded.provider)
    assert "got RuntimeError: CUBLAS_STATUS_NOT_SUPPORTED" in errors[0]


def test_a_refusal_that_names_another_dimension_is_reported() -> None:
    from harness.faults.refusal_names_another_dimension import FAULT

    provider = ReferenceProvider()
    with FAULT.apply(provider):
        errors, _ = probe(provider)
    assert [error.partition(":")[0] for error in errors] == [
        "after refused batches, eager",
        "after a layer with in_features off alignment, eager",
        "after a layer with out_features off alignment, eager",
    ]
    assert "in_features is 64" in errors[1]  # the dimension is right, its value isn't
    with FAULT.apply(provider), patched(provider, "features", {}):  # a provider that promises no words
        assert probe(provider) == ([], [])
