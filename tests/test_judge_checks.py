"""Each check fires alone on the one observation that it is there for, and none fires on a clean cell."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from harness.judge.compile_checks import captured
from harness.judge.fp8_checks import observed
from harness.judge.state_checks import unexpected
from harness.judge.verdict import CHECKS, run_checks
from harness.observe.types import (
    Break,
    CallSeen,
    Fact,
    Handles,
    Kept,
    Left,
    OperatorSeen,
    ProductSeen,
    RunSeen,
    StateDiff,
    TracedStep,
)
from harness.program import Expects
from harness.providers.protocol import GemmRecord
from harness.types import Budgets, Evidence, Expectation, Raises
from tests.support.judging import INNER, LINEARS, OUTER, clean_run, error, judging, record

BF16 = GemmRecord("aten::mm", "c10::BFloat16", "c10::BFloat16", "high_precision")
NATIVE = GemmRecord("aten::_scaled_mm", "c10::Float8_e4m3fn", "c10::Float8_e4m3fn", "fp8_native")
LIAR = GemmRecord("aten::mm", "c10::BFloat16", "c10::BFloat16", "fp8_native")
EMULATED = GemmRecord("fp8ref::product", "c10::Float8_e4m3fn", "c10::Float8_e4m3fn", "fp8_emulated")
BESIDE = GemmRecord("aten::mm", "c10::BFloat16", "c10::BFloat16", "high_precision", inside="lib::linear")
UNKNOWN = GemmRecord("vendor::gemm", "c10::Float8_e4m3fn", "c10::Float8_e4m3fn", "unknown")
SITE = Break("Unsupported: print", "user.py:10", 2)
LEFT = tuple(Left(stretch, 8, "(2,) float32 on cpu") for stretch in (0, 1, 2))
REFUSAL = Raises("RuntimeError", "not supported under torch.compile")


def fired(j: Any) -> set[str]:
    return {finding.check for finding in run_checks(j)[0]}


def test_clean_cell_has_no_finding_and_every_executed_check_applies() -> None:
    findings, applied = run_checks(judging())
    assert findings == []
    not_applicable = {"error.refusal", "error.negative", "case.facts"}
    assert set(applied) == {check.name for check in CHECKS} - not_applicable


ALONE: list[tuple[str, Mapping[str, Any]]] = [
    ("compile.fake", {"operators": (OperatorSeen("lib::op", "strides (1, 4)", "strides (6, 1)"),)}),
    ("compile.eager_frames", {"census": {"frames_total": 3, "frames_ok": 1}}),
    ("compile.graphs", {"census": {"graphs": 2, "backward_graphs": 1}}),
    ("compile.graphs", {"census": {"graphs": 0, "backward_graphs": 1}}),
    ("compile.captured", {"census": {"calls": (CallSeen(3, 3),) * 11 + (CallSeen(0, 3),)}}),
    ("compile.breaks", {"census": {"breaks": (SITE,)}}),
    ("compile.breaks", {"census": {"counter_breaks": 1}}),
    ("compile.recompiles", {"census": {"recompiles": ("L['x'] changed",)}}),
    ("compile.recompile_limit", {"census": {"recompile_limit_hits": 1}}),
    ("compile.unimplemented", {"census": {"unimplemented": ("data-dependent branch",)}}),
    ("compile.backward_graph", {"census": {"backward_graphs": 0}}),
    ("compile.steady", {"census": {"steady_compiles": 1}}),
    ("fp8.gemms", {"gemms": (NATIVE,) * 8 + (BF16,)}),
    ("fp8.gemms", {"gemms": (NATIVE,) * 3 + (BF16,) * 6}),
    ("fp8.gemms", {"gemms": (NATIVE,) * 8 + (EMULATED,)}),
    ("fp8.gemms", {"gemms": (NATIVE,) * 8 + (UNKNOWN,)}),
    ("fp8.gemms", {"gemms": (NATIVE,) * 8 + (LIAR,)}),
    ("fp8.gemms", {"gemms": (NATIVE,) * 10}),
    ("fp8.gemms", {"gemms": (NATIVE,) * 9 + (BESIDE,)}),
    ("fp8.gemms", {"gemms": ()}),
    ("fp8.recipe_seen", {"compiled": clean_run((OUTER, OUTER, OUTER))}),
    ("fp8.recipe_seen", {"eager": clean_run((OUTER, INNER, INNER))}),
    ("fp8.recipe_seen", {"compiled": clean_run(LINEARS[:2])}),
    ("fp8.recipe_seen", {"compiled": clean_run(())}),
    ("state.unchanged", {"state_diffs": (StateDiff("after compile", "depth", "0", "1"),)}),
    ("state.observed", {"state_keys": 0}),
    ("state.observed", {"state_moves": 0}),
    ("state.memory", {"kept": Kept(10, LEFT)}),
    ("state.memory", {"kept": Kept(10, allocated=tuple(range(10)))}),
    ("state.handles", {"kept": Kept(10, handles=tuple(Handles(4 + count, 1) for count in (0, 1, 2, 3, 3)))}),
    ("observe.timing", {"timing": {"eager_s": 0.1, "steady_ms": -1.0}}),
    ("observe.timing", {"timing": {"eager_s": float("nan")}}),
    ("error.unexpected", {"errors": (error("compile"),)}),
    ("observe.complete", {"eager_again": None}),
    ("observe.complete", {"compiled": None}),
    ("observe.complete", {"later": ()}),
    ("observe.complete", {"kept": None}),
    ("observe.complete", {"kept": Kept(9)}),
    ("observe.complete", {"census": {"frames_total": 0, "frames_ok": 0}, "axes": {"fullgraph": False}}),
]


@pytest.mark.parametrize(("name", "broken"), ALONE, ids=[f"{i}-{name}" for i, (name, _) in enumerate(ALONE)])
def test_check_fires_alone(name: str, broken: Mapping[str, Any]) -> None:
    assert fired(judging(**broken)) == {name}


def test_a_programs_own_gemms_are_no_finding_and_those_beside_a_product_are() -> None:
    assert fired(judging(gemms=(NATIVE,) * 9 + (BF16,) * 4)) == set()
    (finding,) = run_checks(judging(gemms=(NATIVE,) * 9 + (BF16, BESIDE, BESIDE)))[0]
    assert finding.got == "2 high_precision in lib::linear"


def test_a_recipe_with_other_fields_has_the_level_of_its_kind() -> None:
    """A case may run recipes beside the cell's own: support is known by label for those of the cell alone."""
    other = f"{OUTER}(power_2_scale=true)"
    run = clean_run((other,) * 3)
    emulated = {
        "support": {OUTER: ("emulated", "", "")},
        "expects": Expects((other,) * 3),
        "eager": run,
        "compiled": run,
    }
    assert fired(judging(**emulated, gemms=(EMULATED,) * 9)) == set()
    assert fired(judging(**emulated, gemms=(NATIVE,) * 9)) == {"fp8.gemms"}


