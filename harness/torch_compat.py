"""The only module that touches private torch names. Each says on which versions it was seen: 2.11, 2.13, 2.14."""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import logging
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

# --- reference system (harness/fp8) ---------------------------------------------------------------------------------


def _opaque_metaclass() -> type:
    try:
        module = importlib.import_module("torch._custom_class_base")  # 2.14
    except ImportError:
        from torch._opaque_base import OpaqueBaseMeta  # 2.11, 2.13; 2.14 logs a deprecation warning

        return OpaqueBaseMeta
    metaclass: type = module.CustomClassBaseMeta
    return metaclass


if TYPE_CHECKING:

    class OpaqueValue:
        """Base of classes that operators take as constants; :func:`register_opaque_value` admits them."""

else:
    # The metaclass is demanded of every opaque type on 2.11 and of reference types only on 2.13 and 2.14.
    OpaqueValue = _opaque_metaclass()("OpaqueValue", (), {})


def has_opaque_values() -> bool:
    """Whether this torch lets operators take opaque constants at all."""
    return importlib.util.find_spec("torch._library.opaque_object") is not None  # 2.11, 2.13, 2.14


def register_opaque_value(cls: type) -> str:
    """Let operators take ``cls`` as a constant; returns the type's name for operator schemas.

    ``cls`` needs ``__eq__`` (torch.compile guards on it), ``__hash__`` and ``__fx_repr__`` (source text of the value).
    """
    from torch._library import opaque_object  # 2.11, 2.13, 2.14

    if hasattr(opaque_object, "register_custom_class"):  # 2.14
        opaque_object.register_custom_class(cls, typ="constant")
    else:  # 2.11, 2.13
        opaque_object.register_opaque_type(cls, typ="value")
    return f"{cls.__module__}.{cls.__qualname__}"  # how all three versions form the name


def scaled_mm(
    a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor, out_dtype: torch.dtype
) -> torch.Tensor:
    """a @ b.T of float8 (M, K) and (N, K), both row-major, with precise accumulation, shape (M, N).

    Scales are decode scales, float32: one element each (per tensor), or (M, 1) and (1, N) (per row, see
    :func:`cpu_scales_rows`). The older entry point is used because ``F.scaled_mm`` refuses FP8 on the CPU of 2.11.
    """
    # torch._scaled_mm: 2.11, 2.13, 2.14
    product: torch.Tensor = torch._scaled_mm(
        a, b.t(), scale_a=scale_a, scale_b=scale_b, out_dtype=out_dtype, use_fast_accum=False
    )
    return product


@functools.cache
def cpu_scales_rows() -> bool:
    """Whether ``torch._scaled_mm`` takes per-row scales on the CPU: 2.13 and 2.14 do, 2.11 does not."""
    tiny = torch.zeros(16, 16, dtype=torch.float8_e4m3fn)
    try:
        scaled_mm(tiny, tiny, torch.ones(16, 1), torch.ones(1, 16), torch.float32)
    except RuntimeError:
        return False
    return True


def scaled_mm_block(
    a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor, kind_b: str, out_dtype: torch.dtype
) -> torch.Tensor:
    """a @ b.T on CUDA with 1x128 blocks of ``a`` and ``kind_b`` ("1x128" or "128x128") blocks of ``b``.

    Scales are laid out as ``harness.fp8.kernels.layouts`` builds them. Precise accumulation.
    """
    from torch.nn.functional import ScalingType  # public; 2.11, 2.13, 2.14

    blocks_b = ScalingType.BlockWise1x128 if kind_b == "1x128" else ScalingType.BlockWise128x128
    return torch.nn.functional.scaled_mm(
        a, b.t(), scale_a, ScalingType.BlockWise1x128, scale_b, blocks_b, output_dtype=out_dtype, use_fast_accum=False
    )


def scaled_mm_mxfp8(
    a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor, out_dtype: torch.dtype
) -> torch.Tensor:
    """a @ b.T on CUDA with 1x32 blocks; float8_e8m0fnu scales in cuBLASLt's tiled order."""
    from torch.nn.functional import ScalingType, SwizzleType  # public; 2.11, 2.13, 2.14

    return torch.nn.functional.scaled_mm(
        a,
        b.t(),
        scale_a,
        ScalingType.BlockWise1x32,
        scale_b,
        ScalingType.BlockWise1x32,
        swizzle_a=SwizzleType.SWIZZLE_32_4_4,
        swizzle_b=SwizzleType.SWIZZLE_32_4_4,
        output_dtype=out_dtype,
    )


