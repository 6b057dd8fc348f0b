"""A provider with its faults: a fault that fails is told apart from the cell that it was to break."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from harness.faults.fault import RAISED, UNMENDED, Fault, FaultError
from harness.faults.leftovers import Snapshot
from harness.faults.patching import patched
from harness.fp8 import ops
from harness.judge import verdict
from harness.providers.load import load_fault, loaded_provider
from harness.registry import LoadError
from harness.types import Spec


def other(*_: object) -> float:
    return 0.0


@contextmanager
def fine(provider: Any) -> Iterator[Any]:
    with patched(ops, "multiply", other):
        yield provider


@contextmanager
def leaves(provider: Any) -> Iterator[Any]:
    ops.multiply = other  # type: ignore[assignment]
    yield provider


@contextmanager
def raises(provider: Any) -> Iterator[Any]:
    raise ValueError("no such seam")
    yield provider


@contextmanager
def exits(provider: Any) -> Iterator[Any]:
    sys.exit("no such seam")
    yield provider


@contextmanager
def interrupts(provider: Any) -> Iterator[Any]:
    raise KeyboardInterrupt
    yield provider


@contextmanager
def interrupts_late(provider: Any) -> Iterator[Any]:
    yield provider
    raise KeyboardInterrupt


@contextmanager
def edits_the_judge(provider: Any) -> Iterator[Any]:
    with patched(verdict, "judge_cell", other):
        yield provider


@contextmanager
def edits_the_judge_later(provider: Any) -> Iterator[Any]:
    def edit(*_: object) -> None:
        vars(verdict)["judge_cell"] = other

    with patched(ops, "multiply", edit), patched(verdict, "judge_cell", verdict.judge_cell):
        yield provider


@contextmanager
def blinds_the_look(provider: Any) -> Iterator[Any]:
    yield provider
    ops.multiply = other  # type: ignore[assignment]
    Snapshot.left = lambda self: ()  # type: ignore[method-assign]


@contextmanager
def raises_late(provider: Any) -> Iterator[Any]:
    yield provider
    raise ValueError("can't mend")


@contextmanager
def hides(provider: Any) -> Iterator[Any]:
    with suppress(ZeroDivisionError):
        yield provider


@contextmanager
def patches_nothing(provider: Any) -> Iterator[Any]:
    with patched(ops, "no_such_name", other):
        yield provider


@contextmanager
def yields_nothing(provider: Any) -> Iterator[None]:
    yield


@contextmanager
def yields_five(provider: Any) -> Iterator[int]:
    with patched(ops, "multiply", other):
        yield 5


class Wrapper:
    """Hands on everything but its ``tap``."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        if name == "tap":
            raise AttributeError(name)
        return getattr(self._inner, name)


@contextmanager
def yields_a_part(provider: Any) -> Iterator[Any]:
    yield Wrapper(provider)


def plain(provider: Any) -> Any:
    return provider


def bare(provider: Any) -> Iterator[Any]:
    yield provider


@pytest.fixture
def provided(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Spec]:
    """The reference with faults of these ``apply``; what they leave is put back."""
    module = ModuleType("made_faults")
    module.__file__ = __file__
    monkeypatch.setitem(sys.modules, "made_faults", module)
    monkeypatch.setattr(ops, "multiply", ops.multiply)

    def make(*applies: Any) -> Spec:
        for index, apply in enumerate(applies):
            setattr(module, f"F{index}", Fault("made", "something", "state.unchanged", apply))
        return Spec("+".join(["reference", *(f"made_faults:F{index}" for index in range(len(applies)))]))

    return make


def test_a_fault_is_applied_and_mended(provided: Callable[..., Spec]) -> None:
    multiply = ops.multiply
    with loaded_provider(provided(fine, nullcontext)) as loaded:
        assert ops.multiply is not multiply
        assert loaded.faults == ("made_faults:F0", "made_faults:F1")
    assert ops.multiply is multiply


def test_a_fault_that_leaves_its_patch_is_told(provided: Callable[..., Spec]) -> None:
    with pytest.raises(FaultError, match=r"not mended when its apply was left: harness\.fp8\.ops\.multiply$") as caught:
        with loaded_provider(provided(leaves)):
            pass
    assert caught.value.check == UNMENDED


def test_so_it_is_when_the_cell_raised(provided: Callable[..., Spec]) -> None:
    with pytest.raises(FaultError, match="not mended") as caught, loaded_provider(provided(leaves)):
        raise ZeroDivisionError
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_what_the_cell_raises_is_the_cells(provided: Callable[..., Spec]) -> None:
    for apply in (fine, hides):
        with pytest.raises(ZeroDivisionError), loaded_provider(provided(apply)):
            raise ZeroDivisionError


