"""What runs where: support checks with reasons, their caches, and the switches that change a belief.

Rules follow Transformer Engine 2.20 (``check_fp8_support`` and its siblings) and the kernels of torch 2.11 to 2.14; the
table is in docs/reference.md. Every check takes its device as an argument: a check that asks for the current device
goes stale in compiled code once ``torch.cuda.set_device`` is called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from harness.fp8.errors import UnsupportedRecipeError
from harness.fp8.recipe import DelayedScaling, Float8BlockScaling, Float8CurrentScaling, MXFP8BlockScaling, Recipe
from harness.fp8.tracing import run_while_tracing

NATIVE, EMULATED, UNSUPPORTED = "native", "emulated", "unsupported"

# The toolkit that a pretended GPU is taken to have where torch was built without CUDA.
ASSUMED_CUDA = (13, 0)


@dataclass(frozen=True)
class Level:
    """``level`` is native, emulated or unsupported; ``reason`` says why it isn't native."""

    level: str
    reason: str = ""


@dataclass(slots=True)
class Belief:
    """What the checks believe. ``arch``: a pretended architecture, empty for the device's own. ``emulate``: recipes
    without a kernel are computed by other kernels and count as supported.

    Compiled code reads both fields, so torch.compile guards on them: no graph outlives a change.
    """

    arch: str = ""
    emulate: bool = True


BELIEF = Belief()

_ARCH_OF_DEVICE: dict[str, str] = {}
_LEVELS: dict[tuple[str, str, str, bool, str], Level] = {}


def current_device() -> str:
    """``cuda:N`` for the current GPU, ``cpu`` without one. Dynamo folds both calls and guards on the index."""
    if BELIEF.arch == "" and torch.cuda.is_available():
        return f"cuda:{torch.cuda.current_device()}"
    return "cpu"


def architecture(device: str) -> str:
    """``cpu`` or ``smNN``: the pretended architecture, else the device's own."""
    if BELIEF.arch:
        return BELIEF.arch
    if device not in _ARCH_OF_DEVICE:
        found = torch.device(device)
        if found.type == "cuda":
            major, minor = torch.cuda.get_device_capability(found)
            _ARCH_OF_DEVICE[device] = f"sm{major}{minor}"
        else:
            _ARCH_OF_DEVICE[device] = found.type
    return _ARCH_OF_DEVICE[device]


@contextmanager
def pretend(arch: str) -> Iterator[None]:
    """Make every check believe in ``arch`` (``cpu`` or ``smNN``); caches are cleared on the way in and out.

    Raises:
        ValueError: not an architecture.
    """
    if arch != "cpu":
        _capability(arch)
    before = BELIEF.arch
    _believe(arch)
    try:
        yield
    finally:
        _believe(before)


def set_emulate(emulate: bool) -> None:
    """Whether recipes without a kernel on an architecture count as supported there."""
    if BELIEF.emulate != emulate:
        BELIEF.emulate = emulate
        clear_caches()


def clear_caches() -> None:
    """Forget every answer."""
    _ARCH_OF_DEVICE.clear()
    _LEVELS.clear()


def _believe(arch: str) -> None:
    BELIEF.arch = arch
    clear_caches()


def level_of(recipe_name: str, arch: str, emulate: bool, fp8_format: str = "") -> Level:
    """The rule table: how ``recipe_name`` runs on ``arch`` with this torch build.

    ``fp8_format``: "HYBRID" or "E4M3" where the recipe has one; empty for the recipe's own default.
    """
    reason = _format_rule(recipe_name, arch, fp8_format)
    if reason:
        return Level(UNSUPPORTED, reason)
    rule, emulator = _RULES[recipe_name]
    reason = rule(arch)
    if not reason:
        return Level(NATIVE)
    if not emulator(arch):
        return Level(UNSUPPORTED, reason)
    if emulate:
        return Level(EMULATED, reason)
    return Level(UNSUPPORTED, f"{reason} (emulation is off)")


def level_on(recipe_name: str, device: str) -> Level:
    """Cached :func:`level_of` for a device under the current belief."""
    return _cached_level(recipe_name, device, BELIEF.arch, BELIEF.emulate)


def _cached_level(recipe_name: str, device: str, arch: str, emulate: bool, fp8_format: str = "") -> Level:
    key = (recipe_name, device, arch, emulate, fp8_format)
    if key not in _LEVELS:
        _LEVELS[key] = level_of(recipe_name, architecture(device), emulate, fp8_format)
    return _LEVELS[key]


@run_while_tracing
def _require(recipe_name: str, device: str, arch: str, emulate: bool, fp8_format: str) -> bool:
    level = _cached_level(recipe_name, device, arch, emulate, fp8_format)
    if level.level == UNSUPPORTED:
        raise UnsupportedRecipeError(f"{recipe_name} is not supported on {architecture(device)}: {level.reason}")
    return True


def require(recipe: Recipe, device: str) -> None:
    """Refuse a recipe that ``device`` can't run.

    Compiled code raises it too, in both fullgraph modes (see ``tracing``).

    Raises:
        UnsupportedRecipeError: with the recipe, the architecture and the reason.
    """
    _require(recipe.name, device, BELIEF.arch, BELIEF.emulate, _format_of(recipe))


@run_while_tracing
def _check(recipe_name: str, device: str, arch: str, emulate: bool) -> tuple[bool, str]:
    level = _cached_level(recipe_name, device, arch, emulate)
    return level.level != UNSUPPORTED, level.reason


