"""cases.refusals: what an attempt reports of good and bad refusals, and what is asked of the child."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from cases import entry_refusals
from cases.entry_refusals import answer, attempt, questions_of, without_asserts
from harness.fp8 import FP8GlobalStateManager, support
from harness.providers.reference import ReferenceProvider
from harness.types import Spec

MX, CURRENT = Spec("mxfp8_block_scaling"), Spec("float8_current_scaling")
STRICT = Spec("reference", (("emulate", False),))


@pytest.fixture
def provider() -> Iterator[ReferenceProvider]:
    made = ReferenceProvider(emulate=False)
    yield made
    made.reset()
    ReferenceProvider()  # puts emulation back


def test_a_good_refusal_says_its_class_and_text_and_changes_nothing(provider: ReferenceProvider) -> None:
    seen = attempt(provider, MX, CURRENT)
    assert seen["error"].startswith("UnsupportedRecipeError<RuntimeError<")
    assert seen["message"].startswith("mxfp8_block_scaling is not supported on cpu")
    assert (seen["changed"], seen["later"]) == ([], [])


def test_no_refusal_and_a_late_one_are_told(provider: ReferenceProvider) -> None:
    assert attempt(provider, CURRENT) == {"error": "", "message": "", "changed": [], "later": []}

    @contextmanager
    def late(enabled: bool = True, recipe: Any = None) -> Iterator[None]:
        FP8GlobalStateManager.quantization_state.autocast_depth += 1
        raise RuntimeError("too late\nwith more")
        yield

    provider.autocast = late  # type: ignore[method-assign, assignment]
    seen = attempt(provider, MX)
    assert (seen["message"], seen["changed"]) == ("too late", ["state.autocast_depth"])
    assert seen["later"] == ["state.autocast_depth"]


def test_questions_are_all_that_is_unsupported_with_every_field(provider: ReferenceProvider) -> None:
    asked = questions_of(provider)
    assert ("cpu", MX) in asked
    assert ("sm90", Spec(MX.name, (("scale_rounding", "floor"),))) in asked
    assert not any(spec.name == CURRENT.name for _, spec in asked)
    assert not any(arch == "sm100" and spec.name == MX.name for arch, spec in asked)


def test_the_child_s_answer_is_an_attempt_on_each_architecture() -> None:
    recipe = {"name": MX.name, "fields": [["scale_rounding", "floor"]]}
    job = {"provider": {"name": "reference", "fields": [["emulate", False]]}, "questions": [["sm90", recipe]]}
    said = answer(job)
    assert said["asserts"] is True
    assert "sm90 has 9.0" in said["attempts"][0]["message"]
    assert support.BELIEF.arch == ""
    ReferenceProvider()


def test_what_is_not_among_the_usual_questions_is_asked_too(
    provider: ReferenceProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def ask(named: Spec, questions: tuple[Any, ...]) -> dict[Any, Any]:
        asked.append(questions)
        return {question: {"of": question} for question in questions}

    monkeypatch.setattr(entry_refusals, "_ask", ask)
    own = ("sm90", Spec(MX.name, (("fp8_format", "E4M3"),)))
    assert without_asserts(provider, STRICT, (("sm90", MX), own)) == [{"of": ("sm90", MX)}, {"of": own}]
    assert asked[1:] == [(own,)]


def test_a_child_with_asserts_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    class Done:
        returncode, stdout, stderr = 0, 'noise\n{"asserts": true, "attempts": []}\n', ""

    monkeypatch.setattr(entry_refusals.subprocess, "run", lambda *args, **kwargs: Done)
    with pytest.raises(RuntimeError, match="kept its asserts"):
        entry_refusals._ask(Spec("reference", (("emulate", True),)), ())
    Done.returncode, Done.stderr = 1, "broke"
    with pytest.raises(RuntimeError, match="ended with 1: broke"):
        entry_refusals._ask(Spec("reference", (("emulate", True),)), ())