def test_every_check_has_a_test_that_makes_it_fail() -> None:
    covered = {name for name, _ in ALONE} | {"error.refusal", "error.negative", "case.facts"}
    assert {check.name for check in CHECKS} == covered


def test_missing_parts_are_red_together() -> None:
    assert fired(judging(census=None, compiled=None, gemms=None)) == {"observe.complete"}
    assert "observe.complete" in fired(judging(census={"calls": (CallSeen(3, 3),) * 2}))
    assert "observe.complete" in fired(judging(gemms=None))


def test_facts_are_judged_where_the_case_has_probes() -> None:
    met, missed = Fact("graphs of one setting", "1", "1"), Fact("graphs of two settings", "2", "3")
    assert fired(judging(facts=(met,))) == set()
    assert fired(judging(facts=(met, missed))) == {"case.facts"}
    assert fired(judging(facts=())) == {"case.facts"}  # probes that stated nothing


@pytest.mark.parametrize(
    ("event", "census", "check"),
    [
        ("recompiles", {"recompiles": ("a guard failed",)}, "compile.recompiles"),
        ("graph_breaks", {"breaks": (SITE,), "counter_breaks": 1}, "compile.breaks"),
        ("eager_frames", {"frames_total": 2, "frames_ok": 1}, "compile.eager_frames"),
    ],
)
def test_events_of_the_design_come_on_top_of_the_budget(event: str, census: Mapping[str, Any], check: str) -> None:
    expects = Expects(fp8_linears=LINEARS, **{event: 1})
    assert fired(judging(census=census)) == {check}
    assert fired(judging(census=census, expects=expects)) == set()


