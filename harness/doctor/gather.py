"""Ask everything that is to be asked, and put the answers together."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from harness.doctor.children import Reply, ask
from harness.doctor.forecast import Asked, dispute, forecast
from harness.doctor.machine import Machine, look
from harness.doctor.questions import Belief, ProviderFacts, Request, TorchFacts, parse, program_of
from harness.doctor.stack import VISIBLE, gpu_item, stack_items, variables
from harness.doctor.types import Answer, Item, MatrixReport, ProviderReport, RecipeSupport, Report, Status, Variable
from harness.plan import Plan
from harness.run.rounds import environment
from harness.types import Cell, Spec

DEFAULT_SECONDS = 120.0
T = TypeVar("T")

Asker = Callable[[Sequence[Request], Mapping[str, str]], Sequence[Reply]]


@dataclass(frozen=True)
class Inquiry:
    """What the user wants to know.

    ``providers`` are asked about every recipe; ``wanted`` of them must be usable, by label. ``plan`` with its
    ``cells``: the matrix to forecast, whose providers must be among ``providers``; ``words``: options that a command
    to repeat needs. ``seconds``: the time limit of each child.
    """

    providers: tuple[Spec, ...]
    wanted: frozenset[str] = frozenset()
    plan: Plan | None = None
    cells: tuple[Cell, ...] = ()
    words: tuple[str, ...] = ()
    allowed_env: tuple[str, ...] = ()
    seconds: float = DEFAULT_SECONDS


def examine(
    inquiry: Inquiry,
    env: Mapping[str, str],
    *,
    today: datetime.date | None = None,
    asker: Asker = ask,
    looker: Callable[[Mapping[str, str]], Machine] = look,
) -> Report:
    """The whole report. Children are started by ``asker``, the machine is looked at by ``looker``."""
    machine = looker(env)
    torch_reply, *replies = _replies(inquiry, machine, env, asker)
    facts, died = _read(TorchFacts, torch_reply)
    stack = stack_items(machine, facts, ": ".join(filter(None, (died, torch_reply.telling))), env)
    told = _told(replies, gpu_item(machine, facts, env).fix if facts else "")
    providers = tuple(
        provider_report(spec.label, own, ending, reply.output)
        for spec, reply, (own, ending) in zip(inquiry.providers, replies, told, strict=True)
    )
    matrix = _forecast(inquiry, told, stack, today or datetime.date.today())
    settings = variables(env, inquiry.allowed_env)
    code, reason = conclude(stack, providers, settings, matrix, inquiry.wanted)
    return Report(
        arch=facts.arch if facts else "",
        stack=stack,
        gpus=facts.gpus if facts else (),
        visible_devices=f"{VISIBLE}={env[VISIBLE]!r}" if VISIBLE in env else f"{VISIBLE} is not set",
        providers=providers,
        environment=settings,
        versions=machine.packages,
        matrix=matrix,
        exit_code=code,
        exit_reason=reason,
    )


def _replies(inquiry: Inquiry, machine: Machine, env: Mapping[str, str], asker: Asker) -> Sequence[Reply]:
    """One reply for torch and one for each provider."""
    requests = [Request(inquiry.seconds)]
    for spec in inquiry.providers:
        programs = [program_of(cell) for cell in inquiry.cells if cell.axes.provider.label == spec.label]
        requests.append(Request(inquiry.seconds, spec, tuple(dict.fromkeys(programs))))
    if "torch" not in machine.packages:
        return [Reply("", "was not started: torch is not installed")] * len(requests)
    return asker(requests, environment(env))


def _read(kind: type[T], reply: Reply) -> tuple[T | None, str]:
    """(facts, ""), or (None, how the process ended)."""
    if not reply.text:
        return None, reply.ending
    try:
        return parse(kind, reply.text), ""
    except ValueError as error:
        return None, f"gave an answer that can't be read: {error}"


def _told(replies: Sequence[Reply], mend_gpu: str) -> list[tuple[ProviderFacts | None, str]]:
    read = [_read(ProviderFacts, reply) for reply in replies]
    return [(facts if facts is None else with_gpu_fix(facts, mend_gpu), ending) for facts, ending in read]


def _forecast(
    inquiry: Inquiry, told: Sequence[tuple[ProviderFacts | None, str]], stack: Sequence[Item], today: datetime.date
) -> MatrixReport | None:
    if inquiry.plan is None:
        return None
    mend_torch = next((item.fix for item in stack if item.topic == "torch" and item.status is Status.FATAL), "")
    asked = {
        spec.label: Asked(facts, f"its process {ending}", mend_torch)
        for spec, (facts, ending) in zip(inquiry.providers, told, strict=True)
    }
    return forecast(inquiry.plan, inquiry.cells, asked, today, inquiry.words)


def with_gpu_fix(facts: ProviderFacts, fix: str) -> ProviderFacts:
    """A library that only lacks its GPU is mended by what brings torch a GPU."""
    if fix and not facts.fix and "needs a GPU" in facts.unavailable:
        return dataclasses.replace(facts, fix=fix)
    return facts


def provider_report(label: str, facts: ProviderFacts | None, died: str, output: tuple[str, ...]) -> ProviderReport:
    """What a provider said, or how its process ended."""
    if facts is None:
        return ProviderReport(label, Answer.DIED, reason=died, output=output)
    if facts.error:
        return ProviderReport(label, Answer.ERROR, facts.arch, facts.error, facts.fix)
    if facts.unavailable:
        return ProviderReport(label, Answer.UNAVAILABLE, facts.arch, facts.unavailable, facts.fix)
    findings = [Item(one.topic, Status.OK if one.ok else Status.PROBLEM, one.text, one.fix) for one in facts.findings]
    recipes = tuple(_recipe(belief, facts) for belief in facts.beliefs)
    return ProviderReport(label, Answer.USABLE, facts.arch, recipes=recipes, findings=tuple(findings))


def _recipe(belief: Belief, facts: ProviderFacts) -> RecipeSupport:
    level = belief.level if belief.offered else "absent"
    disputed = dispute(belief, facts.arch, facts.cuda)
    return RecipeSupport(belief.recipe.label, level, belief.reason, disputed)


def conclude(
    stack: Sequence[Item],
    providers: Sequence[ProviderReport],
    settings: Sequence[Variable],
    matrix: MatrixReport | None,
    wanted: frozenset[str],
) -> tuple[int, str]:
    """Exit code and why. 1 where no run can start, a provider asked for by name can't be used, or the matrix's
    ``require`` can't be met here; else 0."""
    fatal = [item.topic for item in stack if item.status is Status.FATAL]
    refused = [one.name for one in settings if one.effect != "recorded"]
    unusable = [one.provider for one in providers if one.provider in wanted and one.answer is not Answer.USABLE]
    reasons = [f"no run can start here before this is mended: {', '.join(fatal)}"] if fatal else []
    reasons += [f"a run would refuse to start with {', '.join(refused)}"] if refused else []
    if matrix is not None and not matrix.met:
        reasons.append(f"{matrix.name}'s require {matrix.require} can't be met here")
    reasons += [f"{', '.join(unusable)} can't be used here"] if unusable else []
    if reasons:
        return 1, "; ".join(reasons)
    return 0, f"{matrix.name}'s require {matrix.require} can be met here" if matrix else "a matrix can be run here"
