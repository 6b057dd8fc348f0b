"""State that must be as it was before: torch's own and the provider's, taken as plain values and compared by name."""

from __future__ import annotations

import hashlib
import math
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from harness import torch_compat
from harness.observe.draws import other_generators
from harness.observe.sites import without_noise
from harness.observe.types import StateDiff
from harness.providers.protocol import Provider

ABSENT = "<absent>"
RNG_PREFIXES = ("torch.rng.", "process.rng.")  # torch's generators; Python's and NumPy's global one
_PLAIN = (bool, int, str, type(None))
_HALF = 0.5  # a name, so that Python doesn't multiply while it compiles
_SHOWN = 200  # characters of a value in a StateDiff


def provider_state(provider: Provider) -> Mapping[str, Any]:
    """The provider's snapshot, frozen: later changes of an object that the provider handed out can't reach it."""
    return {key: freeze(value) for key, value in provider.snapshot().items()}


def torch_state(*, rng: bool = False) -> Mapping[str, Any]:
    """Torch's process-wide and thread-wide state, keys ``torch.*``.

    Args:
        rng: include digests of the generators' states (CPU, and CUDA where it is initialised). Programs with dropout
            advance them, so they are compared only on request.
    """
    state: dict[str, Any] = {
        **_autocast(),
        "grad_enabled": torch.is_grad_enabled(),
        "inference_mode": torch.is_inference_mode_enabled(),
        "anomaly_mode": torch.is_anomaly_enabled(),
        **{f"autograd.{name}": value for name, value in torch_compat.autograd_switches().items()},
        "default_dtype": torch.get_default_dtype(),
        "default_device": str(torch.get_default_device()),
        "dispatch_modes": torch_compat.dispatch_modes(),
        "function_modes": torch_compat.function_modes(),
        "module_hooks": _module_hooks(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "deterministic.warn_only": torch.is_deterministic_algorithms_warn_only_enabled(),
        "float32_matmul_precision": torch.get_float32_matmul_precision(),
        "cudnn.deterministic": torch.backends.cudnn.deterministic,
        "cudnn.benchmark": torch.backends.cudnn.benchmark,
        "threads": torch.get_num_threads(),
        "flush_denormal": flushes_denormals(),
        "dynamo_stance": torch_compat.dynamo_stance(),
    }
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        state["cuda.device"] = torch.cuda.current_device()
    state = {f"torch.{name}": value for name, value in state.items()}
    return {**state, **generator_states()} if rng else state


def generator_states() -> Mapping[str, str]:
    """Digests of the states of torch's generators, ``torch.rng.*``, and of Python's and NumPy's, ``process.rng.*``."""
    torchs, others = RNG_PREFIXES
    states = {f"{torchs}{name}": state for name, state in _generator_states()}
    states |= {f"{others}{name}": state for name, state in other_generators().items()}
    return {name: hashlib.sha256(state).hexdigest()[:16] for name, state in states.items()}


def flushes_denormals() -> bool:
    """Whether this thread's CPU takes numbers below the smallest normal one for zero: there is no getter."""
    return bool(sys.float_info.min * _HALF == 0.0)


def compiler_settings() -> Mapping[str, Any]:
    """Every setting of Dynamo, AOTAutograd and Inductor, keyed ``dynamo.*``, ``functorch.*``, ``inductor.*``."""
    return torch_compat.compile_config()


def diff(before: Mapping[str, Any], after: Mapping[str, Any], moment: str) -> tuple[StateDiff, ...]:
    """What differs between two snapshots, sorted by key. A key that only one of them has is a difference."""
    return tuple(
        StateDiff(moment, key, _shown(before.get(key, ABSENT)), _shown(after.get(key, ABSENT)))
        for key in sorted({*before, *after})
        if (key in before) != (key in after) or not same(before[key], after[key])
    )


def same(left: Any, right: Any) -> bool:
    """Equality for snapshot values: NaN equals NaN, 1 differs from True, tensors are compared bit by bit.

    A comparison that raises counts as a difference, so that an exotic value can't hide one.
    """
    if type(left) is not type(right):
        return False
    if isinstance(left, _PLAIN):
        return bool(left == right)
    if isinstance(left, float):
        return left == right or (math.isnan(left) and math.isnan(right))
    if isinstance(left, torch.Tensor):
        return _same_tensor(left, right)
    if isinstance(left, tuple):
        return len(left) == len(right) and all(map(same, left, right))
    try:
        return bool(left == right)
    except Exception:  # __eq__ of a foreign object may raise anything; the two are then not known to be equal
        return False


def freeze(value: Any) -> Any:
    """A copy that no longer follows its source: containers become tuples (mappings, sets sorted), tensors are cloned.

    Other objects stay as they are: a provider's recipes compare by value.
    """
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, Mapping):
        return ("mapping", *sorted(((str(key), freeze(item)) for key, item in value.items()), key=lambda pair: pair[0]))
    if isinstance(value, (set, frozenset)):
        return ("set", *sorted((freeze(item) for item in value), key=repr))
    if isinstance(value, (list, tuple)):
        return tuple(freeze(item) for item in value)
    return value


def _autocast() -> dict[str, Any]:
    # There is no getter for the nesting depth; the public pair of autocast's own enter and exit has no side effect.
    depth = torch.autocast_increment_nesting() - 1
    torch.autocast_decrement_nesting()
    state: dict[str, Any] = {"autocast.nesting": depth, "autocast.cache": torch.is_autocast_cache_enabled()}
    for device in ("cpu", "cuda"):
        state[f"autocast.{device}.enabled"] = torch.is_autocast_enabled(device)
        state[f"autocast.{device}.dtype"] = torch.get_autocast_dtype(device)
    return state


def _module_hooks() -> tuple[str, ...]:
    """Hooks on every module there is, as "kind: function", and torch's notes of them."""
    shown = []
    for kind, found in sorted(torch_compat.module_hooks().items()):
        values = found.values() if isinstance(found, Mapping) else () if found is None else (found,)
        shown += [f"{kind}: {getattr(value, '__qualname__', value)}" for value in values]
    return tuple(shown)


def _generator_states() -> Iterator[tuple[str, bytes]]:
    yield "cpu", torch.get_rng_state().numpy().tobytes()
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        yield "cuda", torch.cuda.get_rng_state().numpy().tobytes()


def _same_tensor(left: torch.Tensor, right: torch.Tensor) -> bool:
    if (left.dtype, left.shape, left.device) != (right.dtype, right.shape, right.device):
        return False
    if left.is_meta:
        return True
    return bool(torch.equal(_bits(left), _bits(right)))


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor's bytes: float8 has no equality of its own, and NaN must equal NaN."""
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def _shown(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        value = f"tensor {tuple(value.shape)} {value.dtype}: {value.flatten()[:4].tolist()}"
    return without_noise(value if isinstance(value, str) else repr(value))[:_SHOWN]