def test_no_observed_call_is_red() -> None:
    assert "compile.captured" in fired(judging(census={"calls": ()}))


def test_backward_graph_is_not_asked_of_the_eager_backend() -> None:
    assert fired(judging(census={"backward_graphs": 0}, axes={"backend": "eager"})) == set()


def test_budget_of_the_matrix_allows_what_it_names_and_no_more() -> None:
    one_break = Expectation(Budgets(graph_breaks=1, graphs=2))
    census = {"breaks": (SITE,), "graphs": 2, "backward_graphs": 2}
    assert fired(judging(one_break, census=census)) == set()
    assert fired(judging(one_break, census={**census, "breaks": (SITE, SITE)})) == {"compile.breaks"}


def test_message_names_site_and_reason() -> None:
    (finding,) = run_checks(judging(census={"breaks": (SITE,)}))[0]
    assert finding.site == "user.py:10"
    assert "print" in finding.got
    assert str(finding) == "compile.breaks: expected at most 0, got 1: Unsupported: print at user.py:10 at user.py:10"


class TestRefusal:
    """A documented refusal: on each call, of the right class, with the right text."""

    def judge(self, *errors: Any, attempts: int = 3) -> set[str]:
        parts = {"compiled": None, "census": None, "gemms": None}
        return fired(judging(Expectation(raises=REFUSAL), errors=errors, compile_attempts=attempts, **parts))

    def good(self, phase: str = "compile") -> Any:
        return error(phase, message="DelayedScaling is not supported under torch.compile")

    def test_met_on_each_call(self) -> None:
        assert self.judge(self.good(), self.good("run"), self.good("run")) == set()

    def test_silent_on_one_call(self) -> None:
        assert self.judge(self.good(), self.good("run")) == {"error.refusal"}

    def test_silent_on_every_call(self) -> None:
        assert self.judge() == {"error.refusal"}

    def test_never_tried(self) -> None:
        assert self.judge(attempts=0) == {"error.refusal"}

    def test_other_text(self) -> None:
        assert self.judge(self.good(), self.good(), error("run", message="boom")) == {"error.refusal"}

    def test_other_class(self) -> None:
        wrong = error("run", "ValueError", "not supported under torch.compile")
        assert self.judge(self.good(), self.good(), wrong) == {"error.refusal"}

    def test_an_error_in_another_phase_is_not_excused(self) -> None:
        three = (self.good(), self.good(), self.good())
        assert self.judge(*three, error("eager")) == {"error.unexpected"}


class TestRefusalOnEntry:
    """``phase: enter``: no region opens, so nothing else can be observed."""

    RAISES = Raises("RuntimeError", "not supported", phase="enter")

    def judge(self, *errors: Any) -> set[str]:
        parts = {"eager": None, "eager_again": None, "compiled": None, "census": None, "gemms": None}
        return fired(judging(Expectation(raises=self.RAISES), errors=errors, **parts))

    def test_met(self) -> None:
        refused = error("enter", message="this recipe is not supported here")
        assert self.judge(refused, refused) == set()

    def test_not_met(self) -> None:
        assert self.judge() == {"error.refusal"}


