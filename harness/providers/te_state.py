"""Transformer Engine's process-wide state: all of it as comparable values, and back to its beginnings in place."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import torch

from harness import torch_compat
from harness.providers import te_stack, te_support, te_tap

# Registers that grow by design and are never emptied: a module's scales join them at its first forward and stay, a
# recipe joins at its first region. Their growth is no leak of a region, their consistency is compared.
_REGISTERS = ("global_amax_buffer", "global_amax_history_buffer", "global_scale_buffer")
_ARGUMENTS = "autocast_arguments"
# One queue for each module that a checkpoint has run, whose place in the list the module remembers. The first of them
# makes a list of its own.
_STASHES = "fp8_tensors_recompute_buffer"
# State beside the singleton, which its reset forgets.
_RECOMPUTE_FLAGS = ("_IN_ACTIVATION_RECOMPUTE_REGION", "_ACTIVATION_RECOMPUTE_PHASE")


def snapshot() -> Mapping[str, Any]:
    """Every field of the global state, recompute flags, the pretended architecture and the tap."""
    state = _state()
    taken: dict[str, Any] = {"state.id": id(state)}
    for item in dataclasses.fields(state):
        value = getattr(state, item.name)
        if item.name == _STASHES:
            taken[f"state.{item.name}.waiting"] = sum(map(len, value))
        elif item.name not in (*_REGISTERS, _ARGUMENTS):
            taken[f"state.{item.name}"] = comparable(value)
        if isinstance(value, (dict, list)) and item.name != _STASHES:
            taken[f"state.{item.name}.id"] = id(value)
    taken["state.registers"] = register_faults(state)
    distributed = te_stack.module("pytorch.distributed")
    for name in _RECOMPUTE_FLAGS:
        if hasattr(distributed, name):
            taken[f"distributed.{name}"] = getattr(distributed, name)
    pending = _pending_recomputes()
    taken["distributed.pending_recomputes"] = 0 if pending is None else len(pending)
    taken["support.pretended"] = te_support.pretended()
    taken["tap.active"] = te_tap.active()
    return taken


def reset() -> None:
    """The state after import, in place: the singleton and its containers stay the objects that they are.

    Transformer Engine's own ``FP8GlobalStateManager.reset`` puts a new singleton in place of the old, which held
    references and compiled graphs don't follow; it is not used. A pretended architecture stays in force, and so does
    the register of recipes, which no later region depends on. Stashes of checkpoints are emptied, not taken away.
    """
    state = _state()
    for item in dataclasses.fields(state):
        value = getattr(state, item.name)
        if item.name == _STASHES:
            for stash in value:
                stash.clear()
        elif isinstance(value, (dict, list)):
            if item.name != _ARGUMENTS:
                value.clear()
        elif item.default is not dataclasses.MISSING:
            setattr(state, item.name, item.default)
    distributed = te_stack.module("pytorch.distributed")
    for name in _RECOMPUTE_FLAGS:
        if hasattr(distributed, name):
            setattr(distributed, name, False)
    pending = _pending_recomputes()
    if pending is not None:
        pending.clear()


def register_faults(state: Any) -> str:
    """``consistent``, or what doesn't fit together in the registers of delayed scaling."""
    buffers = {name: getattr(state, name, {}) for name in _REGISTERS}
    lengths = {name: {key: len(tensors) for key, tensors in held.items()} for name, held in buffers.items()}
    first = lengths[_REGISTERS[0]]
    for name in _REGISTERS[1:]:
        if lengths[name] != first:
            return f"{_REGISTERS[0]} holds {first}, {name} {lengths[name]}"
    known = {str(key) for key in getattr(state, _ARGUMENTS, {})}
    lost = [key for key in first if key.partition("_")[2] not in known]
    return f"no recipe is registered for {lost}" if lost else "consistent"


def comparable(value: Any) -> Any:
    """Containers and tensors as nested tuples of plain values, recipes by their class and text."""
    if isinstance(value, torch.Tensor):
        if torch_compat.is_fake(value):
            return ("fake", str(value.dtype), tuple(value.shape))
        with torch_compat.real_tensors():
            return (str(value.dtype), tuple(value.shape), tuple(value.detach().reshape(-1).tolist()))
    if isinstance(value, Mapping):
        return tuple((str(key), comparable(item)) for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return tuple(comparable(item) for item in value)
    return value if value is None or isinstance(value, (bool, int, float, str)) else repr(value)


def _state() -> Any:
    return te_stack.module("pytorch.quantization").FP8GlobalStateManager.quantization_state


def _pending_recomputes() -> list[Any] | None:
    """First-module flags of checkpointed forwards that wait for their recompute; a class attribute, so process-wide."""
    cls = getattr(te_stack.module("pytorch.distributed"), "activation_recompute_forward", None)
    pending = getattr(cls, "_is_first_fp8_module", None)
    return pending if isinstance(pending, list) else None