@pytest.mark.parametrize(
    ("apply", "message"),
    [
        (raises, "apply raised ValueError: no such seam at "),
        (exits, "apply raised SystemExit: no such seam at "),
        (interrupts, "apply raised KeyboardInterrupt at "),
        (interrupts_late, "apply raised KeyboardInterrupt when it was to mend at "),
        (edits_the_judge, "it edits the judge: harness.judge.verdict.judge_cell"),
        (raises_late, "apply raised ValueError when it was to mend: can't mend at "),
        (patches_nothing, "apply raised AttributeError: module 'harness.fp8.ops' has no attribute 'no_such_name' at "),
        (plain, "apply gives back an object of type ReferenceProvider, no context manager: decorate a generator with "),
        (
            bare,
            "apply gives back an object of type generator, no context manager: decorate a generator with contextlib",
        ),
        (lambda provider: None, "apply gives back nothing, no context manager: "),
        (yields_nothing, "apply yields nothing: the provider is needed"),
        (
            yields_five,
            "apply yields an object of type int, no provider: it has no autocast, recipe, linear and 10 more",
        ),
        (yields_a_part, "apply yields an object of type Wrapper, no provider: it has no tap at "),
    ],
)
def test_a_fault_that_raises_is_told_with_its_own_line(provided: Callable[..., Spec], apply: Any, message: str) -> None:
    with pytest.raises(FaultError) as caught, loaded_provider(provided(apply)):
        pass
    assert str(caught.value).startswith(f"fault made_faults:F0: {message}")
    assert caught.value.check == RAISED
    assert ops.multiply is not other
    # The line is of the file that holds the fault, not of the helper that it calls or of the harness.
    if apply is not edits_the_judge:
        assert caught.value.site.startswith(f"{__file__}:")


def edited_while_it_runs(spec: Spec, looks: bool, raised: Exception | None) -> None:
    with loaded_provider(spec) as loaded:
        loaded.unedited()
        ops.multiply()  # type: ignore[call-arg]
        if looks:
            loaded.unedited()
            pytest.fail("was let through")
        if raised is not None:
            raise raised


@pytest.mark.parametrize(("looks", "raised"), [(True, None), (False, None), (False, ValueError("of the judge"))])
def test_a_judge_that_is_edited_while_the_cell_runs_is_seen_before_it_judges_and_after(
    provided: Callable[..., Spec], looks: bool, raised: Exception | None
) -> None:
    with pytest.raises(FaultError, match="it edits the judge") as caught:
        edited_while_it_runs(provided(edits_the_judge_later), looks, raised)
    assert caught.value.check == RAISED


def test_whoever_looks_for_leftovers_cannot_be_blinded(
    provided: Callable[..., Spec], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Snapshot, "left", Snapshot.left)  # put back afterwards
    with pytest.raises(FaultError, match="not mended") as caught, loaded_provider(provided(blinds_the_look)):
        pass
    assert caught.value.check == UNMENDED


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, GeneratorExit])
def test_leftovers_are_told_whatever_the_cell_raised(provided: Callable[..., Spec], error: type[BaseException]) -> None:
    with pytest.raises(FaultError, match="not mended"), loaded_provider(provided(leaves)):
        raise error
    with pytest.raises(error), loaded_provider(provided(fine)):
        raise error


def test_ctrl_c_while_a_fault_is_applied_stays_ctrl_c(provided: Callable[..., Spec]) -> None:
    @contextmanager
    def slow(provider: Any) -> Iterator[Any]:
        signal.raise_signal(signal.SIGINT)
        yield provider

    with pytest.raises(KeyboardInterrupt), loaded_provider(provided(slow)):
        pass


def test_on_a_provider_of_which_it_breaks_nothing_a_fault_is_refused(provided: Callable[..., Spec]) -> None:
    spec = provided(fine)
    fault = sys.modules["made_faults"].F0
    sys.modules["made_faults"].F0 = replace(fault, providers=("transformer_engine",))  # type: ignore[attr-defined]
    with pytest.raises(FaultError, match="it breaks nothing of reference, only of transformer_engine"):
        with loaded_provider(spec):
            pass


AT_IMPORT = """
from contextlib import nullcontext
from harness.faults.fault import Fault
from harness.judge import verdict
{edit}
FAULT = Fault("at_import", "nothing", "state.unchanged", nullcontext)
"""


@pytest.mark.parametrize("edit", ["", "verdict.judge_cell = None", "verdict.judge_cell.__kwdefaults__.clear()"])
def test_a_module_that_edits_the_harness_when_it_is_imported_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, edit: str
) -> None:
    name = f"at_import_{len(edit)}"
    (tmp_path / f"{name}.py").write_text(AT_IMPORT.format(edit=edit))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(verdict, "judge_cell", verdict.judge_cell)
    defaults = verdict.judge_cell.__kwdefaults__
    monkeypatch.setattr(verdict.judge_cell, "__kwdefaults__", dict(defaults or {}))
    if not edit:
        assert load_fault(f"{name}:FAULT").name == "at_import"
        return
    message = rf"importing {name} edits the harness: harness\.judge\.verdict\.judge_cell"
    with pytest.raises(LoadError, match=message):
        load_fault(f"{name}:FAULT")
