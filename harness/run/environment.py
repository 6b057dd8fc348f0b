"""Environment variables: those that make a run meaningless, those that shift counts, those that are recorded."""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Refusal:
    """A variable that stops a run before anything is executed. ``allowable``: ``--allow-env NAME`` lets it through."""

    name: str
    value: str
    reason: str
    allowable: bool

    def __str__(self) -> str:
        remedy = f"unset it, or pass --allow-env {self.name}" if self.allowable else "unset it"
        return f"{self.name}={self.value!r} {self.reason}: {remedy}"


def _is_one(value: str) -> bool:
    return value == "1"


def _is_on(value: str) -> bool:
    # "0" switches off: TORCHINDUCTOR_*REMOTE_CACHE are three-valued.
    return value not in ("", "0")


def _is_set(value: str) -> bool:
    return value != ""


# With one of these nothing would be compiled, or a failure to compile would be hidden; no flag makes that a
# measurement. torch (2.11 to 2.14) reads SUPPRESS_ERRORS as bool(text) in _dynamo/config.py, so that "0" switches it on
# too. The DISABLE switches count as on here wherever the census counts them so, which is wider than torch's own "1":
# otherwise every cell would run only to end as an error.
_FORBIDDEN = {
    "TORCHDYNAMO_DISABLE": (_is_on, "turns torch.compile off, every cell would run eagerly"),
    "TORCH_COMPILE_DISABLE": (_is_on, "turns torch.compile off, every cell would run eagerly"),
    "TORCHDYNAMO_SUPPRESS_ERRORS": (_is_set, "hides compile errors by running eagerly (any value does, 0 too)"),
    "TORCH_COMPILE_OVERRIDE_BACKENDS": (_is_set, "replaces the backend that a cell names"),
    "PYTHONOPTIMIZE": (_is_set, "strips assert statements from every library under test"),
}
# With one of these a count depends on earlier runs or on another machine.
_ALLOWABLE = {
    "TORCH_COMPILE_JOB_ID": (_is_set, "carries dynamic-shape decisions over from earlier runs, which shifts counts"),
    "TORCH_COMPILE_STICKY_PGO_KEY": (_is_set, "carries dynamic-shape decisions over from earlier runs"),
    "TORCH_DYNAMO_AUTOMATIC_DYNAMIC_LOCAL_PGO": (_is_on, "carries dynamic-shape decisions over from earlier runs"),
    "TORCH_DYNAMO_AUTOMATIC_DYNAMIC_REMOTE_PGO": (_is_on, "carries dynamic-shape decisions over from other machines"),
    "TORCHINDUCTOR_FX_GRAPH_REMOTE_CACHE": (_is_on, "takes compiled graphs from another machine"),
    "TORCHINDUCTOR_AUTOGRAD_REMOTE_CACHE": (_is_on, "takes compiled graphs from another machine"),
    "TORCHINDUCTOR_AUTOTUNE_REMOTE_CACHE": (_is_on, "takes tuning results from another machine"),
    "TORCHINDUCTOR_BUNDLED_AUTOTUNE_REMOTE_CACHE": (_is_on, "takes tuning results from another machine"),
    "TORCH_CACHING_PRECOMPILE": (_is_one, "takes compiled code from earlier runs, so that nothing is traced"),
    "TORCH_COMPILE_OVERRIDE_DYNAMO_CONFIGS": (_is_set, "changes Dynamo settings for some graphs only"),
    "TORCH_COMPILE_OVERRIDE_INDUCTOR_CONFIGS": (_is_set, "changes Inductor settings for some graphs only"),
}

# What can change a result or explains one. Values that may hold secrets (proxies, tokens) match none of these.
_RECORDED = re.compile(
    r"^(TORCH|PYTORCH_|NVTE_|CUDA_|CUBLAS|CUDNN_|NVIDIA_TF32|NCCL_|TRITON_|OMP_|MKL_|KMP_|GOMP_|AOT_|FAKE_ALLOW_META"
    r"|PYTHONHASHSEED$|PYTHONOPTIMIZE$|PYTEST_ADDOPTS$|PYTEST_PLUGINS$|NO_COLOR$|LD_PRELOAD$|FP8_HARNESS_|ATEN_CPU_CAPABILITY$"
    r"|DISABLE_ADDMM_|PT2_)"
)


def refusals(env: Mapping[str, str], allowed: Sequence[str] = ()) -> list[Refusal]:
    """Every variable of ``env`` that forbids this run, in a fixed order; ``allowed`` comes from ``--allow-env``."""
    found = [
        Refusal(name, env[name], reason, allowable=False)
        for name, (condition, reason) in _FORBIDDEN.items()
        if condition(env.get(name, ""))
    ]
    return found + [
        Refusal(name, env[name], reason, allowable=True)
        for name, (condition, reason) in _ALLOWABLE.items()
        if name not in allowed and condition(env.get(name, ""))
    ]


def unknown_allowances(allowed: Sequence[str]) -> list[str]:
    """Names given to ``--allow-env`` that it can't allow (misspelt, or never allowed)."""
    return [name for name in allowed if name not in _ALLOWABLE]


def allowable_names() -> tuple[str, ...]:
    """The names that ``--allow-env`` takes."""
    return tuple(_ALLOWABLE)


def recorded(env: Mapping[str, str]) -> dict[str, str]:
    """The variables of ``env`` that matter to a result, sorted by name: what run.json holds."""
    return {name: env[name] for name in sorted(env) if _RECORDED.match(name)}


def now() -> str:
    """This moment as run.json writes it."""
    return datetime.datetime.now().astimezone().isoformat(timespec="milliseconds")


def of_run(env: Mapping[str, str]) -> dict[str, str]:
    """What run.json says of the environment: the user's variables that matter, and ours, marked as such."""
    ours = {name: f"{value} (set by the harness)" for name, value in child_defaults(env).items()}
    return {**recorded(env), **ours}


def child_defaults(env: Mapping[str, str]) -> dict[str, str]:
    """Variables that processes running cells get where the user has set none; recorded in run.json like the user's own.

    One OpenMP thread: workers share the cores, and the order in which a CPU kernel adds up must not depend on ``-n``.
    """
    return {name: value for name, value in {"OMP_NUM_THREADS": "1"}.items() if name not in env}
