"""harness/targets.py: where targets are found, how they are called, what they may return; errors with the user's
line."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from harness.judge.oracle_provider import OracleProvider
from harness.observe.run import Batches
from harness.program import CaseContext, NoOracle, Program, Step
from harness.providers.reference import ReferenceProvider
from harness.registry import LoadError
from harness.targets import TargetError, build_target, code_of, load_target, look_in
from harness.types import Axes, Spec

AXES = Axes("target", Spec("reference"), Spec("float8_current_scaling"))
MODULE = """
import torch
from harness.fp8 import ToyLinear, autocast
from harness.program import Expects, Program

def linear(ctx):
    return ctx.provider.linear(32, 16, bias=True, dtype=ctx.dtype, device=ctx.device)

def with_context(ctx):
    return linear(ctx), torch.zeros(16, 32, dtype=ctx.dtype, requires_grad=True)

def by_name(ctx=None):
    return with_context(ctx)

def alone():
    return ToyLinear(32, 16), (torch.zeros(4, 32, dtype=torch.bfloat16), torch.arange(3))

def drawn(ctx):
    return linear(ctx), lambda generator: torch.rand(16, 32, generator=generator).to(ctx.dtype)

def whole(ctx):
    model = linear(ctx)
    return Program(model, lambda recipes, x: model(x), lambda: (), lambda g: (torch.zeros(16, 32),), Expects(("a",)))

def layouts(ctx):
    x = torch.zeros(32, 2, 16, dtype=ctx.dtype)
    return linear(ctx), (x[:, 1].t().requires_grad_(), x[:1, 0].expand(8, 16), torch.arange(12).reshape(3, 4)[:, 1:])

def overlapping(ctx):
    return linear(ctx), torch.zeros(47, dtype=ctx.dtype).unfold(0, 32, 1)

class Maker:
    def __init__(self, ctx):
        raise RuntimeError("a maker is built, not called")
    @staticmethod
    def build(ctx):
        return with_context(ctx)

def own_dtype(ctx):
    model = torch.nn.Sequential(linear(ctx), torch.nn.LayerNorm(16, dtype=torch.bfloat16))
    return model, torch.zeros(16, 32)

def no_fp8(ctx):
    return torch.nn.Linear(32, 16, dtype=ctx.dtype), torch.zeros(16, 32)

def returns_a_number(ctx):
    return 3

def wrong_inputs(ctx):
    return linear(ctx), "x"

def wrong_drawn(ctx):
    return linear(ctx), lambda generator: ("x",)

def uncallable_drawn(ctx):
    return linear(ctx), lambda: torch.zeros(16, 32)

def nothing_drawn(ctx):
    return linear(ctx), lambda generator: None

def two_arguments(ctx, size):
    return size

class Pair(torch.nn.Module):
    def forward(self, x):
        return x, x

def returns_pair():
    return Pair(), torch.zeros(2, 2)

class Returns(torch.nn.Module):
    def __init__(self, value):
        super().__init__()
        self.value = value
    def forward(self, x):
        return self.value

def returns_dict():
    return Returns({"y": torch.zeros(2)}), torch.zeros(2, 2)

def returns_none():
    return Returns(None), torch.zeros(2, 2)

def returns_indices():
    return Returns(torch.arange(3)), torch.zeros(2, 2)

def returns_nothing():
    return Returns(torch.zeros(0, 4)), torch.zeros(2, 2)

class OwnRegion(torch.nn.Module):
    def __init__(self, layer, swallow=False):
        super().__init__()
        self.layer, self.swallow = layer, swallow
    def forward(self, x):
        with autocast(enabled=False):
            try:
                return self.layer(x)
            except Exception:
                if not self.swallow:
                    raise
                return x

def own_region(ctx):
    return OwnRegion(linear(ctx)), torch.zeros(16, 32, dtype=ctx.dtype)

def own_region_swallowing(ctx):
    return OwnRegion(linear(ctx), swallow=True), torch.zeros(16, 32, dtype=ctx.dtype)

