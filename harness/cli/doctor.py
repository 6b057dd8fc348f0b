"""``runner.py doctor``: what this machine can run, what is missing, and whether a matrix's ``require`` can be met."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence

from pydantic import TypeAdapter, ValidationError
from rich.console import Console

from harness.cli.errors import NothingToRun, UsageError
from harness.cli.option import Option, Settings, parse
from harness.cli.output import console_for
from harness.cli.run_options import HOW, RUN_OPTIONS, SHOW, read_seconds
from harness.cli.selecting import planned
from harness.doctor.gather import DEFAULT_SECONDS, Inquiry, examine
from harness.doctor.render import print_report
from harness.doctor.schema import report_json
from harness.plan import Plan, PlanError, Selection, select
from harness.plan.axes import unspell
from harness.plan.explain import plain_message
from harness.plan.select import why_nothing
from harness.plan.specs import Provider
from harness.plan.yamlfile import Place
from harness.providers import PROVIDERS
from harness.run.environment import allowable_names, unknown_allowances
from harness.types import Cell, Spec

_SHARED = ("matrix", "overrides", "providers", "allow_env", "color")
OPTIONS = (
    *(option for option in RUN_OPTIONS if option.name in _SHARED),
    Option(
        "timeout",
        ("--timeout",),
        "time limit for asking torch and for asking each provider",
        read_seconds,
        DEFAULT_SECONDS,
        metavar="SECONDS",
        group=HOW,
    ),
    Option("json", ("--json",), "print one JSON object (docs/schemas/doctor.schema.json)", switch=True, group=SHOW),
)
DESCRIPTION = """\
Shows the stack, what each provider can run on this machine and why not, and the commands that mend it.
With --matrix it says what evidence the matrix's cells would give here, and whether its require can be met.
"""
EPILOG = """\
exit codes: 0 a run can start here, and the matrix's require can be met; 1 not so, or a provider that --provider
            names can't be used; 4 usage error or invalid matrix; 5 no cell of the matrix is left
"""


def main(arguments: Sequence[str]) -> int:
    """Examine this machine; returns the exit code.

    Raises:
        UsageError: an unknown option or provider, or everything that is wrong with the matrix.
        NothingToRun: the matrix has no cell of the providers that were named.
    """
    settings = parse(OPTIONS, arguments, os.environ, prog="runner.py doctor", description=DESCRIPTION, epilog=EPILOG)
    inquiry = inquiry_of(settings)
    console = console_for(settings["color"])
    with _waiting(console, quiet=settings["json"]):
        report = examine(inquiry, os.environ)
    if settings["json"]:
        print(report_json(report))
    else:
        print_report(console, report)
    return report.exit_code


def inquiry_of(settings: Settings) -> Inquiry:
    """What the command line asks for.

    Raises:
        UsageError, NothingToRun: as :func:`main`.
    """
    allowed = settings["allow_env"]
    unknown = unknown_allowances(allowed)
    if unknown:
        names = ", ".join(allowable_names())
        raise UsageError(f"--allow-env {unknown[0]}: not a variable that can be allowed; those are {names}")
    if not settings["matrix"]:
        if settings["overrides"]:
            raise UsageError("--set changes a matrix: name it with --matrix")
        named = tuple(read_provider(text) for text in settings["providers"])
        providers = named or tuple(map(Spec, PROVIDERS))
        wanted = frozenset(spec.label for spec in named)
        return Inquiry(_distinct(providers), wanted, allowed_env=allowed, seconds=settings["timeout"])
    plan = planned(settings)
    cells = chosen(plan, settings["providers"])
    registered = () if settings["providers"] else tuple(map(Spec, PROVIDERS))
    return Inquiry(
        _distinct([*registered, *(cell.axes.provider for cell in cells)]),
        plan=plan,
        cells=cells,
        words=repeated(settings),
        allowed_env=allowed,
        seconds=settings["timeout"],
    )


def read_provider(text: str) -> Spec:
    """A provider as ``--provider`` takes it, such as ``reference(emulate=false)``.

    Raises:
        UsageError: no such provider or setting.
    """
    try:
        spec: Spec = TypeAdapter(Provider).validate_python(unspell("provider", text, Place("command line", 1, 1)))
    except ValidationError as error:
        message, near = plain_message(error)
        raise UsageError(f"--provider {text}: {message}" + (f" (did you mean {near}?)" if near else "")) from error
    return spec


def chosen(plan: Plan, providers: tuple[str, ...]) -> tuple[Cell, ...]:
    """The cells that ``--provider`` leaves, as for a run.

    Raises:
        UsageError: no such provider.
        NothingToRun: none is left.
    """
    selection = Selection(providers=providers)
    try:
        cells = select(plan, selection)
    except PlanError as error:
        raise UsageError(str(error)) from error
    if not cells:
        raise NothingToRun(why_nothing(plan, selection))
    return cells


def repeated(settings: Settings) -> tuple[str, ...]:
    """The options that a run of the same cells needs too."""
    words = [word for axis, values in settings["overrides"] for word in ("--set", f"{axis}={','.join(values)}")]
    words += [word for name in settings["providers"] for word in ("--provider", name)]
    return (*words, *(word for name in settings["allow_env"] for word in ("--allow-env", name)))


def _distinct(specs: Sequence[Spec]) -> tuple[Spec, ...]:
    return tuple({spec.label: spec for spec in specs}.values())


def _waiting(console: Console, *, quiet: bool) -> contextlib.AbstractContextManager[object]:
    """A word on a terminal while child processes import what they are asked about."""
    if quiet or not console.is_terminal or console.is_dumb_terminal:
        return contextlib.nullcontext()
    return console.status("asking torch and the providers ...")