class TestNegative:
    """An unsupported recipe raises its documented class on entry."""

    def support(self) -> dict[str, tuple[str, str, str]]:
        return {OUTER: ("native", "", ""), INNER: ("unsupported", "needs 9.0", "RuntimeError")}

    def judge(self, *errors: Any) -> set[str]:
        return fired(judging(evidence=Evidence.NEGATIVE, support=self.support(), errors=errors))

    def test_raised(self) -> None:
        assert self.judge(error("enter")) == set()

    def test_accepted(self) -> None:
        assert self.judge() == {"error.negative"}

    def test_other_class(self) -> None:
        assert self.judge(error("enter", "AssertionError")) == {"error.negative"}

    def test_the_region_after_it_must_work(self) -> None:
        assert self.judge(error("enter"), error("eager")) == {"error.unexpected"}

    def test_a_refusal_documented_for_other_machines_is_not_asked_for(self) -> None:
        j = judging(
            Expectation(raises=REFUSAL), evidence=Evidence.NEGATIVE, support=self.support(), errors=(error("enter"),)
        )
        assert fired(j) == set()


class TestTraced:
    """Nothing executes: the graphs are judged, and the FP8 calls in them are the case's."""

    def judge(self, captured: int) -> set[str]:
        parts = {"eager": None, "eager_again": None, "compiled": None, "gemms": None}
        census = {"calls": (CallSeen(3, 0), CallSeen(captured, 0))}
        return fired(judging(evidence=Evidence.TRACED, census=census, **parts))

    def traced(self, *steps: RunSeen, **how: Any) -> set[str]:
        """What fires where the operators that ran under fake tensors are those of ``steps``."""
        seen = [tuple(ProductSeen(r.recipe, r.product, r.phase) for r in run.records) for run in steps]
        parts = {"eager": None, "eager_again": None, "compiled": None, "gemms": None}
        census = {"calls": (CallSeen(3, 0),) * 2}
        steps_seen = tuple(TracedStep({}, products) for products in seen)
        return fired(judging(evidence=Evidence.TRACED, census=census, traced=steps_seen, **parts, **how))

    def test_operators_that_were_given_the_stated_recipes(self) -> None:
        assert self.traced(clean_run(), clean_run()) == set()

    @pytest.mark.parametrize("linears", [(OUTER, OUTER, OUTER), LINEARS[:2], (INNER, OUTER, OUTER), ()])
    def test_another_recipe_or_product_in_the_second_step(self, linears: tuple[str, ...]) -> None:
        assert self.traced(clean_run(), clean_run(linears)) == {"fp8.recipe_seen"}

    @pytest.mark.parametrize("lost", ["dgrad", "wgrad"])
    def test_a_backward_that_lacks_a_product(self, lost: str) -> None:
        kept = tuple(record for record in clean_run().records if record.product != lost)
        assert self.traced(dataclasses.replace(clean_run(), records=kept)) == {"fp8.recipe_seen"}

    def test_a_recompute_is_no_forward(self) -> None:
        again = tuple(replace(record, phase="recompute") for record in clean_run().records)
        assert self.traced(dataclasses.replace(clean_run(), records=again)) == {"fp8.recipe_seen"}

    def test_a_program_that_states_nothing_and_a_provider_that_tells_nothing(self) -> None:
        assert self.traced(clean_run((INNER,)), expects=Expects(stated=False)) == set()
        j = judging(evidence=Evidence.TRACED, traced=(TracedStep({}),) * 2)
        assert "fp8.recipe_seen" not in run_checks(replace(j, obs=replace(j.obs, eager=None)))[1]

    def test_all_captured(self) -> None:
        assert self.judge(3) == set()

    def test_one_missing(self) -> None:
        assert self.judge(2) == {"compile.captured"}


def test_calls_that_torch_is_known_to_run_in_python() -> None:
    expects = Expects(fp8_linears=LINEARS, graphs=0, captured=False)
    eager = {"graphs": 0, "backward_graphs": 0, "calls": (CallSeen(0, 3),) * 12}
    assert fired(judging(census=eager, expects=expects)) == set()
    captured = {**eager, "calls": (CallSeen(0, 3), CallSeen(3, 3)) * 6}
    assert fired(judging(census=captured, expects=expects)) == {"compile.captured"}


