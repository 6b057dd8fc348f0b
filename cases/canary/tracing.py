"""What Dynamo makes of an autocast: state, errors that are raised while tracing, resets, contexts from elsewhere,
checkpoints, threads, modes, backward."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

from cases.canary.ground import (
    BLOCK,
    CURRENT,
    TEXT,
    Ground,
    Holder,
    Refused,
    Region,
    State,
    both_modes,
    observed,
    raised,
    region,
    with_own_code,
)
from harness import torch_compat
from harness.observe.census import CensusObserver, reset_compiler

CALLS = 12


# ---- operators of the canary's own ---------------------------------------------------------------------------------


@torch.library.custom_op("fp8canary::depth_seen", mutates_args=())
def depth_seen(x: torch.Tensor) -> torch.Tensor:
    """``x`` plus the depth that the operator sees when it runs."""
    return x + Holder.state.depth


@torch.library.custom_op("fp8canary::fails", mutates_args=())
def fails(x: torch.Tensor) -> torch.Tensor:
    """Raises where it runs, not where it is traced."""
    raise ValueError(TEXT)


@torch.library.custom_op("fp8canary::fails_traced", mutates_args=())
def fails_traced(x: torch.Tensor) -> torch.Tensor:
    """Raises where it is traced, not where it runs."""
    return x.clone()


depth_seen.register_fake(torch.empty_like)
fails.register_fake(torch.empty_like)


@fails_traced.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    raise Refused(TEXT)


# ---- regions and state ---------------------------------------------------------------------------------------------


def nested_is_one_graph(ground: Ground) -> str:
    """The prototype: recipe A, inner B, inner disabled, A again, forward and backward on two backends."""
    autocast, make = ground.provider.autocast, ground.provider.recipe

    def program(outer: Any, inner: Any, x: torch.Tensor) -> torch.Tensor:
        with autocast(enabled=True, recipe=outer):
            x = ground.layers[0](x)
            with autocast(enabled=True, recipe=inner):
                x = ground.layers[1](x)
            with autocast(enabled=False):
                x = ground.layers[0](x)
            return ground.layers[1](x)  # type: ignore[no-any-return]

    seen = []
    for backend in ("eager", "aot_eager"):
        census, results = _with_gradients(ground, program, (make(CURRENT), make(BLOCK)), backend)
        same = all(torch.equal(one, two) for one, two in zip(*results, strict=True))
        seen.append(f"{backend}: graphs {census.graphs}, {'bit-equal' if same else 'not bit-equal'} to eager")
    return "; ".join(seen)


def _with_gradients(ground: Ground, program: Callable[..., Any], recipes: tuple[Any, ...], backend: str) -> Any:
    """The census of the compiled program, and output and input gradient of eager and compiled."""
    reset_compiler()
    results = []
    with CensusObserver(ground.provider.fp8_ops) as observer:
        compiled = torch.compile(program, backend=observer.wrap_backend(backend), fullgraph=True)
        for function in (program, compiled):
            x = ground.batch(grad=True)
            y = function(*recipes, x)
            (gradient,) = torch.autograd.grad(y, x, torch.ones_like(y))
            results.append((y.detach(), gradient))
    return observer.census(), results


def operator_sees_no_region(ground: Ground) -> str:
    def program(x: torch.Tensor) -> torch.Tensor:
        with region("a"):
            return torch.ops.fp8canary.depth_seen(x)  # type: ignore[no-any-return]

    x = torch.zeros(1, device=ground.device)
    seen = [f"eagerly {program(x).item():g}"]
    for backend in ("eager", "aot_eager"):
        reset_compiler()
        seen.append(f"{backend} {torch.compile(program, backend=backend, fullgraph=True)(x).item():g}")
    return "depth " + ", ".join(seen)


def region_around(ground: Ground) -> str:
    """A, B, A, B, A and then outside: one graph for each setting."""
    reset_compiler()
    with CensusObserver(ground.provider.fp8_ops) as observer:
        compiled = torch.compile(ground.layers[0], backend=observer.wrap_backend("eager"))
        for spec in (CURRENT, BLOCK, CURRENT, BLOCK, CURRENT):
            with ground.autocast(spec):
                compiled(ground.batch())
        compiled(ground.batch())
    return f"graphs {observer.census().graphs}"


def resets(ground: Ground) -> str:
    """Twelve calls with a reset after each, in place and by another object in its place."""
    counts = []
    for swap in (False, True):
        reset_compiler()
        with CensusObserver(frozenset()) as observer:
            compiled = torch.compile(_in_region, backend=observer.wrap_backend("eager"), fullgraph=True)
            for _ in range(CALLS):
                compiled(torch.ones(2, device=ground.device))
                if swap:
                    Holder.state = State()
                else:
                    Holder.state.reset()
        counts.append(observer.census().graphs)
    return f"in place {counts[0]} graph(s), swapped {counts[1]}"


def _in_region(x: torch.Tensor) -> torch.Tensor:
    with region("a"):
        return x + 1 if Holder.state.enabled else x


def reset_inside(ground: Ground) -> str:
    def program(x: torch.Tensor) -> torch.Tensor:
        with region("a"):
            x = x + 1
            Holder.state.reset()
        return x

    census = observed(program, [(torch.ones(2, device=ground.device),)] * CALLS, fullgraph=True)
    return f"graphs {census.graphs}, depth after it {Holder.state.depth}"


def container_written_while_tracing(ground: Ground) -> str:
    """The first call fills a dictionary of the state, as Transformer Engine fills autocast_arguments."""

    def program(x: torch.Tensor) -> torch.Tensor:
        if "a" not in Holder.state.arguments:
            Holder.state.arguments["a"] = "a"
        return x + 1

    Holder.state.reset()
    census = observed(program, [(torch.ones(2, device=ground.device),)] * 3, fullgraph=True)
    Holder.state.reset()
    return f"graphs {census.graphs}"


def flag_claimed(ground: Ground) -> str:
    """A compiled module reads and clears the first-module flag, called twice in a region around it."""
    reset_compiler()
    with CensusObserver(frozenset()) as observer:
        compiled = torch.compile(_claims, backend=observer.wrap_backend("eager"), fullgraph=True)
        for _ in range(3):
            with region("a"):
                compiled(torch.ones(2, device=ground.device))
                compiled(torch.ones(2, device=ground.device))
    return f"graphs {observer.census().graphs}"


def _claims(x: torch.Tensor) -> torch.Tensor:
    first, Holder.state.first = Holder.state.first, False
    return x + 1 if first else x - 1


def monotonic_counter(ground: Ground) -> str:
    def program(x: torch.Tensor) -> torch.Tensor:
        Holder.state.depth += 1
        return x + Holder.state.depth

    census = observed(program, [(torch.ones(2, device=ground.device),)] * 4, fullgraph=True, dynamic=False)
    Holder.state.reset()
    return f"graphs {census.graphs}"


# ---- refusals: what reaches the user, by mechanism -----------------------------------------------------------------


def plain_raise(ground: Ground) -> str:
    def program(x: torch.Tensor) -> torch.Tensor:
        if torch.compiler.is_compiling():
            raise Refused(TEXT)
        return x + 1

    return both_modes(program, torch.ones(2, device=ground.device), text=TEXT)


def raise_where_breaks_are_errors(ground: Ground) -> str:
    error_on_graph_break = torch_compat.error_on_graph_break_class()

    def program(x: torch.Tensor) -> torch.Tensor:
        with error_on_graph_break(True):
            if torch.compiler.is_compiling():
                raise Refused(TEXT)
        return x + 1

    return both_modes(program, torch.ones(2, device=ground.device), text=TEXT)


def raise_in_comptime(ground: Ground) -> str:
    comptime = torch_compat.comptime_function()

    def fail(context: Any) -> None:
        raise torch_compat.user_error(TEXT)

    def program(x: torch.Tensor) -> torch.Tensor:
        comptime(fail)
        return x + 1

    return both_modes(program, torch.ones(2, device=ground.device), text=TEXT)


def _refusal() -> Callable[[], bool]:
    """A function that raises; a new one each time, since torch marks functions themselves."""

    def refuse() -> bool:
        raise Refused(TEXT)

    return refuse


def raise_in_constant(ground: Ground) -> str:
    refuse = torch.compiler.assume_constant_result(_refusal())  # type: ignore[no-untyped-call]

    def program(x: torch.Tensor) -> torch.Tensor:
        if torch.compiler.is_compiling():
            refuse()
        return x + 1

    return both_modes(program, torch.ones(2, device=ground.device), text=TEXT)


def raise_in_constant_caught(ground: Ground) -> str:
    """``except RuntimeError`` in the compiled function, around a refusal that is a RuntimeError."""
    refuse = torch.compiler.assume_constant_result(_refusal())  # type: ignore[no-untyped-call]

    def program(x: torch.Tensor) -> torch.Tensor:
        try:
            if torch.compiler.is_compiling():
                refuse()
        except RuntimeError:
            return x - 1
        return x + 1

    return both_modes(program, torch.ones(2, device=ground.device), text=TEXT)


def raise_in_fake(ground: Ground) -> str:
    return both_modes(torch.ops.fp8canary.fails_traced, torch.ones(2, device=ground.device), text=TEXT)


def raise_in_disabled(ground: Ground) -> str:
    refuse = torch.compiler.disable(_refusal())  # type: ignore[no-untyped-call]

    def program(x: torch.Tensor) -> torch.Tensor:
        refuse()
        return x + 1

    return both_modes(program, torch.ones(2, device=ground.device), text=TEXT)


def raise_in_unused_operator(ground: Ground) -> str:
    def program(x: torch.Tensor) -> torch.Tensor:
        torch.ops.fp8canary.fails(x)
        return x + 1

    x = torch.ones(2, device=ground.device)
    return "; ".join(f"{b} {both_modes(program, x, text=TEXT, backend=b)}" for b in ("eager", "aot_eager"))


def raise_in_region(ground: Ground) -> str:
    def program(x: torch.Tensor) -> torch.Tensor:
        with region("a"):
            raise ValueError(TEXT)

    ends = both_modes(program, torch.ones(2, device=ground.device), text=TEXT)
    return f"{ends}; depth after it {Holder.state.depth}"


def operator_raises_in_region(ground: Ground) -> str:
    def program(x: torch.Tensor) -> torch.Tensor:
        with region("a"):
            return torch.ops.fp8canary.fails(x) + 1  # type: ignore[no-any-return]

    x = torch.ones(2, device=ground.device)
    ends = [f"{b} {both_modes(program, x, text=TEXT, backend=b)}" for b in ("eager", "aot_eager")]
    return f"{'; '.join(ends)}; depth after it {Holder.state.depth}"


def constant_goes_stale(ground: Ground) -> str:
    """The function's answer changes after it was compiled; then the compiler is reset."""
    answer = [1]
    constant = torch.compiler.assume_constant_result(lambda: answer[0])  # type: ignore[no-untyped-call]

    def program(x: torch.Tensor) -> torch.Tensor:
        return x * constant()  # type: ignore[no-any-return]

    reset_compiler()
    compiled, x = torch.compile(program, backend="eager", fullgraph=True), torch.ones(1, device=ground.device)
    compiled(x)
    answer[0] = 2
    stale = compiled(x).item()
    reset_compiler()
    return f"{stale:g} for 2 before a reset, {compiled(x).item():g} after it"


