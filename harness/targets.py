"""The user's own program as a cell: ``target: package.module:attribute`` names a callable that makes it
(docs/target.md).

The callable takes the context or nothing, and returns a :class:`~harness.program.Program` or ``(module, inputs)``. What
is wrong with it is said with its file and line.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from harness.ctrl_c import CtrlC
from harness.data import draw
from harness.layout import laid_out_like
from harness.observe.sites import frames_of, innermost, site
from harness.observe.state import diff, freeze
from harness.observe.types import StateDiff
from harness.plan.nearest import nearest
from harness.program import CaseContext, Expects, NoOracle, Program, Step
from harness.registry import LoadError

Inputs = Callable[[torch.Generator], tuple[torch.Tensor, ...]]

# As in cases/toy_linear.py: data of another magnitude in the second step; more steps where scales have a history.
STEPS = 2
HISTORY_STEPS = 4


class TargetError(Exception):
    """What a target made is no program; the message says where it stands and what is needed."""


def look_in(directories: Iterable[Path]) -> None:
    """Let targets be imported from ``directories``, the first one first, before anything that is installed."""
    wanted = [str(directory.resolve()) for directory in directories]
    sys.path[:0] = [path for path in dict.fromkeys(wanted) if path not in sys.path]


def load_target(target: str) -> Callable[..., Any]:
    """The callable that ``package.module:attribute`` names.

    Raises:
        LoadError: its module can't be imported, or has no such callable; with the user's file and line.
    """
    module_name, _, attribute = target.partition(":")
    found: Any = _imported(target, module_name)
    where = getattr(found, "__file__", None) or module_name
    for part in attribute.split("."):
        try:
            found = getattr(found, part)
        except AttributeError as error:
            near = nearest(part, [name for name in dir(found) if not name.startswith("_")])
            hint = f" (did you mean {near}?)" if near else ""
            raise LoadError(f"target {target}: {where} has no {attribute}{hint}") from error
    if not callable(found):
        raise LoadError(f"target {target}: {where} has {attribute}, but it can't be called ({type(found).__name__})")
    return found  # type: ignore[no-any-return]


def code_of(target: str) -> tuple[str, ...]:
    """Where the user's own code lies: the directories of the package that ``target`` is in, or that of its file; of a
    file among what is installed that file alone. Empty without a target, and where nothing can be found."""
    top = target.partition(":")[0].partition(".")[0]
    try:
        spec = importlib.util.find_spec(top) if top else None
    except ValueError:  # a module made by hand, without a spec
        spec = None
    if spec is None:
        return ()
    if spec.submodule_search_locations is not None:
        return tuple(os.path.abspath(path) for path in spec.submodule_search_locations)
    if not spec.has_location or spec.origin is None:
        return ()
    file = os.path.abspath(spec.origin)
    directory = os.path.dirname(file)
    return (file,) if os.path.basename(directory) in ("site-packages", "dist-packages") else (directory,)


def _imported(target: str, module_name: str) -> Any:
    with CtrlC() as ctrl_c:
        try:
            return importlib.import_module(module_name)
        except BaseException as error:  # a user's file may raise anything at import, and may be a script
            if isinstance(error, KeyboardInterrupt) and ctrl_c.came:
                raise
            raise LoadError(_import_message(target, module_name, error)) from error


def _import_message(target: str, module_name: str, error: BaseException) -> str:
    if isinstance(error, ModuleNotFoundError) and error.name and f"{module_name}.".startswith(f"{error.name}."):
        places = "neither installed, nor in the working directory, nor beside the matrix"
        return f"target {target}: no module named {error.name!r}: {places}"
    place = innermost(frames_of(error.__traceback__))
    if isinstance(error, SyntaxError) and error.filename:
        place = site(error.filename, error.lineno)
    raised = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return f"{place + ': ' if place else ''}importing {module_name} raised {raised}"


def build_target(ctx: CaseContext) -> Program:
    """The program of ``ctx.axes.target``.

    Raises:
        LoadError: as :func:`load_target`.
        TargetError: what it made is no program.
        NoOracle: on the judge's oracle, where its FP8 layers are not the context's.
        Exception: whatever the user's code raises.
    """
    make = load_target(ctx.axes.target)
    named = f", named at {ctx.origin}" if ctx.origin else ""
    name = f"target {ctx.axes.target} ({_place(make)}{named})"
    takes_context = _takes_context(make, name)
    on_oracle = not hasattr(ctx.provider, "supports")
    if on_oracle and not takes_context:
        raise NoOracle(f"{ctx.axes.target} takes no context, so its layers can't be made on the oracle")
    made = make(ctx) if takes_context else make()
    program = made if isinstance(made, Program) else _wrapped(made, ctx, name)
    if on_oracle:
        _check_on_oracle(program.model, ctx)
        return replace(program, drive=_in_regions_of_the_oracle(program, ctx))
    return program


def _place(make: Callable[..., Any]) -> str:
    """File and line of a function, a method, or a class."""
    code = getattr(inspect.unwrap(make), "__code__", None)
    if code is not None:
        return site(code.co_filename, code.co_firstlineno)
    try:
        return site(inspect.getfile(make), inspect.getsourcelines(make)[1])
    except (TypeError, OSError):
        return getattr(make, "__module__", None) or "a place unknown"


def _takes_context(make: Callable[..., Any], name: str) -> bool:
    """Whether it is to be called with the context.

    Raises:
        TargetError: it needs other arguments than that.
    """
    try:
        parameters = inspect.signature(make).parameters.values()
    except (TypeError, ValueError):  # written in C, without a signature
        return False
    needed = [p for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if len(needed) > 1 or any(p.kind is p.KEYWORD_ONLY for p in needed):
        wanted = ", ".join(p.name for p in needed)
        raise TargetError(f"{name}: needs the arguments {wanted}; a target is called with the context, or with nothing")
    return bool(needed) or any(p.name == "ctx" for p in positional)


def _wrapped(made: Any, ctx: CaseContext, name: str) -> Program:
    """``(module, inputs)`` as a program: the module called in a region of the cell's recipe, in compiled code."""
    if not (isinstance(made, (tuple, list)) and len(made) == 2 and isinstance(made[0], torch.nn.Module)):
        raise TargetError(f"{name}: must return a Program or (module, inputs), not {_described(made)}")
    module: torch.nn.Module = _on_device(made[0], ctx.device)
    inputs, exact = _inputs(made[1], ctx, name)
    autocast = ctx.provider.autocast

    def forward(recipes: tuple[Any, ...], *tensors: torch.Tensor) -> torch.Tensor:
        with autocast(enabled=True, recipe=recipes[0]):
            return module(*tensors)  # type: ignore[no-any-return]

    def drive(step: Step) -> torch.Tensor:
        return _one_tensor(step.forward(step.recipes, *step.inputs), name)

    return Program(
        model=module,
        forward=forward,
        recipes=lambda: (ctx.provider.recipe(ctx.axes.recipe),),
        make_inputs=inputs,
        expects=Expects(
            stated=False, draws=True, steps=HISTORY_STEPS if ctx.axes.recipe.name == "delayed_scaling" else STEPS
        ),
        drive=drive,
        exact_inputs=exact,
    )


