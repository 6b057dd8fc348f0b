"""Does a waiver of this cell hold? The rule of docs/matrix.md, written a second time."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from harness.audit.record import Json

DISTRIBUTIONS = {"torch": "torch", "te": "transformer_engine", "cuda": "cuda"}


def label(spec: Json) -> str:
    """A recipe or provider of the plan as results spell it: ``delayed_scaling(amax_history_len=16)``."""
    fields = ",".join(f"{name}={text_of(value)}" for name, value in spec.get("fields", ()))
    return f"{spec['name']}({fields})" if fields else str(spec["name"])


def text_of(value: Any) -> str:
    """One axis value of the plan as waivers spell it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return "x".join(map(str, value))
    return label(value) if isinstance(value, Mapping) else str(value)


def why_not_forgiven(kind: str, planned: Json, result: Json, host: Json, at: float | None) -> str:
    """Why no waiver of ``kind`` forgives this cell, in words; empty where one does.

    The first waiver that holds here decides. ``at``: when the cell began, seconds since the epoch; now, without one.
    """
    moment = datetime.datetime.now() if at is None else datetime.datetime.fromtimestamp(at)
    failed = {finding["check"] for finding in result.get("findings", ())}
    why = "it has no waiver"
    for waiver in planned.get("expect", {}).get("waivers", ()):
        differing = _differing(waiver, planned, result, host)
        beyond = failed - set(waiver.get("checks", ())) if waiver.get("checks") else set()
        if differing:
            why = f"its waiver {waiver['where']} is for {differing}"
        elif datetime.date.fromisoformat(waiver["expires"]) < moment.date():
            return f"its waiver {waiver['where']} expired on {waiver['expires']}"
        elif beyond:
            why = f"its waiver {waiver['where']} does not name {', '.join(sorted(beyond))}"
        elif waiver["kind"] != kind:
            return f"its waiver {waiver['where']} is one of kind {waiver['kind']}"
        else:
            return ""
    return why


def _differing(waiver: Json, planned: Json, result: Json, host: Json) -> str:
    """The first condition that this cell, or this machine, does not meet."""
    for axis, wanted in waiver.get("when", ()):
        meant = [str(value) for value in wanted] if isinstance(wanted, list) else [str(wanted)]
        if not meant or not set(meant) & _values(axis, planned, result):
            return f"{axis} {' or '.join(meant)}"
    for name, ranges in waiver.get("versions", ()):
        installed = host.get("versions", {}).get(DISTRIBUTIONS[name])
        if not installed or not SpecifierSet(ranges).contains(Version(installed), prereleases=True):
            return f"{name} {ranges}"
    return ""


def _values(axis: str, planned: Json, result: Json) -> set[str]:
    """What a pattern may say of an axis and mean this cell: the exact value; a bare name of a recipe or provider
    stands for any fields; of the architecture, what ``host`` turned out to be."""
    if axis == "arch":
        return {str(result["arch"])}
    value = planned["axes"][axis]
    return {text_of(value), str(value["name"])} if isinstance(value, Mapping) else {text_of(value)}