def scaled_mm_nvfp4(
    a: torch.Tensor,
    b: torch.Tensor,
    scale_a: torch.Tensor,
    scale_b: torch.Tensor,
    global_a: torch.Tensor,
    global_b: torch.Tensor,
    out_dtype: torch.dtype,
) -> torch.Tensor:
    """a @ b.T on CUDA of packed E2M1 bytes (M, K / 2) and (N, K / 2).

    float8_e4m3fn scales of 1x16 blocks in cuBLASLt's tiled order, and one float32 decode scale per tensor.
    """
    from torch.nn.functional import ScalingType, SwizzleType  # public; 2.11, 2.13, 2.14

    levels = [ScalingType.BlockWise1x16, ScalingType.TensorWise]
    swizzles = [SwizzleType.SWIZZLE_32_4_4, SwizzleType.NO_SWIZZLE]
    return torch.nn.functional.scaled_mm(
        a.view(torch.float4_e2m1fn_x2),
        b.view(torch.float4_e2m1fn_x2).t(),
        [scale_a, global_a],
        levels,
        [scale_b, global_b],
        levels,
        swizzle_a=swizzles,
        swizzle_b=swizzles,
        output_dtype=out_dtype,
    )


def real_tensors() -> contextlib.AbstractContextManager[Any]:
    """A context in which tensors are made and read for real, whatever mode (fake tensors, say) is active around it."""
    from torch.utils._python_dispatch import _disable_current_modes  # 2.11, 2.13, 2.14

    context: contextlib.AbstractContextManager[Any] = _disable_current_modes()
    return context


def is_fake(tensor: torch.Tensor) -> bool:
    """True for a tensor without data."""
    from torch._subclasses.fake_tensor import FakeTensor  # 2.11, 2.13, 2.14

    return isinstance(tensor, FakeTensor)


def is_view(tensor: torch.Tensor) -> bool:
    """True for a tensor that autograd counts as a view of another: Dynamo guards on that other one too."""
    return bool(tensor._is_view())  # 2.11, 2.13, 2.14


def in_backward() -> bool:
    """True while this thread executes an autograd graph: a forward operator that runs then is a recompute."""
    return running_backward() != -1


def running_backward() -> int:
    """Number of the autograd graph that this thread executes; -1 outside of a backward pass."""
    return int(torch._C._current_graph_task_id())  # 2.11, 2.13, 2.14


def after_backward(callback: Callable[[], None]) -> None:
    """Call ``callback`` when the running backward pass ends; never, if it fails. Only valid inside one."""
    torch.autograd.Variable._execution_engine.queue_callback(callback)  # 2.11, 2.13, 2.14


@dataclass(frozen=True)
class ProfiledOp:
    """One host-side operator call seen by the profiler. ``parent`` is the index of the enclosing call, or -1.

    ``correlation`` is the profiler's number of the call, by which device kernels name the call that launched them.
    """

    name: str
    dtypes: tuple[str, ...]
    parent: int
    correlation: int = 0


def profiled_ops(profile: torch.profiler.profile, keep: Callable[[str], bool] = lambda name: True) -> list[ProfiledOp]:
    """Operator calls of a finished profile with their argument dtypes, nested by time within their thread.

    ``keep`` chooses by name; a call whose parent is not kept hangs on the next kept one around it.

    Needs ``record_shapes=True``: the profiler has no dtypes otherwise.
    """
    if profile.profiler is None or profile.profiler.kineto_results is None:  # 2.11, 2.13, 2.14
        raise RuntimeError("the profile holds no events: it was not started and stopped")
    # A parent starts no later and ends no earlier than its child; on a tie the longer call is the parent.
    events = sorted(
        (
            (event.start_thread_id(), event.start_ns(), -event.duration_ns(), index, event)
            for index, event in enumerate(profile.profiler.kineto_results.events())
            if keep(event.name()) and event.device_type() == torch._C._autograd.DeviceType.CPU and not event.is_async()
        ),
        key=lambda item: item[:4],
    )
    calls: list[ProfiledOp] = []
    open_calls: list[tuple[int, int, int]] = []  # thread, end, index
    for thread, start, duration, _, event in events:
        end = start - duration
        while open_calls and (open_calls[-1][0] != thread or open_calls[-1][1] < end):
            open_calls.pop()
        parent = open_calls[-1][2] if open_calls else -1
        open_calls.append((thread, end, len(calls)))
        calls.append(ProfiledOp(event.name(), tuple(event.dtypes()), parent, event.correlation_id()))
    return calls