def _one_tensor(output: Any, name: str) -> torch.Tensor:
    """What a module returned, where it can be judged.

    Raises:
        TargetError: it is several tensors or none, or has no values that carry a gradient.
    """
    if not isinstance(output, torch.Tensor):
        more = "return a Program, whose forward picks one of them"
        raise TargetError(f"{name}: its module returned {_described(output)}, one tensor is needed: {more}")
    what = f"{str(output.dtype).removeprefix('torch.')} tensor of shape {tuple(output.shape)}"
    if not output.is_floating_point():
        raise TargetError(f"{name}: its module returned a {what}, floating-point values are needed")
    if output.numel() == 0:
        raise TargetError(f"{name}: its module returned a {what}, which is empty: there is nothing to judge")
    return output


def _on_device(module: torch.nn.Module, device: torch.device) -> torch.nn.Module:
    """Moved only where it has to be: fake tensors of a traced cell, which others refer to, can't be swapped."""
    tensors = (*module.parameters(), *module.buffers())
    return module.to(device) if any(tensor.device.type != device.type for tensor in tensors) else module


def _inputs(given: Any, ctx: CaseContext, name: str) -> tuple[Inputs, bool]:
    """What draws a batch, and whether its values are to stay as they are drawn.

    Examples are drawn anew: floating-point ones from the cell's data, others (token ids, masks) stay as they are. All
    keep their strides.
    """
    if callable(given) and not isinstance(given, torch.Tensor):
        return _called(given, name), True
    examples: Sequence[Any] = (given,) if isinstance(given, torch.Tensor) else given
    if not isinstance(examples, (tuple, list)) or not all(isinstance(one, torch.Tensor) for one in examples):
        raise TargetError(f"{name}: inputs must be tensors or a function of a generator, not {_described(given)}")
    try:
        examples = [laid_out_like(one.detach(), one).requires_grad_(one.requires_grad) for one in examples]
    except ValueError as error:
        more = "inputs may be expanded, but not overlap otherwise: give a function of a generator"
        raise TargetError(f"{name}: {error}: {more}") from error

    def make_inputs(generator: torch.Generator) -> tuple[torch.Tensor, ...]:
        return tuple(_like(one, ctx, generator) for one in examples)

    return make_inputs, False