def check_fp8_support(device: str | None = None) -> tuple[bool, str]:
    """Whether per-tensor FP8 runs on ``device`` (default: the current one), and if not, why."""
    return _check(Float8CurrentScaling.name, device or current_device(), BELIEF.arch, BELIEF.emulate)


def check_mxfp8_support(device: str | None = None) -> tuple[bool, str]:
    """As :func:`check_fp8_support`, for MXFP8."""
    return _check("mxfp8_block_scaling", device or current_device(), BELIEF.arch, BELIEF.emulate)


def check_nvfp4_support(device: str | None = None) -> tuple[bool, str]:
    """As :func:`check_fp8_support`, for NVFP4."""
    return _check("nvfp4_block_scaling", device or current_device(), BELIEF.arch, BELIEF.emulate)


def check_fp8_block_scaling_support(device: str | None = None) -> tuple[bool, str]:
    """As :func:`check_fp8_support`, for 1x128 and 128x128 block scaling."""
    return _check("float8_block_scaling", device or current_device(), BELIEF.arch, BELIEF.emulate)


def default_recipe_name(arch: str) -> str:
    """Transformer Engine's choice: MXFP8 where it is native, current scaling on 12.x, delayed scaling elsewhere."""
    if arch != "cpu":
        if level_of(MXFP8BlockScaling.name, arch, False).level == NATIVE:
            return MXFP8BlockScaling.name
        if _capability(arch)[0] == 12:
            return Float8CurrentScaling.name
    return DelayedScaling.name


@run_while_tracing
def default_recipe_on(device: str, arch: str) -> str:
    """Name of the default recipe on ``device``; ``arch`` is the pretended one, there for the guard."""
    return default_recipe_name(arch or architecture(device))


def _capability(arch: str) -> tuple[int, int]:
    digits = arch[2:]
    if not arch.startswith("sm") or not digits.isdigit() or len(digits) < 2:
        raise ValueError(f"not an architecture: {arch!r} (expected cpu or smNN, such as sm90)")
    return int(digits[:-1]), int(digits[-1])


def _cuda_version() -> tuple[int, int]:
    if torch.version.cuda is None:
        return ASSUMED_CUDA
    major, minor = torch.version.cuda.split(".")[:2]
    return int(major), int(minor)


def _shown(capability: tuple[int, int]) -> str:
    return f"{capability[0]}.{capability[1]}"


def _needs(arch: str, capability: tuple[int, int], cuda: tuple[int, int]) -> str:
    """The reason why ``arch`` or this build's CUDA is too old; empty when neither is."""
    have = _capability(arch)
    if have < capability:
        return f"needs compute capability {_shown(capability)} or higher, {arch} has {_shown(have)}"
    if _cuda_version() < cuda:
        return f"needs CUDA {_shown(cuda)} or newer, torch was built with {_shown(_cuda_version())}"
    return ""


def _fp8_rule(arch: str) -> str:
    """Per-tensor and per-row FP8. 8.9 needs CUDA 12.1 (cublasLt 12.1.3 came with it)."""
    if arch == "cpu":
        return ""
    return _needs(arch, (8, 9), (12, 1))


def _block_rule(arch: str) -> str:
    """cuBLASLt's 1x128 kernels exist on Hopper alone; Transformer Engine runs Blackwell through MXFP8."""
    if arch == "cpu":
        return ""
    if _capability(arch)[0] >= 10:
        return f"no 1x128 block-scaled kernel for compute capability {_shown(_capability(arch))} (Hopper only)"
    return _needs(arch, (9, 0), (12, 9))


def _mxfp8_rule(arch: str) -> str:
    if arch == "cpu":
        return "no MXFP8 kernel for the CPU"
    if _capability(arch)[0] >= 12:
        return "no MXFP8 kernel for every GEMM layout on compute capability 12.0 and higher"
    return _needs(arch, (10, 0), (12, 8))


def _nvfp4_rule(arch: str) -> str:
    if arch == "cpu":
        return "no NVFP4 kernel for the CPU"
    return _needs(arch, (10, 0), (12, 8))


def _format_of(recipe: Recipe) -> str:
    return recipe.fp8_format.value if isinstance(recipe, Float8BlockScaling) else ""


def _format_rule(recipe_name: str, arch: str, fp8_format: str) -> str:
    """Why a recipe's format has no kernel where the recipe itself has one; empty where it has.

    F.scaled_mm takes e4m3 alone with 1x128 and 128x128 blocks, and torch._scaled_mm nothing of e5m2 with them either
    ("Invalid scaling configuration", torch 2.11 on an H200).
    """
    if recipe_name != Float8BlockScaling.name or fp8_format != "HYBRID" or arch == "cpu":
        return ""
    return "torch has no product of e5m2 with 1x128 blocks" if _capability(arch)[0] == 9 else ""


def _any_fp8(arch: str) -> bool:
    return arch == "cpu" or _capability(arch) >= (8, 9)


def _blackwell(arch: str) -> bool:
    return arch != "cpu" and _capability(arch)[0] >= 10


def _never(arch: str) -> bool:
    return False


# Recipe -> (reason why there is no kernel, empty if there is one; whether emulation may stand in).
_RULES: dict[str, tuple[Callable[[str], str], Callable[[str], bool]]] = {
    "delayed_scaling": (_fp8_rule, _never),
    "float8_current_scaling": (_fp8_rule, _never),
    "float8_rowwise_scaling": (_fp8_rule, _never),
    "float8_block_scaling": (_block_rule, _blackwell),
    "mxfp8_block_scaling": (_mxfp8_rule, _any_fp8),
    "nvfp4_block_scaling": (_nvfp4_rule, _any_fp8),
}