# --- observers (harness/observe) ------------------------------------------------------------------------------------


def dynamo_counters() -> Mapping[str, Mapping[str, int]]:
    """Dynamo's live counters: ``frames``, ``graph_break``, ``unimplemented``, ``stats``... ``reset`` leaves them."""
    from torch._dynamo.utils import counters  # 2.11, 2.13, 2.14

    live: Mapping[str, Mapping[str, int]] = counters
    return live


def reset_dynamo() -> None:
    """Forget everything compiled, and with it the counters and compilation metrics that ``reset`` alone leaves."""
    from torch._dynamo.utils import clear_compilation_metrics, counters  # 2.11, 2.13, 2.14

    torch.compiler.reset()
    counters.clear()
    clear_compilation_metrics()


def lookup_backend(name: str) -> Callable[..., Any]:
    """The registered torch.compile backend of that name: a function of a graph module and its example inputs."""
    from torch._dynamo.backends.registry import lookup_backend as lookup  # 2.11, 2.13, 2.14

    backend: Callable[..., Any] = lookup(name)
    return backend


def _config_modules() -> dict[str, Any]:
    import torch._dynamo.config  # 2.11, 2.13, 2.14
    import torch._functorch.config  # 2.11, 2.13, 2.14
    import torch._inductor.config  # 2.11, 2.13, 2.14

    return {
        "dynamo": torch._dynamo.config,
        "functorch": torch._functorch.config,
        "inductor": torch._inductor.config,
    }


def compile_config() -> dict[str, Any]:
    """Every setting of Dynamo, AOTAutograd and Inductor, keyed ``dynamo.suppress_errors``, ``inductor.max_autotune``...

    Values are copies. Settings are per thread on 2.13 and later.
    """
    settings: dict[str, Any] = {}
    for name, module in _config_modules().items():
        copy = module.get_config_copy()
        settings.update(zip(_config_names(name, tuple(copy)), copy.values(), strict=True))
    return settings


@functools.lru_cache(maxsize=8)
def _config_names(module: str, keys: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"{module}.{key}" for key in keys)


