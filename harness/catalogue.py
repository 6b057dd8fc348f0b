"""``python -m harness.catalogue``: what each case runs, which fault it must catch by which check, from the code itself.

``--write docs/cases.md`` puts the tables into a page, between its markers; ``--check docs/cases.md`` says whether they
are current there.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cases import CASES
from harness import exit_codes
from harness.faults import FAULTS
from harness.faults.cell import USUAL
from harness.faults.fault import Fault
from harness.judge import support_table
from harness.judge.calibrate_table import replace_section
from harness.judge.numerics import CHECKS as NUMERIC_CHECKS
from harness.judge.verdict import CHECKS
from harness.plan.axes import spell
from harness.plan.ids import NESTINGS_WITH_INNER
from harness.program import Case
from harness.registry import load
from harness.types import RECIPES, CaseEntry

ROOT = Path(__file__).resolve().parents[1]
NOT_CURRENT = 1
USAGE_ERROR = exit_codes.USAGE
SECTION = "tables"
KIND = "catalogue"
NONE = "–"

_OF_TRACES = {
    "compile.gradients": "a gradient that stops on its way to a leaf, and an output of another shape, where nothing "
    "executes",
}
_OF_SUPPORT = {
    "support.belief": "emulation sold as native, and a kernel that the library doesn't know of",
    "support.default": "another default recipe than the library documents for this architecture",
}
# What a check can't say because its process is gone, or has no room: decided by the run.
_OF_RUN = {
    "run.timeout": "a cell that doesn't end",
    "run.crash": "a cell that takes its process down",
    "run.oom": "a cell that runs out of memory",
}


@dataclass(frozen=True)
class Described:
    """One case: its registration, the Case, its file, the first paragraph of it, and the faults that it must catch."""

    name: str
    entry: CaseEntry
    case: Case
    file: str
    runs: str
    faults: tuple[Fault, ...]


def described() -> tuple[Described, ...]:
    """Every registered case with the faults whose cell is one of its own, in the order of the registries."""
    faults = tuple(load(path) for path in FAULTS.values())
    found = []
    for name, entry in CASES.items():
        case: Case = load(entry.path)
        own = tuple(fault for fault in faults if case_of(fault) == name)
        module = sys.modules[entry.path.partition(":")[0]]
        file = Path(str(module.__file__)).resolve().relative_to(ROOT).as_posix()
        found.append(Described(name, entry, case, file, first_paragraph(module.__doc__ or ""), own))
    return tuple(found)


def case_of(fault: Fault) -> str:
    """The case whose cell must show the fault."""
    return str(fault.where.get("case", USUAL["case"]))


def checks() -> Mapping[str, str]:
    """Every check that a fault may name, and what it sees that others don't, in the order of blame."""
    seen: dict[str, list[str]] = {}
    for check in CHECKS:
        seen.setdefault(check.name, []).append(check.sees)
    support = [str(value) for value in vars(support_table).values() if str(value) in _OF_SUPPORT]
    return {
        **{name: "; ".join(texts) for name, texts in seen.items()},
        **_OF_TRACES,
        **{name: _OF_SUPPORT[name] for name in support},
        **{name: first_paragraph(check.__doc__ or "").rstrip(".") for name, check in NUMERIC_CHECKS.items()},
        **_OF_RUN,
    }


def first_paragraph(text: str) -> str:
    """The text up to its first empty line, on one line."""
    return " ".join(text.strip().split("\n\n")[0].split())


def tables() -> str:
    """The three tables as Markdown."""
    found = described()
    return "\n\n".join((_cases(found), _faults(found), _checks(found)))


def _cases(found: Sequence[Described]) -> str:
    head = ("case", "what it runs", "variants", "nestings", "recipes", "second recipe", "reports")
    rows = [
        (
            f"[`{one.name}`](../{one.file})",
            one.runs,
            _codes(one.entry.variants),
            _codes(one.entry.nestings),
            recipes_of(one.entry),
            _second(one.entry),
            ", ".join(one.case.answers) or NONE,
        )
        for one in found
    ]
    return "## Cases\n\n" + _table(head, rows)