def _called(given: Callable[[torch.Generator], Any], name: str) -> Inputs:
    """The user's function, held to what it must return.

    Raises:
        TargetError: it can't be called with a generator.
    """
    why = ""
    try:
        inspect.signature(given).bind(torch.Generator())
    except TypeError as error:
        why = str(error)
    except ValueError:  # written in C, without a signature
        why = ""
    if why:  # outside of the handler: the root of a chain is what a report shows
        raise TargetError(f"{name}: its inputs function is called with a torch.Generator: {why}")

    def make_inputs(generator: torch.Generator) -> tuple[torch.Tensor, ...]:
        drawn = given(generator)
        tensors = (drawn,) if isinstance(drawn, torch.Tensor) else drawn
        if not isinstance(tensors, (tuple, list)) or not all(isinstance(one, torch.Tensor) for one in tensors):
            raise TargetError(f"{name}: its inputs function must return tensors, not {_described(drawn)}")
        return tuple(tensors)

    return make_inputs


def _like(example: torch.Tensor, ctx: CaseContext, generator: torch.Generator) -> torch.Tensor:
    if not example.is_floating_point():
        return laid_out_like(example.to(ctx.device), example)
    values = laid_out_like(draw(ctx.axes.data, example.shape, generator, example.dtype, ctx.device), example)
    return values.requires_grad_(example.requires_grad)


def _described(value: Any) -> str:
    if isinstance(value, (tuple, list)):
        return f"{type(value).__name__} of {', '.join(type(item).__name__ for item in value) or 'nothing'}"
    return type(value).__name__


def _check_on_oracle(model: torch.nn.Module, ctx: CaseContext) -> None:
    """Raise NoOracle for a model whose arithmetic is not the oracle's: it would be compared with itself."""
    if not any(getattr(module, "provider", None) is ctx.provider for module in model.modules()):
        raise NoOracle(f"{ctx.axes.target} makes no layer with ctx.provider.linear")
    for name, parameter in model.named_parameters():
        if parameter.is_floating_point() and parameter.dtype != ctx.dtype:
            dtype = str(parameter.dtype).removeprefix("torch.")
            raise NoOracle(f"{ctx.axes.target}: parameter {name} is {dtype}, whatever ctx.dtype says")


def _in_regions_of_the_oracle(program: Program, ctx: CaseContext) -> Callable[[Step], torch.Tensor]:
    """The program's drive, which raises NoOracle where a layer ran while the library under test was in another state
    than before the step: then a region of the library's own was open, which the oracle knows nothing of."""
    found: list[StateDiff] = []
    before: dict[str, Any] = {}

    def state() -> dict[str, Any]:
        return {key: freeze(value) for key, value in ctx.library().items()}

    def look(module: torch.nn.Module, inputs: Any) -> None:
        del module, inputs
        found.extend(() if found else diff(before, state(), "in a layer"))

    for module in program.model.modules():
        if getattr(module, "provider", None) is ctx.provider:
            module.register_forward_pre_hook(look)

    def drive(step: Step) -> torch.Tensor:
        before.update(state())
        try:
            return program.run(step)
        finally:
            if found:  # whatever the program made of it
                instead = "open regions with ctx.provider.autocast, given recipes of ctx.provider.recipe"
                raise NoOracle(f"{ctx.axes.target} opens a region with the library's own autocast: {instead}")

    return drive