def test_eager_runs_that_ended_as_documented_are_not_missing() -> None:
    expects = Expects(fp8_linears=LINEARS, eager_is_wrong="a reason", eager_error="CheckpointError")
    known = {"eager": None, "eager_again": None, "expects": expects}
    assert "observe.complete" in fired(judging(**known))
    assert fired(judging(**known, eager_errors=(error("backward"),))) == set()
    wrong = judging(**known, eager_errors=(error("backward"),), compiled=clean_run((OUTER, OUTER, OUTER)))
    assert fired(wrong) == {"fp8.recipe_seen"}


class TestOrderOfWgrads:
    """Nothing waits for a wgrad: Inductor runs those of a step as it likes, but the same ones, and nobody else does."""

    def judge(self, wgrads: tuple[str, ...], run: str = "compiled", backend: str = "inductor") -> set[str]:
        clean = clean_run()
        kept = tuple(item for item in clean.records if item.product != "wgrad")
        changed = dataclasses.replace(clean, records=(*kept, *(record(label, "wgrad") for label in wgrads)))
        return fired(judging(axes={"backend": backend}, **{run: changed}))

    def test_another_order(self) -> None:
        assert self.judge((INNER, OUTER, OUTER)) == set()

    @pytest.mark.parametrize("wgrads", [(OUTER, OUTER, OUTER), (INNER, INNER, OUTER), (OUTER, INNER), (OUTER,) * 4])
    def test_other_recipes(self, wgrads: tuple[str, ...]) -> None:
        assert self.judge(wgrads) == {"fp8.recipe_seen"}

    def test_a_forward_in_several_threads_has_no_order_of_backward(self) -> None:
        clean = clean_run()
        kept = tuple(item for item in clean.records if item.product not in ("dgrad", "wgrad"))
        unordered = Expects(fp8_linears=LINEARS, ordered_backward=False)
        for labels, fires in (((INNER, OUTER, OUTER), set()), ((OUTER,) * 3, {"fp8.recipe_seen"})):
            products = [record(label, product) for label in labels for product in ("dgrad", "wgrad")]
            changed = dataclasses.replace(clean, records=(*kept, *products))
            assert fired(judging(expects=unordered, eager=changed)) == fires
            assert fired(judging(eager=changed)) == {"fp8.recipe_seen"}

    @pytest.mark.parametrize(("run", "backend"), [("eager", "inductor"), ("compiled", "aot_eager")])
    def test_another_order_elsewhere(self, run: str, backend: str) -> None:
        assert self.judge((INNER, OUTER, OUTER), run, backend) == {"fp8.recipe_seen"}