def recipes_of(entry: CaseEntry) -> str:
    """The recipes that a case takes, in words."""
    lacking = [name for name in RECIPES if name not in entry.recipes]
    if not lacking:
        return "all"
    if len(lacking) < len(entry.recipes):
        return f"all but {_codes(lacking)}"
    return _codes(entry.recipes)


def _second(entry: CaseEntry) -> str:
    """The nestings and variants whose programs have a second recipe."""
    nestings = [name for name in entry.nestings if name in NESTINGS_WITH_INNER]
    if set(entry.pair) == set(entry.variants or ("",)):
        return "in each"
    return _codes([*nestings, *entry.pair])


def _faults(found: Sequence[Described]) -> str:
    head = ("case", "fault", "what is broken", "must be caught by", "in the cell with", "report")
    rows: list[tuple[str, ...]] = []
    for one in found:
        rows += [
            (f"`{one.name}`", f"`{f.name}`", f.breaks, f"`{f.caught_by}`", where_of(f), f.report or NONE)
            for f in one.faults
        ] or [(f"`{one.name}`", NONE, NONE, NONE, NONE, NONE)]
    return "## Faults\n\n" + _table(head, rows)


def where_of(fault: Fault) -> str:
    """The axis values that a fault names, its case aside."""
    named: Mapping[str, Any] = {axis: value for axis, value in fault.where.items() if axis != "case"}
    return ", ".join(f"`{axis}={_spelt(value)}`" for axis, value in named.items()) or NONE


def _spelt(value: Any) -> str:
    if isinstance(value, Mapping):
        fields = ",".join(f"{key}={spell(one)}" for key, one in value.items() if key != "name")
        return f"{value['name']}({fields})"
    return spell(tuple(value) if isinstance(value, list) else value)


def _checks(found: Iterable[Described]) -> str:
    naming: dict[str, list[str]] = {}
    for fault in (fault for one in found for fault in one.faults):
        naming.setdefault(fault.caught_by, []).append(fault.name)
    rows = [(f"`{name}`", sees, _codes(naming.get(name, ()))) for name, sees in checks().items()]
    return "## Checks\n\n" + _table(("check", "what it sees or demands", "faults that name it"), rows)


def _codes(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names) or NONE


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in lines)


def current(page: str) -> str:
    """``page`` as it must be: its tables from the code, everything else as it stands.

    Raises:
        ValueError: the page's markers don't match.
    """
    return replace_section(page, SECTION, tables(), kind=KIND)


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0; 1 when the page that ``--check`` names is not current; 4 when a page can't be used."""
    parser = argparse.ArgumentParser(prog="python -m harness.catalogue", description=__doc__)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--write", type=Path, metavar="PAGE", help="put the tables into this page")
    which.add_argument("--check", type=Path, metavar="PAGE", help="say whether this page's tables are current")
    try:
        options = parser.parse_args(arguments)
    except SystemExit as stop:  # argparse says 2, which is "interrupted" here
        return USAGE_ERROR if stop.code else 0
    page: Path | None = options.write or options.check
    if page is None:
        print(tables())
        return 0
    try:
        return _on_page(page, write=options.write is not None)
    except (OSError, ValueError) as error:
        print(f"error: {page}: {error}", file=sys.stderr)
        return USAGE_ERROR


def _on_page(page: Path, *, write: bool) -> int:
    text = page.read_text(encoding="utf-8")
    wanted = current(text)
    if write:
        page.write_text(wanted, encoding="utf-8")
    elif text != wanted:
        print(f"{page} is not current: python -m harness.catalogue --write {page}", file=sys.stderr)
        return NOT_CURRENT
    return 0


if __name__ == "__main__":
    sys.exit(exit_codes.guarded(main))
