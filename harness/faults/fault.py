"""What a seeded fault is."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from importlib import metadata
from typing import TYPE_CHECKING, Any

from packaging.version import InvalidVersion, Version

from harness.faults.elsewhere import ONLY_REFERENCE

if TYPE_CHECKING:
    from harness.providers.protocol import Provider


# Findings about a fault, not about what it broke: nothing that its cell says then counts.
RAISED, UNMENDED = "fault.raised", "fault.unmended"
# Checks that an end of the process from outside would satisfy as well: it must end as the fault says.
DEATHS = ("run.crash", "run.infra")
DEADLY = ("SIGABRT", "SIGBUS", "SIGFPE", "SIGILL", "SIGSEGV")
WANTED = "a fault that breaks the provider and mends it again"


class FaultError(Exception):
    """A fault did not do what a fault must; ``check`` is :data:`RAISED` or :data:`UNMENDED`, ``site`` file:line."""

    def __init__(self, check: str, fault: str, message: str, site: str = "") -> None:
        super().__init__(f"fault {fault}: {message}")
        self.check = check
        self.site = site


@dataclass(frozen=True)
class Fault:
    """A deliberate defect in a provider.

    ``apply(provider)`` is a context manager that yields the broken provider (the same object with something patched,
    or a wrapper) and mends everything when it is left. It may patch the provider, the library under test,
    ``harness.observe``, and ``_fp8``, ``_census`` and ``observe_cell`` of ``harness.run.execute``; never what judges it
    (harness.faults.seal).
    ``caught_by`` names the check that must turn red because of it. ``where`` holds the axis values of the cell that
    must show it, as a matrix writes them ({"case": "checkpoint", "variant": "around"}); what it leaves out is that of
    the usual cell (toy_linear, float8_current_scaling, nested, aot_eager, fullgraph). ``needs`` is what a machine must
    have for the fault to do anything: "cuda", the least version of torch as in "torch>=2.13", or "" for any machine.
    ``dies`` is how the process of a fault ends that ``run.crash`` or ``run.infra`` must catch: "SIGSEGV", "exit 86".
    ``providers`` are those of which it breaks anything; on another one the plan refuses it (harness.faults.elsewhere).
    """

    name: str
    breaks: str
    caught_by: str
    apply: Callable[[Provider], AbstractContextManager[Provider]]
    report: str = ""
    where: Mapping[str, Any] = field(default_factory=dict)
    needs: str = ""
    providers: tuple[str, ...] = ONLY_REFERENCE
    dies: str = ""


def check_dies(dies: str, caught_by: str) -> None:
    """Whether a fault that ``caught_by`` must catch says how its process ends, as far as that check needs it.

    Raises:
        ValueError: it doesn't, or says what an end from outside may look like as well.
    """
    if caught_by in DEATHS and not dies:
        raise ValueError(f"{caught_by} needs dies: how the process ends, one of {', '.join(DEADLY)} or exit N")
    if dies and dies not in DEADLY and not _own_status(str(dies)):
        raise ValueError(
            f"dies can't be {dies!r}: one of {', '.join(DEADLY)} or exit N, 2 <= N < 128 (others say too little)"
        )


def _own_status(dies: str) -> bool:
    """``exit N`` that neither an end as it should be, nor an exception, nor a shell's report of a signal looks like."""
    found = re.fullmatch(r"exit ([1-9]\d{0,2})", dies)
    return bool(found) and 2 <= int(dies.removeprefix("exit ")) < 128


def lacking(needs: str, *, has_gpu: bool) -> str:
    """Why a machine can't show a fault that ``needs`` something; empty where it can.

    Raises:
        ValueError: nothing that a fault can need.
    """
    if needs == "cuda":
        return "" if has_gpu else "needs a CUDA device"
    if not needs:
        return ""
    package, _, least = str(needs).partition(">=")
    try:
        version = Version(least if package == "torch" else "")
    except InvalidVersion:
        raise ValueError(f"a fault can't need {needs!r}: cuda, or torch>=X.Y") from None
    # A nightly, a candidate or a vendor's build of a version is that version here.
    return f"needs torch {least}" if Version(metadata.version("torch")).release < version.release else ""
