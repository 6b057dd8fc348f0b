"""A probe: a layer's ``state_dict``, and other layers that load it, eagerly and in code that was compiled before."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from typing import Any

import torch

from cases.ways import ways
from harness.data import draw
from harness.probing import Probing
from harness.program import CaseContext


def module_state(ctx: CaseContext) -> Callable[[Probing], None]:
    """What is saved are all parameters; a layer that loads them stays itself and computes what the saved one does.

    Nothing has gradients, so that no scale of earlier steps moves. torch's ``load_state_dict`` writes into the
    parameters, which an optimizer holds; it puts others in their place only where it is asked to (``assign``).
    """
    autocast = ctx.provider.autocast

    def forward(recipes: tuple[Any, ...], layer: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
        with autocast(enabled=True, recipe=recipes[0]):
            return layer(x)  # type: ignore[no-any-return]

    def probes(probing: Probing) -> None:
        source, *targets = _layers(ctx, 3)
        own = dict(source.named_parameters())
        saved = copy.deepcopy(source.state_dict())
        lost = [name for name in own if name not in saved or not torch.equal(own[name], saved[name])]
        probing.fact("parameters that state_dict leaves out, or changes", [], lost)
        probing.fact("what torch.load without pickled code makes of state_dict", "all of it", _through_file(source))
        generator = torch.Generator().manual_seed(ctx.axes.seed)
        x = draw(ctx.axes.data, ctx.axes.shape[:2], generator, ctx.dtype, ctx.device)
        recipes = (ctx.provider.recipe(ctx.axes.recipe),)
        for (how, run), target in zip(ways(ctx, forward), targets, strict=False):
            if how == "compiled" and ctx.axes.backend == "inductor":
                continue  # other roundings
            with probing.part(f"after loading a layer, {how}"), torch.no_grad():
                expected, before = forward(recipes, source, x), run(recipes, target, x)
                _load(probing, how, target, saved)
                with torch.compiler.set_stance("fail_on_recompile"):
                    seen = run(recipes, target, x)
                differ = [torch.equal(seen, expected), torch.equal(seen, before)]
                probing.fact(f"results equal the saved layer's and its own earlier ones, {how}", [True, False], differ)

    return probes


def _layers(ctx: CaseContext, count: int) -> list[torch.nn.Module]:
    """Layers of other weights, and the generators as they were."""
    _, width, out = ctx.axes.shape
    with torch.random.fork_rng(devices=[ctx.device] if ctx.device.type == "cuda" else []):
        return [ctx.provider.linear(width, out, bias=True, dtype=ctx.dtype, device=ctx.device) for _ in range(count)]


def _through_file(layer: torch.nn.Module) -> str:
    """torch.load's default since 2.6: nothing but tensors and plain containers (``weights_only``)."""
    file = io.BytesIO()
    torch.save(layer.state_dict(), file)
    file.seek(0)
    try:
        loaded = torch.load(file, weights_only=True)
    except pickle.UnpicklingError:
        return "a refusal"
    return "all of it" if set(loaded) == set(layer.state_dict()) else f"{', '.join(loaded)} alone"


def _load(probing: Probing, how: str, layer: torch.nn.Module, saved: dict[str, Any]) -> None:
    before = dict(layer.named_parameters())
    layer.load_state_dict(saved, strict=False)  # what is missing has been said
    replaced = [name for name, parameter in layer.named_parameters() if parameter is not before[name]]
    probing.fact(f"parameters that loading replaced by others, {how}", [], replaced)