@contextlib.contextmanager
def patched_compile_config(settings: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Set ``{"dynamo.nested_graph_breaks": False, ...}`` for a while; yields those that this torch has."""
    modules = _config_modules()
    applied: dict[str, Any] = {}
    with contextlib.ExitStack() as stack:
        for name, value in settings.items():
            module, _, key = name.partition(".")
            if hasattr(modules[module], key):
                stack.enter_context(modules[module].patch({key: value}))
                applied[name] = value
        yield applied


def dynamo_stance() -> str:
    """``default``, or the stance that ``torch.compiler.set_stance`` left: there is no public getter."""
    from torch._dynamo import eval_frame  # 2.11, 2.13, 2.14

    return str(eval_frame._stance.stance)


def dispatch_modes() -> tuple[str, ...]:
    """Class names of the active TorchDispatchModes, outermost first."""
    from torch.utils._python_dispatch import _get_current_dispatch_mode_stack  # 2.11, 2.13, 2.14

    return tuple(type(mode).__name__ for mode in _get_current_dispatch_mode_stack())


def function_modes() -> tuple[str, ...]:
    """Class names of the active TorchFunctionModes, outermost first."""
    from torch.overrides import _get_current_function_mode_stack  # 2.11, 2.13, 2.14

    stack = _get_current_function_mode_stack()  # type: ignore[no-untyped-call]
    return tuple(type(mode).__name__ for mode in stack)


def autograd_switches() -> dict[str, bool]:
    """Switches of autograd that have no public getter."""
    return {
        "multithreading": bool(torch._C._is_multithreading_enabled()),  # 2.11, 2.13, 2.14
        # 2.11, 2.13, 2.14
        "saved_tensors_hooks": bool(torch._C._autograd._saved_tensors_hooks_is_enabled()),  # type: ignore[attr-defined]
        # 2.11, 2.13, 2.14
        "pack_hooks_active": torch._C._autograd._top_saved_tensors_default_hooks(True) is not None,
        "compiled": _compiled_autograd_is_on(),
    }


def _compiled_autograd_is_on() -> bool:
    from torch._dynamo import compiled_autograd as module  # 2.11, 2.13, 2.14

    return bool(module.compiled_autograd_enabled)  # 2.13, 2.14


def operator_name(target: object) -> str:
    """``namespace::op`` of a graph node's target, overload or packet; ``aten::op`` of a torch builtin; else ""."""
    if isinstance(target, torch._ops.OpOverload):  # 2.11, 2.13, 2.14
        target = target.overloadpacket
    if isinstance(target, torch._ops.OpOverloadPacket):  # 2.11, 2.13, 2.14
        return str(target._qualified_op_name)
    if isinstance(target, torch._ops.HigherOrderOperator):  # 2.11, 2.13, 2.14
        return f"higher_order::{target.name()}"  # type: ignore[no-untyped-call]
    name = getattr(target, "__name__", "")
    if isinstance(target, types.BuiltinFunctionType) and getattr(torch, name, None) is target:
        return f"aten::{name}"
    return ""


def is_dynamo_error(error: BaseException) -> bool:
    """True for exceptions that torch.compile raises of its own (Unsupported, BackendCompilerFailed...)."""
    from torch._dynamo import exc  # 2.11, 2.13, 2.14

    return isinstance(error, (exc.TorchDynamoException, exc.FailOnRecompileLimitHit))


def fake_tensor_mode(
    seen: Callable[[str, tuple[Any, ...]], None] | None = None,
) -> contextlib.AbstractContextManager[Any]:
    """A mode under which tensors have no data and kernels do not run.

    ``seen(name, args)`` is told of each operator that runs under it, ``namespace::op``. Not of those that are traced:
    Dynamo and AOT propagate shapes under modes of their own.
    """
    from torch._guards import TracingContext  # 2.11, 2.13, 2.14
    from torch._subclasses.fake_tensor import FakeTensorMode  # 2.11, 2.13, 2.14

    mode: Any = FakeTensorMode()
    if seen is None:
        return mode  # type: ignore[no-any-return]
    dispatch = mode.dispatch

    def telling(func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        if TracingContext.try_get() is None:
            seen(operator_name(func), tuple(args))
        return dispatch(func, types, args, kwargs)

    mode.dispatch = telling  # not a class of its own: higher-order operators know this one by its type
    return mode  # type: ignore[no-any-return]


# --- cases (cases/) -------------------------------------------------------------------------------------------------


def profiler_of_all_threads() -> Any:
    """The setting of ``torch.profiler.profile(experimental_config=...)`` that records threads of every origin."""
    from torch._C._profiler import _ExperimentalConfig  # 2.11, 2.13, 2.14

    return _ExperimentalConfig(profile_all_threads=True)


def graph_break_function() -> Callable[[], None]:
    """Dynamo's own function for a graph break. To be called as it is: a wrapper would be a frame of its own."""
    function: Callable[[], None] = torch._dynamo.graph_break  # 2.11, 2.13, 2.14
    return function


class BreakingRegion:
    """A context manager with a graph break in its entry and in its exit.

    It stands here because Dynamo looks into frames that name torch or hold tensors, and passes by all others.
    """

    def __enter__(self) -> None:
        torch._dynamo.graph_break()  # 2.11, 2.13, 2.14

    def __exit__(self, *error: object) -> None:
        torch._dynamo.graph_break()  # 2.11, 2.13, 2.14


def explained_breaks(fn: Callable[..., Any], *args: Any) -> int:
    """``torch._dynamo.explain(fn)(*args).graph_break_count``; resets Dynamo."""
    explained = torch._dynamo.explain(fn)(*args)  # 2.11, 2.13, 2.14
    return int(explained.graph_break_count)


def compilation_metrics_kept() -> str:
    """How many compilation metrics Dynamo holds now, and how many it would keep."""
    from torch._dynamo import utils  # 2.11, 2.13, 2.14

    most = getattr(getattr(utils, "_compilation_metrics", None), "maxlen", None)  # 2.11, 2.13, 2.14
    return f"{len(utils.get_compilation_metrics())} kept of at most {most}"


def dynamo_default(name: str) -> Any:
    """The value that a Dynamo setting has where nobody set it."""
    import torch._dynamo.config  # 2.11, 2.13, 2.14

    return torch._dynamo.config._config[name].default  # type: ignore[attr-defined]  # 2.11, 2.13, 2.14


def error_on_graph_break_class() -> Callable[[bool], contextlib.AbstractContextManager[Any]]:
    """The context in which a graph break is an error, to be made in traced code."""
    made: Callable[[bool], contextlib.AbstractContextManager[Any]] = torch._dynamo.error_on_graph_break
    return made  # 2.11, 2.13, 2.14


def comptime_function() -> Callable[[Callable[[Any], None]], None]:
    """Dynamo's function that calls its argument while tracing, and does nothing in eager code."""
    from torch._dynamo.comptime import comptime  # 2.11, 2.13, 2.14

    function: Callable[[Callable[[Any], None]], None] = comptime
    return function


def user_error(text: str) -> Exception:
    """The exception by which Dynamo blames the user's code."""
    from torch._dynamo.exc import UserError, UserErrorType  # 2.11, 2.13, 2.14

    error: Exception = UserError(UserErrorType.INVALID_INPUT, text)
    return error


def compiled_autograd(backend: str) -> contextlib.AbstractContextManager[Any]:
    """A context in which backward passes are captured as a whole and compiled by ``backend``, without breaks."""
    from torch._dynamo import compiled_autograd as module  # 2.11, 2.13, 2.14

    compiler = torch.compile(backend=backend, fullgraph=True)
    context: contextlib.AbstractContextManager[Any] = module._enable(compiler)  # 2.11, 2.13, 2.14
    return context


def compiled_autograd_captures() -> int:
    """Backward passes that compiled autograd has captured since the counters were cleared."""
    return int(dynamo_counters().get("compiled_autograd", {}).get("captures", 0))


def opaque_api() -> str:
    """Which API admits opaque constants here: the deprecated name alone, or the one in its place too."""
    from torch._library import opaque_object  # 2.11, 2.13, 2.14

    names = ("register_custom_class", "register_opaque_type")  # 2.14; 2.11, 2.13 and, deprecated, 2.14
    return ", ".join(name for name in names if hasattr(opaque_object, name))


def eager_backend_recomputes() -> bool:
    """Whether a captured checkpoint runs its body again in backward on the backend ``eager``, as on the others.

    2.11 runs the captured body there as if nothing were checkpointed; 2.13 and 2.14 recompute.
    """
    major, minor = torch.__version__.split(".")[:2]
    return (int(major), int(minor)) >= (2, 13)


# --- Transformer Engine (harness/providers/te_*) --------------------------------------------------------------------


@dataclass(frozen=True)
class ProfiledKernel:
    """One GPU kernel seen by the profiler. ``op`` is the index of the innermost operator call (of
    :func:`profiled_ops`) that launched it, or -1 where the profiler doesn't know."""

    name: str
    op: int


def profiled_kernels(profile: torch.profiler.profile, ops: Sequence[ProfiledOp]) -> list[ProfiledKernel]:
    """Every GPU kernel of a finished profile in the order in which they began; copies and fills are left out.

    ``ops`` is what :func:`profiled_ops` gives for the same profile.
    """
    if profile.profiler is None or profile.profiler.kineto_results is None:  # 2.11, 2.13, 2.14
        raise RuntimeError("the profile holds no events: it was not started and stopped")
    launchers = {op.correlation: index for index, op in enumerate(ops) if op.correlation}
    events = [
        event
        for event in profile.profiler.kineto_results.events()
        if event.device_type() == torch._C._autograd.DeviceType.CUDA
        and not event.name().startswith(("Memcpy", "Memset", "Context Sync", "Event", "Stream"))
    ]
    events.sort(key=lambda event: event.start_ns())
    return [ProfiledKernel(event.name(), launchers.get(event.linked_correlation_id(), -1)) for event in events]


# ---- dynamic shapes --------------------------------------------------------------------------------------------------


def mark_dynamic(tensor: torch.Tensor, dim: int) -> None:
    """Ask Dynamo for a graph in which this dimension may have any size (documented, yet under a private module)."""
    import torch._dynamo  # 2.11, 2.13, 2.14

    torch._dynamo.mark_dynamic(tensor, dim)


# --- CUDA graphs (cases/cudagraph.py) -------------------------------------------------------------------------------

_GRAPHS_LOG = "torch._inductor.cudagraph_utils.__cudagraphs"  # 2.11, 2.13, 2.14


@dataclass
class GraphSkips:
    """What Inductor did not capture: why, as it logged it, and how often, as it counted it (some it only counts)."""

    reasons: list[str]
    count_before: int

    @property
    def count(self) -> int:
        """Skips since the context was entered."""
        return _skip_counter() - self.count_before


@contextlib.contextmanager
def graph_skips() -> Iterator[GraphSkips]:
    """Collect, live, what Inductor leaves out of CUDA graphs.

    A graph that is partitioned is no skip: operators that Inductor takes for unsafe then run outside of the graphs, and
    nothing is logged or counted (pytorch/pytorch#193044).
    """
    seen = GraphSkips([], _skip_counter())
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: seen.reasons.append(record.getMessage())  # type: ignore[method-assign]
    log = logging.getLogger(_GRAPHS_LOG)
    log.addHandler(handler)
    try:
        yield seen
    finally:
        log.removeHandler(handler)


def _skip_counter() -> int:
    return dynamo_counters().get("inductor", {}).get("cudagraph_skips", 0)  # 2.11, 2.13, 2.14


# --- seeded faults (harness/faults) ---------------------------------------------------------------------------------


def passing_dispatch_mode() -> contextlib.AbstractContextManager[Any]:
    """A dispatch mode that hands every operator on as it is. Its being active is all that it does."""
    from torch.utils._python_dispatch import TorchDispatchMode  # 2.13, 2.14

    class Passing(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return func(*args, **(kwargs or {}))

    mode: contextlib.AbstractContextManager[Any] = Passing()  # type: ignore[no-untyped-call]
    return mode


def clear_dynamo_counters() -> None:
    """Zero Dynamo's counters and leave everything compiled as it is."""
    from torch._dynamo.utils import counters  # 2.11, 2.13, 2.14

    counters.clear()


# --- torch's own state, taken and put back (harness/observe/torch_settings.py) --------------------------------------

_DISPATCH_FLAGS = (  # 2.13, 2.14
    "_is_in_torch_dispatch_mode",
    "_is_in_non_infra_torch_dispatch_mode",
    "_is_in_any_mode_without_ignore_compile_internals",
)
_HOOK_PREFIX = "_global_"


def dispatch_stack() -> tuple[tuple[Any, ...], tuple[tuple[str, bool], ...]]:
    """The active dispatch modes, outermost first, and torch's flags by which Dynamo knows of them."""
    from torch.utils import _python_dispatch as module  # 2.11, 2.13, 2.14

    flags = tuple((name, getattr(module, name)) for name in _DISPATCH_FLAGS if hasattr(module, name))
    return tuple(module._get_current_dispatch_mode_stack()), flags


def set_dispatch_stack(stack: tuple[tuple[Any, ...], tuple[tuple[str, bool], ...]]) -> None:
    """Make ``stack``, as :func:`dispatch_stack` gave it, the active one; no mode is entered or left by it."""
    from torch.utils import _python_dispatch as module  # 2.11, 2.13, 2.14

    modes, flags = stack
    for _ in range(torch._C._len_torch_dispatch_stack()):  # 2.11, 2.13, 2.14
        torch._C._pop_torch_dispatch_stack(None)
    for mode in modes:
        torch._C._push_on_torch_dispatch_stack(mode)
    for name, value in flags:
        setattr(module, name, value)
    tell_guards = getattr(module, "set_is_in_mode_without_ignore_compile_internals", None)  # 2.13, 2.14
    if tell_guards is not None:
        tell_guards(dict(flags)[_DISPATCH_FLAGS[-1]])


def function_stack() -> tuple[Any, ...]:
    """The active function modes, outermost first; then the default device's own mode, and the device in force."""
    from torch.overrides import _get_current_function_mode_stack  # 2.11, 2.13, 2.14
    from torch.utils import _device  # 2.11, 2.13, 2.14

    modes = tuple(_get_current_function_mode_stack())  # type: ignore[no-untyped-call]
    return modes, getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None), _device.CURRENT_DEVICE


def set_function_stack(stack: tuple[Any, ...]) -> None:
    """Make ``stack``, as :func:`function_stack` gave it, the active one; no mode is entered or left by it."""
    from torch.overrides import _pop_mode, _push_mode  # 2.11, 2.13, 2.14
    from torch.utils import _device  # 2.11, 2.13, 2.14

    modes, of_default, device = stack
    for _ in range(torch._C._len_torch_function_stack()):  # 2.11, 2.13, 2.14
        _pop_mode()  # type: ignore[no-untyped-call]
    for mode in modes:
        _push_mode(mode)  # type: ignore[no-untyped-call]
    torch._GLOBAL_DEVICE_CONTEXT.device_context = of_default
    _device.CURRENT_DEVICE = device


def saved_tensors_hooks() -> tuple[tuple[Any, ...], str | None]:
    """The default hooks on saved tensors, outermost first, and the text that forbids hooks (None: they are allowed)."""
    autograd: Any = torch._C._autograd  # all of its names below: 2.11, 2.13, 2.14
    hooks: list[Any] = []
    while autograd._top_saved_tensors_default_hooks(True) is not None:
        hooks.append(autograd._top_saved_tensors_default_hooks(True))
        autograd._pop_saved_tensors_default_hooks()
    forbidden = autograd._saved_tensors_hooks_get_disabled_error_message()
    found = tuple(reversed(hooks)), forbidden
    if hooks:
        set_saved_tensors_hooks(found)
    return found


def set_saved_tensors_hooks(found: tuple[tuple[Any, ...], str | None]) -> None:
    """Make the hooks that :func:`saved_tensors_hooks` gave the only ones."""
    autograd: Any = torch._C._autograd  # all of its names below: 2.11, 2.13, 2.14
    hooks, forbidden = found
    while autograd._top_saved_tensors_default_hooks(True) is not None:
        autograd._pop_saved_tensors_default_hooks()
    autograd._saved_tensors_hooks_enable()
    for pack, unpack in hooks:
        autograd._push_saved_tensors_default_hooks(pack, unpack)
    if forbidden is not None:
        autograd._saved_tensors_hooks_disable(forbidden)


def module_hooks() -> Mapping[str, Any]:
    """Hooks on every module there is, by kind ("forward_hooks"): what torch's ``register_module_*`` have added.

    Kinds are dictionaries (copies), and one flag of torch's own: whether backward hooks are full ones.
    """
    import torch.nn.modules.module as module

    found = {name: value for name, value in vars(module).items() if name.startswith(_HOOK_PREFIX)}  # 2.11, 2.13, 2.14
    return {
        name.removeprefix(_HOOK_PREFIX): type(value)(value) if isinstance(value, dict) else value
        for name, value in found.items()
    }


def set_module_hooks(hooks: Mapping[str, Any]) -> None:
    """Make the hooks that :func:`module_hooks` gave the only ones."""
    import torch.nn.modules.module as module

    for kind, value in hooks.items():
        name = f"{_HOOK_PREFIX}{kind}"
        if isinstance(value, dict):  # torch and its users hold on to the dictionary itself
            live = getattr(module, name)
            live.clear()
            live.update(value)
        else:
            setattr(module, name, value)


def enter_inference_mode(on: bool) -> Any:
    """Switch inference mode for as long as the guard that is returned lives; gradients follow it."""
    guard = torch._C._InferenceMode(on)  # 2.11, 2.13, 2.14
    guard.__enter__()  # type: ignore[no-untyped-call]
    return guard


def set_multithreaded_backward(on: bool) -> None:
    """Whether backward uses a thread for each device."""
    torch._C._set_multithreading_enabled(on)  # 2.11, 2.13, 2.14


def autograd_compiler() -> tuple[Any, ...]:
    """What compiled autograd is set to: its compiler, and torch's own notes of it."""
    from torch._dynamo import compiled_autograd as module  # 2.11, 2.13, 2.14

    compiler: Any = (None, False)
    if module.compiled_autograd_enabled:  # 2.13, 2.14; there is no getter, and a setter that a running backward forbids
        compiler = torch._C._dynamo.compiled_autograd.set_autograd_compiler(None, False)  # 2.11, 2.13, 2.14
        torch._C._dynamo.compiled_autograd.set_autograd_compiler(*compiler)
    names = ("compiled_autograd_enabled", "compiled_autograd_enabled_force_eager", "active_disable_ctx", "depth")
    return compiler, tuple((name, getattr(module, name)) for name in names if hasattr(module, name))  # 2.13, 2.14


def set_autograd_compiler(found: tuple[Any, ...]) -> None:
    """Set compiled autograd to what :func:`autograd_compiler` gave."""
    from torch._dynamo import compiled_autograd as module  # 2.11, 2.13, 2.14

    compiler, notes = found
    torch._C._dynamo.compiled_autograd.set_autograd_compiler(*compiler)  # 2.11, 2.13, 2.14
    for name, value in notes:
        setattr(module, name, value)


def stance_in_force() -> Any:
    """Torch's own object for the stance of torch.compile."""
    from torch._dynamo import eval_frame  # 2.11, 2.13, 2.14

    return eval_frame._stance


def set_stance_in_force(stance: Any) -> None:
    """Put ``stance``, as :func:`stance_in_force` gave it, in force."""
    from torch._dynamo import eval_frame  # 2.11, 2.13, 2.14

    eval_frame._set_stance(stance)


def set_compile_config(settings: Mapping[str, Any]) -> None:
    """Set settings of :func:`compile_config` for good; those that this torch hasn't got are passed by."""
    modules = _config_modules()
    for name, value in settings.items():
        module, _, key = name.partition(".")
        if hasattr(modules[module], key):
            setattr(modules[module], key, value)


# --- memory that stays in use (harness/observe/kept.py) -------------------------------------------------------------


@dataclass(frozen=True)
class Memory:
    """A tensor's memory, which this doesn't keep. ``number`` is the same for views of one memory, and no other's while
    this lives; ``expired()`` is true once nobody holds the memory any more, in Python or in C++."""

    number: int
    bytes: int
    expired: Callable[[], bool]


def memory_of(tensor: torch.Tensor) -> Memory | None:
    """None for a tensor without memory of its own (sparse ones, functorch's wrappers)."""
    from torch.multiprocessing.reductions import StorageWeakRef  # 2.11, 2.13, 2.14

    if not torch._C._has_storage(tensor):  # 2.11, 2.13, 2.14
        return None
    storage = tensor.untyped_storage()
    handle = StorageWeakRef(storage)  # type: ignore[no-untyped-call]
    return Memory(int(handle.cdata), int(storage.nbytes()), handle.expired)


def without_torch_functions() -> contextlib.AbstractContextManager[Any]:
    """A context in which no function mode, and no tensor subclass, has a say in what is asked of tensors."""
    context: contextlib.AbstractContextManager[Any] = torch._C.DisableTorchFunction()  # 2.11, 2.13, 2.14
    return context


def edits_of(tensor: torch.Tensor) -> int:
    """How often a tensor was written in place, as autograd counts."""
    return int(tensor._version)  # 2.11, 2.13, 2.14


# --- what operators promise while traced, and what they return (harness/observe/operators.py) -------------------------


@contextlib.contextmanager
def watching_operators(seen: Callable[[Any, tuple[Any, ...], Mapping[str, Any], Any], None]) -> Iterator[None]:
    """``seen(overload, args, kwargs, result)`` is told of every operator of this thread, and of its backward, once it
    has run; not of those that run inside another one. It must call no operator.

    The mode is taken off by name at the end: one that the body leaves behind stays, as it would without this.
    """
    from torch.utils._python_dispatch import TorchDispatchMode  # 2.11, 2.13, 2.14

    class Watching(TorchDispatchMode):  # type: ignore[no-untyped-call]
        supports_higher_order_operators = True  # 2.11, 2.13, 2.14

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = func(*args, **(kwargs or {}))
            seen(func, args, kwargs or {}, result)
            return result

    mode: Any = Watching()  # type: ignore[no-untyped-call]
    modes, flags = dispatch_stack()
    set_dispatch_stack(((*modes, mode), flags))
    try:
        yield
    finally:
        modes, flags = dispatch_stack()
        set_dispatch_stack((tuple(item for item in modes if item is not mode), flags))


def with_leaves(change: Callable[[Any], Any], arguments: Any) -> Any:
    """``arguments`` (tuples, lists and dictionaries inside each other) with ``change`` made to whatever they hold."""
    from torch.utils._pytree import tree_map  # 2.11, 2.13, 2.14

    return tree_map(change, arguments)


def leaves_of(arguments: Any) -> list[Any]:
    """What ``arguments`` (tuples, lists and dictionaries inside each other) hold, in order."""
    from torch.utils._pytree import tree_leaves  # 2.11, 2.13, 2.14

    return list(tree_leaves(arguments))


def print_options() -> dict[str, Any]:
    """How torch prints tensors, by name: there is no public getter."""
    from torch._tensor_str import PRINT_OPTS  # 2.11, 2.13, 2.14

    return dict(vars(PRINT_OPTS))


def set_print_options(options: Mapping[str, Any]) -> None:
    """Make ``options``, as :func:`print_options` gave them, those in force."""
    from torch._tensor_str import PRINT_OPTS  # 2.11, 2.13, 2.14

    for name, value in options.items():
        setattr(PRINT_OPTS, name, value)