# ---- contexts from elsewhere, checkpoints, threads -----------------------------------------------------------------


def hoisted_generator(ground: Ground) -> str:
    def program(context: Any, x: torch.Tensor) -> torch.Tensor:
        with context:
            return x + 1

    autocast, recipe = with_own_code(ground.provider.autocast), ground.provider.recipe(CURRENT)
    return _with_contexts(ground, program, lambda: autocast(enabled=True, recipe=recipe))


def hoisted_class(ground: Ground) -> str:
    def program(context: Any, x: torch.Tensor) -> torch.Tensor:
        with context:
            return x + 1

    return _with_contexts(ground, program, Region)


def _with_contexts(ground: Ground, program: Callable[..., Any], make: Callable[[], Any]) -> str:
    x = torch.ones(2, device=ground.device)
    census = observed(program, [(make(), x)])
    reset_compiler()
    compiled = torch.compile(program, backend="eager", fullgraph=True)
    return f"off: eager frames {census.eager_frames}; on: {raised(lambda: compiled(make(), x))}"


def decorated(ground: Ground) -> str:
    autocast, recipe = ground.provider.autocast, ground.provider.recipe(CURRENT)
    inside: Any = autocast(enabled=True, recipe=recipe)(ground.fp8)  # type: ignore[operator]
    census = observed(lambda x: inside(x), [(ground.batch(),)] * 2, provider=ground.provider, fullgraph=True)
    return f"graphs {census.graphs}, captured {census.calls[0].captured} of {census.calls[0].executed}"


