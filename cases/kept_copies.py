"""Facts beside the case microbatch: copies of a layer that keeps its weight, and what such a layer refuses."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from dataclasses import dataclass

import torch

from harness.data import draw
from harness.observe.errors import describe_error, is_documented
from harness.probing import Probing
from harness.program import features_of
from harness.types import Spec

COPIES: dict[str, Callable[[torch.nn.Module], torch.nn.Module]] = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda layer: pickle.loads(pickle.dumps(layer)),
}
DELAYED = Spec("delayed_scaling")


def copies(probing: Probing, layer: torch.nn.Module) -> None:
    """A copy of a layer computes what the layer does, and neither meets what the other keeps from then on.

    Of a provider that says its layers can be copied (feature ``copies``).
    """
    if "copies" not in features_of(probing.provider):
        return
    generator = torch.Generator().manual_seed(probing.axes.seed)
    x = draw(probing.axes.data, probing.axes.shape[:2], generator, probing.dtype, probing.device)

    def output(of: torch.nn.Module, first: bool) -> torch.Tensor:
        recipe = probing.provider.recipe(probing.axes.recipe)
        with torch.no_grad(), probing.provider.autocast(enabled=True, recipe=recipe):
            result: torch.Tensor = features_of(probing.provider)["cached_linear"](of, x, first)
        return result

    for how, copied in COPIES.items():
        with probing.part(f"after copying a layer by {how}"):
            kept = output(layer, True)
            twin = copied(layer)
            same = torch.equal(output(twin, False), kept)
            probing.fact(f"{how}: the copy computes the same, with the kept weight", True, same)
            with torch.no_grad():
                twin.get_parameter("weight").mul_(-1.25)
            changed = output(twin, True)
            probing.fact(f"{how}: the copy has a weight of its own", False, torch.equal(changed, kept))
            own = torch.equal(output(layer, False), kept)
            probing.fact(f"{how}: the layer uses what it kept, whatever the copy keeps", True, own)


@dataclass(frozen=True)
class _Refused:
    """A call that must be refused in a region of ``spec``, and in what ways it can be made."""

    spec: Spec
    call: Callable[[], object]
    ways: tuple[str, ...] = ("eager", "compiled")


def refusals(probing: Probing, layer: torch.nn.Module) -> None:
    """What a provider says that its layers refuse must be refused, each time: (error, text) by feature.

    ``refuses_kept_delayed``: ``is_first_microbatch`` in a region of delayed scaling, which compiles nowhere.
    ``refuses_other_dtype``: an input of another dtype than the weight's. ``refuses_other_width``: one whose rows are
    longer than the weight's. Transformer Engine takes the first two (it keeps weights under delayed scaling).
    """
    offered = features_of(probing.provider)
    rows, width, _ = probing.axes.shape
    x = torch.ones(rows, width, dtype=probing.dtype, device=probing.device)
    other = x.to(torch.float32 if probing.dtype != torch.float32 else torch.bfloat16)
    longer = torch.cat([x, x], dim=1)
    asked = {
        "refuses_kept_delayed": _Refused(DELAYED, lambda: offered["cached_linear"](layer, x, True), ("eager",)),
        "refuses_other_dtype": _Refused(probing.axes.recipe, lambda: layer(other)),
        "refuses_other_width": _Refused(probing.axes.recipe, lambda: layer(longer)),
    }
    for name, refused in asked.items():
        if name in offered and probing.provider.supports(refused.spec, probing.arch).level != "unsupported":
            error, text = offered[name]()
            for how in refused.ways:
                with probing.part(f"after {name}, {how}"):
                    enter = _entering(probing, refused, how)
                    for attempt in ("at first", "again"):
                        probing.fact(f"{name}, {how}, {attempt}", error, _raised(enter, error, text))


def _entering(probing: Probing, refused: _Refused, how: str) -> Callable[[], object]:
    autocast, recipe = probing.provider.autocast, probing.provider.recipe(refused.spec)

    def enter() -> object:
        with autocast(enabled=True, recipe=recipe):
            return refused.call()

    return enter if how == "eager" else torch.compile(enter, backend="eager", fullgraph=probing.axes.fullgraph)


def _raised(enter: Callable[[], object], error: str, text: str) -> str:
    """``error`` where it was raised as documented, else what came."""
    try:
        enter()
    except Exception as raised:  # whatever it is, it is the fact
        seen = describe_error(raised, "probe")
        return error if is_documented(seen, error, text) else f"{seen.type}: {seen.message}"
    return "nothing"