class TestUnstated:
    """A user's own module: graphs and products are shown, but there must be some."""

    UNSTATED = Expects(stated=False)

    def judge(self, expect: Expectation | None = None, **changes: Any) -> set[str]:
        return fired(judging(expect, expects=self.UNSTATED, **changes))

    def test_any_number_of_graphs_and_products_is_fine(self) -> None:
        assert self.judge() == set()
        assert self.judge(census={"graphs": 3, "backward_graphs": 2}, gemms=(NATIVE,) * 4) == set()

    def test_none_is_red(self) -> None:
        assert self.judge(census={"graphs": 0}) == {"compile.graphs"}
        assert self.judge(census={"backward_graphs": 0}) == {"compile.backward_graph"}
        assert self.judge(census={"calls": (CallSeen(0, 0),) * 12}) == {"compile.captured"}
        assert self.judge(gemms=(BF16,) * 9) == {"fp8.gemms"}
        assert self.judge(gemms=(LIAR,)) == {"fp8.gemms"}

    def test_a_module_without_gradients_needs_no_backward_graph(self) -> None:
        run = clean_run()
        bare = replace(run, steps=(replace(run.steps[0], grads={}),))
        assert self.judge(census={"backward_graphs": 0}, compiled=bare) == set()
        assert observed(judging(expects=self.UNSTATED, compiled=bare)).endswith("nothing of a backward was judged")

    def test_the_matrix_can_state_the_graphs(self) -> None:
        two = Expectation(Budgets(graphs=2))
        assert self.judge(two, census={"graphs": 2, "backward_graphs": 2}) == set()
        assert "compile.graphs" in self.judge(two, census={"graphs": 1, "backward_graphs": 2})

    def test_compiled_products_have_the_recipes_of_the_eager_ones(self) -> None:
        assert self.judge(compiled=clean_run((OUTER, OUTER, OUTER))) == {"fp8.recipe_seen"}
        assert self.judge(compiled=clean_run(LINEARS[:2])) == {"fp8.recipe_seen"}
        both = {"eager": clean_run((OUTER,)), "compiled": clean_run((OUTER,))}
        assert self.judge(**both) == set()

    def test_products_on_the_same_operands_may_be_merged_by_aot_and_no_others(self) -> None:
        thrice, once = clean_run((OUTER,) * 3), clean_run((OUTER,))  # the records of a clean run are all on one operand
        aot, eager = {"backend": "aot_eager"}, {"backend": "eager"}
        assert self.judge(axes=aot, eager=thrice, compiled=once) == set()
        assert self.judge(axes=aot, eager=thrice, compiled=clean_run((OUTER,) * 2)) == set()  # by chance
        assert self.judge(axes=aot, eager=once, compiled=thrice) == {"fp8.recipe_seen"}
        assert self.judge(axes=eager, eager=thrice, compiled=once) == {"fp8.recipe_seen"}
        assert self.judge(axes=aot, eager=thrice, compiled=clean_run(())) == {"fp8.recipe_seen"}
        assert self.judge(axes=aot, eager=clean_run((OUTER, INNER)), compiled=once) == {"fp8.recipe_seen"}
        moved = [replace(r, a=replace(r.a, source=r.a.source + i)) for i, r in enumerate(thrice.records)]
        other = replace(thrice, records=tuple(moved))
        assert self.judge(axes=aot, eager=other, compiled=once) == {"fp8.recipe_seen"}
        steps = replace(thrice, steps_of_records=tuple(range(9)))  # the same operands in another step
        assert self.judge(axes=aot, eager=steps, compiled=once) == {"fp8.recipe_seen"}

    def test_calls_that_aot_dropped_are_named_where_none_is_left(self) -> None:
        census = {"calls": (CallSeen(0, 0),) * 12, "dropped_calls": 2}
        (finding,) = captured(judging(expects=self.UNSTATED, census=census))
        assert "AOT dropped 2: does the result depend on them?" in finding.got
        told = observed(judging(expects=self.UNSTATED, census={"dropped_calls": 2}))
        assert told.endswith("AOT merged equal FP8 calls or dropped unused ones: 2")

    def test_one_mistake_in_a_users_program_is_told_once(self) -> None:
        errors = (error("eager"), error("eager"), error("compile"), error("compile", message="another"))
        own = unexpected(judging(expects=self.UNSTATED, errors=errors, axes={"target": "m:build"}))
        assert [finding.got for finding in own] == ["RuntimeError: boom", "RuntimeError: another"]
        assert len(unexpected(judging(errors=errors))) == 3

    def test_traced_graphs_hold_some_fp8_call(self) -> None:
        parts = {"eager": None, "eager_again": None, "compiled": None, "gemms": None, "evidence": Evidence.TRACED}
        assert self.judge(census={"calls": (CallSeen(1, 0), CallSeen(0, 0))}, **parts) == set()
        assert self.judge(census={"calls": (CallSeen(0, 0),) * 2}, **parts) == {"compile.captured"}

    def test_what_was_observed_is_told(self) -> None:
        text = observed(judging(expects=self.UNSTATED))
        assert text == (
            "not stated, only observed: 1 forward and 1 backward graph(s); forward products of a step: "
            "2 x float8_current_scaling, 1 x float8_block_scaling; GEMMs: 9 fp8_native"
        )
        assert observed(judging()) == ""
        assert observed(judging(Expectation(raises=REFUSAL), expects=self.UNSTATED)) == ""
