"""Support checks inside compiled code: constants that leave nothing in the graph, and that don't outlive what they
rest on.

Catches: a check that is traced into the graph (a device query, a cache that is filled while tracing), so that it breaks
it or runs on every call; an answer that was baked in for one architecture and is still given on another
(pytorch/pytorch#128437, NVIDIA/TransformerEngine#3130); a cached answer that eager code goes on with where compiled
code asks anew (pytorch/pytorch#146598); a refusal without its reason.

The architecture changes by the provider's own pretence, for a provider whose answers are to follow it (feature
``answers_follow_arch``); a library that keeps its answers for the process, in eager code too, is not asked. A second
CUDA device is never visible to a process that runs cells, so a change of the current device is not among the facts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from cases.toy_linear import HISTORY_STEPS, STEPS, linears_of, rows_of
from harness import torch_compat
from harness.probing import Probing
from harness.program import Case, CaseContext, Expects, Program, features_of, lacks
from harness.providers.protocol import Provider
from harness.types import ARCHES, RECIPES, Axes, Evidence, Spec

Answers = dict[str, tuple[bool, str]]

# Recipes whose checks differ; per row asks the same kernels as per tensor, and delayed scaling too.
ASKED = tuple(name for name in RECIPES if name not in ("delayed_scaling", "float8_rowwise_scaling"))


def build(ctx: CaseContext) -> Program:
    """The recipe is checked in compiled code, between two regions; where the answer is no, the result is zero."""
    layers, autocast = linears_of(ctx, 2), ctx.provider.autocast
    check, name = features_of(ctx.provider)["support_check"], ctx.axes.recipe.name

    def forward(recipes: tuple[Any, ...], x: torch.Tensor) -> torch.Tensor:
        with autocast(enabled=True, recipe=recipes[0]):
            x = layers[0](x)
        available, _ = check(name)
        with autocast(enabled=available, recipe=recipes[0]):
            x = layers[1](x)
        return x if check(name)[0] else x * 0

    return Program(
        model=layers,
        forward=forward,
        recipes=lambda: (ctx.provider.recipe(ctx.axes.recipe),),
        make_inputs=rows_of(ctx),
        expects=Expects(
            (ctx.axes.recipe.label,) * 2, steps=HISTORY_STEPS if ctx.axes.recipe.name == "delayed_scaling" else STEPS
        ),
        probes=facts,
        probe_levels=(Evidence.NATIVE, Evidence.EMULATED, Evidence.TRACED),
    )


class Recorded:
    """A torch.compile backend that runs graphs as they are and keeps the names of what each one calls."""

    def __init__(self) -> None:
        self.graphs: list[list[str]] = []

    def __call__(self, graph: torch.fx.GraphModule, inputs: Any) -> Callable[..., Any]:
        """What torch.compile calls with a graph."""
        del inputs
        nodes = [node for node in graph.graph.nodes if node.op.startswith("call_")]
        self.graphs.append([getattr(node.target, "__name__", str(node.target)) for node in nodes])
        return graph.forward


def facts(probing: Probing) -> None:
    """What checks leave in graphs, and their answers as each architecture and back, always by the same compiled
    code."""
    _leaves_nothing(probing)
    _follows_the_architecture(probing)


def _leaves_nothing(probing: Probing) -> None:
    check, autocast = features_of(probing.provider)["support_check"], probing.provider.autocast
    recipe = probing.provider.recipe(probing.axes.recipe)

    def asking(x: torch.Tensor) -> torch.Tensor:
        for name in ASKED:
            check(name)
        return x + 1

    def entering(x: torch.Tensor) -> torch.Tensor:
        with autocast(enabled=True, recipe=recipe):
            return x + 1

    refused = probing.axes.recipe.name == "delayed_scaling"  # that region can't be entered in compiled code
    for what, function in (("support checks", asking), ("entering a region", entering)):
        if function is entering and refused:
            continue
        with probing.part(f"after {what} in compiled code"):
            recorded = _compiled(function, torch.ones(2))
            probing.fact(f"graphs of one addition beside {what}", [["add"]], recorded.graphs)


def _compiled(function: Callable[..., Any], x: torch.Tensor) -> Recorded:
    torch_compat.reset_dynamo()
    recorded = Recorded()
    torch.compile(function, backend=recorded, fullgraph=True)(x)
    return recorded


def _follows_the_architecture(probing: Probing) -> None:
    check, provider, recorded = features_of(probing.provider)["support_check"], probing.provider, Recorded()

    def asking(x: torch.Tensor) -> tuple[torch.Tensor, Answers]:
        return x + 1, {name: check(name) for name in ASKED}

    torch_compat.reset_dynamo()
    compiled, x = torch.compile(asking, backend=recorded, fullgraph=True), torch.ones(2)
    with probing.part("after pretending to be other architectures"):
        own = compiled(x)[1]
        probing.fact("answers here", _shown(asking(x)[1]), _shown(own))
        probing.fact("refusals here that give no reason", [], _unreasoned(own))
        follows = "answers_follow_arch" in features_of(provider)
        for arch in [name for name in ARCHES if follows and name.startswith("sm")]:
            with provider.pretend(arch):
                _facts_of_arch(probing, arch, asking(x)[1], compiled(x)[1])
        seen = len(recorded.graphs)
        probing.fact("answers here, after all that", _shown(own), _shown(compiled(x)[1]))
        probing.fact("answers here, after all that, eagerly", _shown(own), _shown(asking(x)[1]))
        probing.fact("graphs that coming back costs", 0, len(recorded.graphs) - seen)


def _facts_of_arch(probing: Probing, arch: str, eager: Answers, compiled: Answers) -> None:
    believed = {name: probing.provider.supports(Spec(name), arch) for name in ASKED}
    expected = {name: belief.level != "unsupported" for name, belief in believed.items() if belief.offered}
    probing.fact(f"what runs on {arch}", expected, {name: eager[name][0] for name in expected})
    probing.fact(f"answers as {arch}, compiled", _shown(eager), _shown(compiled))
    probing.fact(f"refusals as {arch} that give no reason", [], _unreasoned(eager))


def _unreasoned(answers: Answers) -> list[str]:
    """Recipes that are refused without a word: ``(False, "")`` leaves a user nothing to mend."""
    return [name for name, (available, reason) in answers.items() if not available and not reason.strip()]


def _shown(answers: Answers) -> str:
    return "; ".join(f"{name}: {answer[0]} {answer[1]}".strip() for name, answer in answers.items())


def unavailable(provider: Provider, axes: Axes, arch: str) -> str:
    """A provider must let its checks be called."""
    del axes, arch
    return lacks(provider, "support_check")


CASE = Case(
    name="support_constant",
    build=build,
    catches="support checks that are traced into the graph, and answers that go stale in it",
    answers=(
        "pytorch/pytorch#128437",
        "NVIDIA/TransformerEngine#3130",
        "pytorch/pytorch#146598",
        "NVIDIA/TransformerEngine#2759",
    ),
    unavailable=unavailable,
)
