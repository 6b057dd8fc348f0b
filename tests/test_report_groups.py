import dataclasses
import os

from harness.report.groups import group_reds, headline, place, user_site
from harness.types import Axes, CellResult, Finding, Spec, Verdict
from tests.support.report_fakes import (
    BREAK,
    BYTES,
    STACK,
    ci_axes,
    crashed_results,
    green_results,
    library_results,
    mixed_results,
    passed,
    red,
)


def test_reds_of_one_cause_are_one_group() -> None:
    groups = group_reds(mixed_results())
    assert [(group.check, len(group.members)) for group in groups] == [
        ("compile.eager_frames", 10),
        ("numerics.codes", 5),
        ("crash", 2),
        ("state.unchanged", 1),
        ("timeout", 1),
        ("numerics.program", 1),
    ]


def test_every_red_is_in_exactly_one_group_and_no_green_is() -> None:
    results = mixed_results()
    grouped = [member.id for group in group_reds(results) for member in group.members]
    assert sorted(grouped) == sorted(result.id for result in results if result.verdict.is_red)
    assert group_reds(green_results()) == []


def test_the_predicate_is_true_of_the_group_and_false_of_the_greens() -> None:
    results = mixed_results()
    greens = [result.axes for result in results if result.verdict is Verdict.PASS]
    for group in group_reds(results):
        assert group.predicate is not None
        assert all(group.predicate.holds(member.axes) for member in group.members)
        assert not any(map(group.predicate.holds, greens))
    assert group_reds(results)[1].predicate_text == "recipe=float8_block_scaling and backend=inductor"


def test_reds_of_a_variant_are_told_apart_by_it_and_its_case() -> None:
    texts = [group.predicate_text for group in group_reds(library_results())]
    assert texts == [
        "case=checkpoint and fullgraph=false and variant=reentrant",
        "case=amp and recipe=mxfp8_block_scaling and variant=inside",
    ]


def test_cases_without_variants_have_no_variant_to_name() -> None:
    def result(case: str, variant: str = "") -> CellResult:
        return passed(Axes(case, Spec("p"), Spec("r"), variant=variant))

    reds = [red(result(case), BYTES) for case in ("a", "b")]
    greens = [result(case, "v") for case in ("c", "d", "e")]
    assert group_reds([*reds, *greens])[0].predicate_text == "case in {a, b}"


def test_no_single_predicate_is_said_in_words() -> None:
    axes = ci_axes()[10]
    twin = passed(axes)
    result = dataclasses.replace(red(passed(axes), BYTES), id="another")
    assert "no single predicate" in group_reds([twin, result])[0].predicate_text


def test_quarantined_groups_come_last_and_do_not_gate() -> None:
    groups = group_reds(mixed_results())
    assert [group.gates for group in groups] == [True] * 5 + [False]


def test_results_without_a_recorded_signature_are_grouped_too() -> None:
    results = [dataclasses.replace(result, signature="") for result in crashed_results()]
    assert len(group_reds(results)) == 1


def test_the_representative_knows_a_place_in_the_users_code() -> None:
    nowhere = Finding("compile.eager_frames", "at most 0", "1")
    first, second = (passed(axes) for axes in ci_axes()[10:12])
    results = [red(first, nowhere), red(second, dataclasses.replace(nowhere, site="cases/a.py:3"))]
    results = [dataclasses.replace(result, signature="one") for result in results]
    assert group_reds(results)[0].representative.id == second.id


def test_the_users_site_is_the_innermost_frame_of_their_own() -> None:
    result = passed(ci_axes()[0])
    assert user_site(dataclasses.replace(result, detail=STACK)) == "/home/user/project/models/block.py:41"
    assert user_site(result) == ""
    inside = Finding("c", "a", "b", site=f"{os.getcwd()}/cases/toy_linear.py:58")
    assert user_site(red(result, inside)) == "cases/toy_linear.py:58"


def test_headline_is_one_line_and_never_empty() -> None:
    result = passed(ci_axes()[0])
    assert headline(red(result, BREAK)) == str(BREAK)
    assert headline(dataclasses.replace(result, reason="a\nb")) == "a b"
    assert headline(result) == "no reason was recorded"


def test_a_group_says_on_which_gpu_its_first_cell_ran() -> None:
    gpu = {"index": 1, "name": "NVIDIA H200", "uuid": "GPU-7", "alone": False}
    failed = dataclasses.replace(crashed_results()[0], verdict=Verdict.FAIL, worker="gw3", gpu=gpu)
    assert ("on", "GPU 1 (NVIDIA H200), worker gw3") in group_reds([failed])[0].facts()
    assert place(dataclasses.replace(failed, gpu={})) == ""
