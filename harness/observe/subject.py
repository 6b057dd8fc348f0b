"""What is observed: one cell's program builder, provider and axes, and the settings under which all of it runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch

from harness import torch_compat
from harness.observe.census import CensusObserver, reset_compiler
from harness.observe.run import Build, Forward, build_program
from harness.program import Program
from harness.providers.protocol import ProgramProvider, Provider
from harness.run.host import host_arch
from harness.types import Axes, Evidence, Expectation, Raises

# Compiled calls that a documented refusal must stop: a plain raise reaches the user once at most.
REFUSAL_CALLS = 3
# After the warm-up; more than Dynamo's recompile limit of 8, so that one recompilation per call runs into it.
STEADY_CALLS = 10


@dataclass(frozen=True)
class Subject:
    """One cell to observe. ``arch`` is resolved, ``device`` is where its tensors live."""

    build: Build
    provider: Provider
    axes: Axes
    evidence: Evidence
    arch: str
    expectation: Expectation
    device: torch.device

    def rebuild(self, provider: ProgramProvider) -> Program:
        """The cell's program, always with the same parameters, on its provider or on another one."""
        return build_program(self.build, provider, self.axes)

    def raises(self, program: Program) -> Raises | None:
        """The documented error, if there is one: the matrix's word before the case's."""
        return self.expectation.raises or program.expects.raises

    def compile(self, program: Program, observer: CensusObserver, backend: str) -> Forward:
        """The program's forward, compiled from nothing. Without ``dynamic`` shapes are left to Dynamo's default."""
        reset_compiler()
        observer.rebase()
        compiled: Forward = torch.compile(
            program.forward,
            backend=observer.wrap_backend(backend),
            fullgraph=self.axes.fullgraph,
            dynamic=True if self.axes.dynamic else None,
        )
        return compiled


def as_arch(provider: Provider, arch: str) -> AbstractContextManager[None]:
    """Make the provider believe in ``arch`` where this machine is another one; nothing to do where it is this one.

    On a GPU machine ``cpu`` is another one too: a library asks for the current device, not for the tensors'. A
    provider's ``reset`` must leave a pretence in force: cells on ``cpu`` reset between their runs.
    """
    return nullcontext() if arch == host_arch() else provider.pretend(arch)


def pinned_settings(axes: Axes) -> Mapping[str, Any]:
    """Compiler settings under which a cell is observed; each census records them.

    ``nested_graph_breaks`` changes default between versions and shifts every count. Inductor keeps fp32 where eager
    rounds to bf16; ``emulate_precision_casts`` makes it round too, so that compiled is held to tight bounds around
    eager (pytorch/pytorch#136181).
    """
    pins: dict[str, Any] = {"dynamo.nested_graph_breaks": False}
    if axes.backend == "inductor":
        pins["inductor.emulate_precision_casts"] = True
    return pins


@contextmanager
def pinned(axes: Axes) -> Iterator[None]:
    """:func:`pinned_settings` for a while; what the user had comes back."""
    with torch_compat.patched_compile_config(pinned_settings(axes)):
        yield