number = 3
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The name of a module beside the matrix."""
    (tmp_path / "users_model.py").write_text(MODULE)
    (tmp_path / "broken_model.py").write_text("import torch\n\ntorch.no_such_thing\n")
    (tmp_path / "unwritten_model.py").write_text("x = 1\ndef f(:\n")
    (tmp_path / "script_model.py").write_text("import sys\n\nsys.exit('a script')\n")
    (tmp_path / "stopped_model.py").write_text("raise KeyboardInterrupt\n")
    (tmp_path / "needy_model.py").write_text("import no_such_package_at_all\n")
    monkeypatch.setattr(sys, "path", list(sys.path))
    look_in([tmp_path])
    importlib.invalidate_caches()
    yield "users_model"
    for name in ("users_model", "broken_model", "unwritten_model", "needy_model", "script_model", "stopped_model"):
        sys.modules.pop(name, None)


def context(target: str, *, oracle: bool = False) -> CaseContext:
    library = ReferenceProvider()
    provider = OracleProvider(torch.bfloat16) if oracle else library
    axes = Axes("target", Spec("reference"), Spec("float8_current_scaling"), target=target)
    dtype = torch.float64 if oracle else torch.bfloat16
    origin = "mine.yaml:4:12 matrix.target"
    return CaseContext(provider, axes, None, torch.device("cpu"), dtype, library=library.snapshot, origin=origin)


def test_directories_come_first_once_and_in_order(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "path", ["installed"])
    one, two = tmp_path / "one", tmp_path / "two"
    look_in([one, two, one])
    look_in([two])
    assert sys.path == [str(one), str(two), "installed"]


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("no_such_module:build", "no module named 'no_such_module': neither installed, nor in the working directory"),
        ("users_model.inner:build", "no module named 'users_model.inner'"),
        ("users_model:alown", "users_model.py has no alown (did you mean alone?)"),
        ("users_model:Maker.bulid", "users_model.py has no Maker.bulid (did you mean build?)"),
        ("stopped_model:build", "stopped_model.py:1: importing stopped_model raised KeyboardInterrupt"),
        ("script_model:build", "script_model.py:3: importing script_model raised SystemExit: a script"),
        ("users_model:number", "has number, but it can't be called (int)"),
        ("broken_model:build", "broken_model.py:3: importing broken_model raised AttributeError"),
        ("unwritten_model:build", "unwritten_model.py:2: importing unwritten_model raised SyntaxError"),
        ("needy_model:build", "needy_model.py:1: importing needy_model raised ModuleNotFoundError"),
    ],
)
def test_what_cant_be_loaded_is_said_with_its_place(module: str, target: str, message: str) -> None:
    with pytest.raises(LoadError) as raised:
        load_target(target)
    assert message in str(raised.value)
    assert "Traceback" not in str(raised.value)


@pytest.mark.parametrize("attribute", ["with_context", "by_name", "Maker.build", "drawn"])
def test_a_module_becomes_a_program_in_a_region_of_the_cells_recipe(module: str, attribute: str) -> None:
    provider = ReferenceProvider()
    program = build_target(context(f"{module}:{attribute}"))
    inputs = program.make_inputs(torch.Generator().manual_seed(0))
    with provider.tap() as records:
        program.run(Step(0, program.forward, program.recipes(), inputs))
    assert [record.recipe for record in records] == ["float8_current_scaling"]
    assert not program.expects.stated
    assert program.expects.draws  # nobody says that it doesn't
    assert program.exact_inputs is (attribute == "drawn")


def test_examples_say_shape_dtype_and_gradient_and_the_cell_draws_the_values(module: str) -> None:
    program = build_target(context(f"{module}:with_context"))
    (x,) = program.make_inputs(torch.Generator().manual_seed(0))
    assert (x.shape, x.dtype, x.requires_grad) == ((16, 32), torch.bfloat16, True)
    assert float(x.detach().abs().sum()) > 0
    floating, ids = build_target(context(f"{module}:alone")).make_inputs(torch.Generator().manual_seed(0))
    assert not floating.requires_grad
    assert ids.tolist() == [0, 1, 2]  # what isn't floating-point stays as it is


def test_examples_say_their_strides_too(module: str) -> None:
    program = build_target(context(f"{module}:layouts"))
    batches = Batches(program, AXES, kept=1)
    for inputs in (program.make_inputs(torch.Generator().manual_seed(0)), batches.inputs(0), batches.inputs(1)):
        sliced, expanded, ids = inputs
        assert [(x.stride(), x.storage_offset()) for x in inputs] == [((1, 32), 16), ((0, 1), 0), ((4, 1), 1)]
        assert sliced.is_leaf
        assert sliced.requires_grad
        assert not any(x.isnan().any() for x in (sliced, expanded))
        assert torch.equal(expanded[0], expanded[7])
        assert ids.tolist() == [[1, 2, 3], [5, 6, 7], [9, 10, 11]]


def test_a_program_is_taken_as_it_is(module: str) -> None:
    program = build_target(context(f"{module}:whole"))
    assert isinstance(program, Program)
    assert program.expects.stated
    assert program.expects.fp8_linears == ("a",)


@pytest.mark.parametrize(
    ("attribute", "message"),
    [
        ("returns_a_number", "must return a Program or (module, inputs), not int"),
        ("wrong_inputs", "inputs must be tensors or a function of a generator, not str"),
        ("overlapping", "share memory: inputs may be expanded, but not overlap otherwise"),
        ("two_arguments", "needs the arguments ctx, size"),
        ("uncallable_drawn", "its inputs function is called with a torch.Generator: too many positional arguments"),
    ],
)
def test_what_is_no_program_is_said_with_the_users_line(module: str, attribute: str, message: str) -> None:
    with pytest.raises(TargetError) as raised:
        build_target(context(f"{module}:{attribute}"))
    assert message in str(raised.value)
    line = MODULE.splitlines().index(next(x for x in MODULE.splitlines() if x.startswith(f"def {attribute}"))) + 1
    assert f"users_model.py:{line}, named at mine.yaml:4:12 matrix.target)" in str(raised.value)


def test_results_and_inputs_that_are_no_tensors_are_said_too(module: str) -> None:
    program = build_target(context(f"{module}:returns_pair"))
    with pytest.raises(TargetError, match="its module returned tuple of Tensor, Tensor, one tensor is needed"):
        program.run(Step(0, program.forward, program.recipes(), (torch.zeros(2, 2),)))
    for attribute, got in (("wrong_drawn", "tuple of str"), ("nothing_drawn", "NoneType")):
        with pytest.raises(TargetError, match=f"its inputs function must return tensors, not {got}"):
            build_target(context(f"{module}:{attribute}")).make_inputs(torch.Generator())


@pytest.mark.parametrize(
    ("attribute", "got"),
    [
        ("returns_dict", "returned dict, one tensor is needed"),
        ("returns_none", "returned NoneType, one tensor is needed"),
        ("returns_indices", r"returned a int64 tensor of shape \(3,\), floating-point values are needed"),
        ("returns_nothing", r"returned a float32 tensor of shape \(0, 4\), which is empty"),
    ],
)
def test_results_without_values_to_judge_are_said(module: str, attribute: str, got: str) -> None:
    program = build_target(context(f"{module}:{attribute}"))
    with pytest.raises(TargetError, match=got):
        program.run(Step(0, program.forward, program.recipes(), (torch.zeros(2, 2),)))


def test_on_the_oracle_the_layers_are_the_oracles(module: str) -> None:
    program = build_target(context(f"{module}:with_context", oracle=True))
    assert {parameter.dtype for parameter in program.model.parameters()} == {torch.float64}


@pytest.mark.parametrize(
    ("attribute", "reason"),
    [
        ("alone", "takes no context"),
        ("no_fp8", "makes no layer with ctx.provider.linear"),
        ("own_dtype", "parameter 1.weight is bfloat16, whatever ctx.dtype says"),
    ],
)
def test_what_would_be_compared_with_itself_has_no_oracle(module: str, attribute: str, reason: str) -> None:
    with pytest.raises(NoOracle) as raised:
        build_target(context(f"{module}:{attribute}", oracle=True))
    assert reason in str(raised.value)


@pytest.mark.parametrize("attribute", ["own_region", "own_region_swallowing"])
def test_a_region_of_the_librarys_own_has_no_oracle(module: str, attribute: str) -> None:
    program = build_target(context(f"{module}:{attribute}", oracle=True))
    x = torch.zeros(16, 32, dtype=torch.float64)
    with pytest.raises(NoOracle, match="opens a region with the library's own autocast"):
        program.run(Step(0, program.forward, program.recipes(), (x,)))


def test_regions_of_the_oracle_leave_the_library_alone(module: str) -> None:
    program = build_target(context(f"{module}:with_context", oracle=True))
    x = torch.zeros(16, 32, dtype=torch.float64)
    for index in range(2):
        assert program.run(Step(index, program.forward, program.recipes(), (x,))).shape == (16, 16)


@pytest.mark.parametrize(
    ("target", "found"),
    [
        ("owned:build", "."),
        ("owned_package.inner:build", "owned_package"),
        ("owned_space.inner:build", "owned_space"),
        ("no_such_module_at_all:build", None),
        ("sys:exit", None),
        ("__main__:build", None),
        ("", None),
    ],
)
def test_the_users_code_is_what_lies_beside_the_module_or_in_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str, found: str | None
) -> None:
    for name in ("owned.py", "owned_package/__init__.py", "owned_package/inner.py", "owned_space/inner.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("raise AssertionError('imported')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", None)
    assert code_of(target) == (() if found is None else (str((tmp_path / found).resolve()),))


def test_of_an_installed_file_only_that_file_is_the_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "site-packages" / "owned_installed.py"
    file.parent.mkdir()
    file.touch()
    monkeypatch.syspath_prepend(str(file.parent))
    assert code_of("owned_installed:build") == (str(file),)
