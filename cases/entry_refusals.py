"""How a provider refuses recipes that it says it can't run: one attempt, here and in a child process.

Run as ``python -O -m cases.entry_refusals JOB``, where asserts are gone: a support check written as one then refuses
nothing (NVIDIA/TransformerEngine#2304, pytorch/pytorch#77869). JOB and the answer are JSON.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cases.recipe_fields import others_of
from harness.observe.errors import describe_error
from harness.observe.state import diff, provider_state
from harness.observe.subject import as_arch
from harness.providers.load import loaded_provider
from harness.providers.protocol import Provider
from harness.types import ARCHES, RECIPES, Scalar, Spec

SECONDS = 300  # a guard, far beyond what importing torch takes
ROOT = Path(__file__).resolve().parents[1]


def attempt(provider: Provider, spec: Spec, outer: Spec | None = None) -> Mapping[str, Any]:
    """Enter a region of ``spec``, inside one of ``outer`` where that is given, and say what came of it.

    ``error``: classes of what was raised, its own first, joined with "<"; empty where nothing was. ``message``: its
    first line. ``changed``: keys of the provider's state that the attempt left other than they were inside ``outer``,
    and ``later`` those that were other than at the start once ``outer`` was left too.
    """
    recipe = provider.recipe(spec)
    start = provider_state(provider)
    region = contextlib.nullcontext() if outer is None else provider.autocast(recipe=provider.recipe(outer))
    error, message = "", ""
    with region:
        before = provider_state(provider)
        try:
            with provider.autocast(enabled=True, recipe=recipe):
                pass
        except Exception as raised:
            seen = describe_error(raised, "enter")
            error, message = seen.chain[0][0], seen.message.partition("\n")[0]
        changed = [item.key for item in diff(before, provider_state(provider), "")]
    later = [item.key for item in diff(start, provider_state(provider), "")]
    return {"error": error, "message": message, "changed": changed, "later": later}


Question = tuple[str, Spec]  # a resolved architecture and a recipe


def questions_of(provider: Provider) -> list[Question]:
    """Every recipe, with the usual fields and with each one set, on every architecture where it is unsupported."""
    found = []
    for arch in ARCHES[1:]:  # host is one of the others
        for name in RECIPES:
            belief = provider.supports(Spec(name), arch)
            if belief.offered and belief.level == "unsupported":
                group = [Spec(name), *(other for _, other in others_of(provider, Spec(name)))]
                found += [(arch, spec) for spec in group]
    return found


def answer(job: Mapping[str, Any]) -> Mapping[str, Any]:
    """What the child says: :func:`attempt` for each question, and whether asserts are in force."""
    made = []
    with loaded_provider(_spec(job["provider"])) as loaded:
        for arch, recipe in job["questions"]:
            with as_arch(loaded.provider, arch):
                made.append(attempt(loaded.provider, _spec(recipe)))
                loaded.provider.reset()
    return {"asserts": __debug__, "attempts": made}


def without_asserts(provider: Provider, named: Spec, wanted: tuple[Question, ...]) -> list[Mapping[str, Any]]:
    """:func:`attempt` for each of ``wanted`` in a child process under ``python -O``.

    Importing torch again takes seconds, so one child answers everything that could be asked of this provider
    (``named``: its spec) and a process remembers what it said.

    Raises:
        RuntimeError: the child failed, or had asserts in force.
    """
    usual = tuple(questions_of(provider))
    answers = _ask(named, usual)
    others = tuple(question for question in wanted if question not in answers)
    if others:
        answers = {**answers, **_ask(named, others)}
    return [answers[question] for question in wanted]


@functools.lru_cache(maxsize=64)
def _ask(named: Spec, questions: tuple[Question, ...]) -> Mapping[Question, Mapping[str, Any]]:
    job = {"provider": _plain(named), "questions": [[arch, _plain(spec)] for arch, spec in questions]}
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-O", "-m", "cases.entry_refusals", json.dumps(job)],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        env={**os.environ, "PYTHONPATH": path},
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"python -O ended with {done.returncode}: {done.stderr[-2000:]}")
    found = json.loads(done.stdout.splitlines()[-1])
    if found["asserts"]:
        raise RuntimeError("python -O kept its asserts: PYTHONOPTIMIZE or a wrapper of the interpreter undoes it")
    return dict(zip(questions, found["attempts"], strict=True))


def _plain(spec: Spec) -> Mapping[str, Any]:
    return {"name": spec.name, "fields": [list(item) for item in spec.fields]}


def _spec(plain: Mapping[str, Any]) -> Spec:
    fields: list[tuple[str, Scalar]] = [(name, value) for name, value in plain["fields"]]
    return Spec(plain["name"], tuple(fields))


if __name__ == "__main__":
    print(json.dumps(answer(json.loads(sys.argv[1]))))