def region_in_checkpoint(ground: Ground) -> str:
    """Without and with the setting that leaves side effects out of the recompute."""
    autocast, recipe = ground.provider.autocast, ground.provider.recipe(CURRENT)

    def body(x: torch.Tensor) -> torch.Tensor:
        with autocast(enabled=True, recipe=recipe):
            return ground.layers[0](x)  # type: ignore[no-any-return]

    def program(x: torch.Tensor) -> torch.Tensor:
        return checkpoint(body, x, use_reentrant=False)  # type: ignore[no-any-return]

    ends = []
    for setting in (False, True):
        with torch_compat.patched_compile_config({"dynamo.skip_fwd_side_effects_in_bwd_under_checkpoint": setting}):
            ends.append(both_modes(program, ground.batch(grad=True), calls=1))
    return f"as it is: {ends[0]}; with the setting: {ends[1]}"


def recompute_is_dead(ground: Ground) -> str:
    """FP8 forwards of a step in which one of two layers is checkpointed, by who runs it."""
    autocast, recipe = ground.provider.autocast, ground.provider.recipe(CURRENT)

    def program(x: torch.Tensor) -> torch.Tensor:
        with autocast(enabled=True, recipe=recipe):
            x = ground.layers[0](x)
            return checkpoint(ground.layers[1], x, use_reentrant=False)  # type: ignore[no-any-return]

    seen = []
    for backend in ("eager", "aot_eager"):
        reset_compiler()
        compiled = torch.compile(program, backend=backend, fullgraph=True)
        with ground.provider.tap() as records:
            y = compiled(ground.batch(grad=True))
            torch.autograd.backward(y.sum())
        seen.append(f"{backend} {sum(record.product == 'fprop' for record in records)}")
    ground.layers.zero_grad(set_to_none=True)
    return "forwards: " + ", ".join(seen)


