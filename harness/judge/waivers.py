"""Known reds: whether a waiver applies to this cell here and today, and what it makes of the verdict."""

from __future__ import annotations

import datetime
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from harness.types import Finding, Verdict, Waiver

# What the ranges of a waiver are compared with, by the names users write.
DISTRIBUTIONS = {"torch": "torch", "te": "transformer_engine", "cuda": "cuda"}


@dataclass(frozen=True)
class Waived:
    """The verdict after waivers. ``gates`` is False under a quarantine; ``findings`` are the waivers' own reds."""

    verdict: Verdict
    gates: bool = True
    notes: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()


def applies(waiver: Waiver, arch: str, versions: Mapping[str, str]) -> bool:
    """True when the resolved architecture and every installed version are those that the waiver names.

    The plan has matched the other axes; the architecture is only known where the cell runs. A range on something that
    isn't installed can't hold.
    """
    wanted = dict(waiver.when).get("arch")
    if wanted is not None and arch not in (wanted if isinstance(wanted, (list, tuple)) else (wanted,)):
        return False
    return all(_in_range(versions.get(DISTRIBUTIONS[name]), spec) for name, spec in waiver.versions)


def _in_range(installed: str | None, spec: str) -> bool:
    if installed is None:
        return False
    try:
        return SpecifierSet(spec).contains(Version(installed), prereleases=True)
    except InvalidVersion:
        return False


def apply_waivers(
    verdict: Verdict,
    waivers: tuple[Waiver, ...],
    arch: str,
    versions: Mapping[str, str],
    today: datetime.date,
    failed: Collection[str] = (),
) -> Waived:
    """Turn a verdict into what the waivers make of it. ``failed``: names of the checks that found something.

    ``xfail`` is strict: a waived cell that passes is ``xpass``, which is red. An expired waiver forgives nothing and is
    a red of its own, so that it is seen even on a cell that passes. Only ``fail`` can be an expected failure: a crash,
    a hang or an error of the harness is not what anybody waived. Nor is a finding of a check that a waiver which names
    checks doesn't name: it leaves the cell red.
    """
    notes: list[str] = []
    for waiver in waivers:
        if not applies(waiver, arch, versions):
            notes.append(f"waiver {waiver.where} not applicable here")
            continue
        if datetime.date.fromisoformat(waiver.expires) < today:
            finding = Finding("waiver.expired", f"a waiver valid on {today}", f"expired {waiver.expires}", waiver.where)
            return Waived(Verdict.FAIL if not verdict.is_red else verdict, True, tuple(notes), (finding,))
        beyond = sorted(set(failed) - set(waiver.checks)) if waiver.checks else []
        if beyond:
            notes.append(f"waiver {waiver.where} does not cover {', '.join(beyond)}")
            continue
        notes.append(f"waiver {waiver.where}: {waiver.reason}" + (f" ({waiver.url})" if waiver.url else ""))
        if waiver.kind == "quarantine":
            return Waived(verdict, False, tuple(notes))
        if verdict is Verdict.FAIL:
            return Waived(Verdict.XFAIL, True, tuple(notes))
        if verdict is Verdict.PASS:
            finding = Finding("waiver.xpass", "the waived failure", "a pass: remove the waiver", waiver.where)
            return Waived(Verdict.XPASS, True, tuple(notes), (finding,))
        return Waived(verdict, True, tuple(notes))
    return Waived(verdict, True, tuple(notes))
