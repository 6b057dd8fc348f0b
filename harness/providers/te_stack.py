"""Is a usable Transformer Engine here, and if not, why? The only module that imports the library.

Nothing is imported before :func:`require`, so that planning, reports and CPU runs never pay for it.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import re
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch

from harness.providers.protocol import DoctorFinding, ProviderUnavailable

# autocast that torch.compile can trace came with NVIDIA/TransformerEngine#2759, first released in 2.16.
MINIMUM = (2, 16)
META = "transformer-engine"
EXTENSION = "transformer-engine-torch"
CORES = ("transformer-engine-cu12", "transformer-engine-cu13")
_INSTALL = "pip install --no-build-isolation 'transformer-engine[pytorch]{}'"

# What the provider rests on, as (module, dotted attribute). Asked for by name: no version number stands for it.
NEEDED = (
    ("transformer_engine.pytorch", "autocast"),
    ("transformer_engine.pytorch.quantization", "FP8GlobalStateManager.quantization_state"),
    ("transformer_engine.pytorch.quantization", "RecipeState.create"),
    ("transformer_engine.pytorch.ops.basic.basic_linear", "BasicLinear._functional_forward"),
    ("transformer_engine.pytorch.ops.basic.basic_linear", "BasicLinear._functional_backward"),
    ("transformer_engine.pytorch.ops.basic.basic_linear", "general_gemm"),
    ("transformer_engine.pytorch.distributed", "in_fp8_activation_recompute_phase"),
    ("transformer_engine.pytorch.distributed", "is_fp8_activation_recompute_enabled"),
    ("transformer_engine.pytorch.utils", "assert_dim_for_fp8_exec"),
    ("transformer_engine.common.recipe", "Recipe"),
)


@dataclass(frozen=True)
class Problem:
    """Why the library can't be used, and the command that mends it (empty where no command does)."""

    reason: str
    fix: str = ""


def versions() -> dict[str, str]:
    """Installed distributions of Transformer Engine, by name."""
    found = {}
    for name in (META, EXTENSION, *CORES):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def problem() -> Problem | None:
    """Everything that can be known without importing the library, most telling first; None when nothing is wrong."""
    found = versions()
    if META not in found:
        also = f" ({_listed(found)} without it)" if found else ""
        return Problem(f"Transformer Engine is not installed{also}", _INSTALL.format(""))
    version = found[META]
    # A build from source is one distribution; wheels are three, which Transformer Engine wants equal.
    if len(found) > 1 and len(set(found.values())) > 1:
        fix = _INSTALL.format(f"=={version}")
        return Problem(f"Transformer Engine's distributions differ in version: {_listed(found)}", fix)
    if release(version) < MINIMUM:
        least = ".".join(map(str, MINIMUM))
        reason = f"Transformer Engine {version} is too old: torch.compile can't trace its autocast before {least}"
        return Problem(reason, _INSTALL.format(f">={least}"))
    if torch.version.cuda is None:
        return Problem(f"Transformer Engine {version} needs a GPU, and torch {torch.__version__} is built without CUDA")
    if not torch.cuda.is_available():
        return Problem(f"Transformer Engine {version} needs a GPU, and torch sees none")
    return None


def require() -> None:
    """Import the library.

    Raises:
        ProviderUnavailable: with the reason; for a failed import the library's own text.
    """
    known = problem()
    if known is not None:
        raise ProviderUnavailable(known.reason, known.fix)
    version = versions()[META]
    for name, attribute in NEEDED:
        try:
            target: Any = importlib.import_module(name)
        except Exception as error:  # asserts, OSErrors of missing libraries, anything
            text = " ".join(str(error).split()) or "no message"
            raise ProviderUnavailable(
                f"importing Transformer Engine {version} raised {type(error).__name__}: {text}",
                _INSTALL.format(f"=={version}"),
            ) from error
        for part in attribute.split("."):
            if not hasattr(target, part):
                raise ProviderUnavailable(f"Transformer Engine {version} has no {name}.{attribute}")
            target = getattr(target, part)


def module(name: str) -> Any:
    """A module of the library below ``transformer_engine``, such as ``pytorch.quantization``."""
    found: ModuleType = importlib.import_module(f"transformer_engine.{name}")
    return found


def findings() -> list[DoctorFinding]:
    """What ``doctor`` says about the library itself; works without it."""
    found = versions()
    known = problem()
    if known is not None:
        return [DoctorFinding("transformer_engine", False, known.reason, known.fix)]
    try:
        require()
    except ProviderUnavailable as error:
        return [DoctorFinding("transformer_engine", False, error.reason, error.fix)]
    return [DoctorFinding("transformer_engine", True, _listed(found))]


def cudnn_finding() -> DoctorFinding | None:
    """The cuDNN of this process; None for a torch without CUDA.

    Transformer Engine loads the cuDNN that it finds, and torch then meets that one. An older one than torch was built
    for makes torch raise on every use of cuDNN and on the mere question for its version. FP8 GEMMs don't use it.
    """
    if torch.version.cuda is None:
        return None
    try:
        version: int | None = torch.backends.cudnn.version()  # type: ignore[no-untyped-call]
    except RuntimeError as error:
        fix = f"pip install --upgrade nvidia-cudnn-cu{torch.version.cuda.partition('.')[0]}"
        return DoctorFinding("cuDNN", False, " ".join(str(error).split()), fix)
    if version is None:
        return DoctorFinding("cuDNN", True, "not available")
    return DoctorFinding("cuDNN", True, f"{version // 10000}.{version // 100 % 100}.{version % 100}")


def release(version: str) -> tuple[int, int]:
    """(major, minor) of a version string; (0, 0) for one that holds no numbers."""
    match = re.match(r"(\d+)\.(\d+)", version)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def _listed(found: dict[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in found.items())