def other_thread(ground: Ground) -> str:
    seen: list[int] = []
    with region("a"):
        thread = threading.Thread(target=lambda: seen.append(Holder.state.depth))
        thread.start()
        thread.join()
    return f"depth {seen[0]} in another thread"


# ---- modes and backward --------------------------------------------------------------------------------------------


def mode_toggles(ground: Ground) -> str:
    """A linear in a region: train, eval, no_grad, inference_mode, and each of them again."""
    reset_compiler()
    layer = ground.layers[0]
    with CensusObserver(ground.provider.fp8_ops) as observer:
        compiled = torch.compile(layer, backend=observer.wrap_backend("eager"))
        with ground.autocast():
            for _ in range(2):
                layer.train()
                compiled(ground.batch())
                layer.eval()
                compiled(ground.batch())
                with torch.no_grad():
                    compiled(ground.batch())
                with torch.inference_mode():
                    compiled(ground.batch())
                layer.train()
    return f"graphs {observer.census().graphs}"


def backward_elsewhere(ground: Ground) -> str:
    """Backward twice over one graph, in another region, and under compiled autograd: the gradient's bits."""
    expected = _gradient(ground, ground.fp8, torch.autograd.grad)
    seen = []
    reset_compiler()
    compiled = torch.compile(ground.fp8, backend="aot_eager", fullgraph=True)
    for name, take in (("twice", _twice), ("in another region", _in_other(ground)), ("compiled", _under_autograd)):
        gradient = _gradient(ground, compiled, take)
        seen.append(f"{name} {'equal' if torch.equal(gradient, expected) else 'not equal'}")
    return ", ".join(seen)


def _gradient(ground: Ground, function: Callable[..., Any], take: Callable[..., Any]) -> torch.Tensor:
    x = ground.batch(grad=True)
    with ground.autocast():
        y = function(x)
    gradient: torch.Tensor = take(y, x, torch.ones_like(y))[0]
    return gradient


def _twice(y: torch.Tensor, x: torch.Tensor, grad: torch.Tensor) -> Any:
    torch.autograd.grad(y, x, grad, retain_graph=True)
    return torch.autograd.grad(y, x, grad)


def _in_other(ground: Ground) -> Callable[..., Any]:
    def take(y: torch.Tensor, x: torch.Tensor, grad: torch.Tensor) -> Any:
        with ground.autocast(BLOCK):
            return torch.autograd.grad(y, x, grad)

    return take


def _under_autograd(y: torch.Tensor, x: torch.Tensor, grad: torch.Tensor) -> Any:
    with torch_compat.compiled_autograd("aot_eager"):
        torch.autograd.backward(y, grad, inputs=[x])
    return (x.grad,)


def backward_graphs(ground: Ground) -> str:
    seen = []
    for backend in ("eager", "aot_eager"):
        reset_compiler()
        with CensusObserver(frozenset()) as observer:
            compiled = torch.compile(ground.layers[0], backend=observer.wrap_backend(backend))
            torch.autograd.backward(compiled(ground.batch(grad=True)).sum())
        seen.append(f"{backend} {observer.census().backward_graphs}")
    ground.layers.zero_grad(set_to_none=True)
    return ", ".join(seen)


def traced_without_running(ground: Ground) -> str:
    """A compiled function called on fake tensors: graphs come, kernels don't run."""
    reset_compiler()
    ran: list[int] = []
    with CensusObserver(frozenset()) as observer, torch_compat.fake_tensor_mode():
        compiled = torch.compile(lambda x: x * 2 + 1, backend=observer.wrap_backend("aot_eager"), fullgraph=True)
        y = compiled(torch.ones(4))
        ran.append(not torch_compat.is_fake(y))
    return f"graphs {observer.census().graphs}, results with data {ran[0]:d}"


def opaque_api(ground: Ground) -> str:
    del ground
    return torch_compat.opaque_api()
