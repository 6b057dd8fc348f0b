"""harness.judge.support_table: every combination has a row with a source, and beliefs are judged both ways."""

from __future__ import annotations

import pytest

from harness.judge.support_table import CHECK, TABLE, Native, judge_support, native
from harness.types import ARCHES, RECIPES

LEVELS = ("native", "emulated", "unsupported")
RESOLVED = tuple(arch for arch in ARCHES if arch != "host")


def red(recipe: str, arch: str, cuda: tuple[int, int] | None, level: str, *, offered: bool = True) -> bool:
    return bool(judge_support(recipe, arch, cuda, level, offered=offered))


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("arch", RESOLVED)
def test_every_recipe_and_architecture_has_a_row_with_a_source(recipe: str, arch: str) -> None:
    assert len(TABLE[recipe][arch].source) > 20
    assert set(TABLE[recipe]) == set(RESOLVED)


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("arch", RESOLVED)
def test_every_row_accepts_the_truth_and_refuses_its_opposite(recipe: str, arch: str) -> None:
    known = native(recipe, arch, (13, 0))
    accepted = {level for level in LEVELS if not red(recipe, arch, (13, 0), level)}
    assert (
        accepted
        == {
            Native.YES: {"native"},
            Native.NO: {"emulated", "unsupported"},
            Native.MAY: set(LEVELS),
        }[known]
    )


@pytest.mark.parametrize(
    ("recipe", "arch", "cuda", "wanted"),
    [
        ("delayed_scaling", "cpu", None, Native.YES),
        ("float8_current_scaling", "sm89", (12, 0), Native.NO),
        ("float8_current_scaling", "sm89", (12, 1), Native.YES),
        ("float8_current_scaling", "sm90", (11, 8), Native.YES),
        ("float8_rowwise_scaling", "sm90", (12, 4), Native.YES),
        ("float8_block_scaling", "sm89", (13, 0), Native.NO),
        ("float8_block_scaling", "sm90", (12, 8), Native.NO),
        ("float8_block_scaling", "sm90", (12, 9), Native.YES),
        ("float8_block_scaling", "sm100", (13, 0), Native.MAY),
        ("mxfp8_block_scaling", "sm90", (13, 0), Native.NO),
        ("mxfp8_block_scaling", "sm100", (12, 8), Native.YES),
        ("mxfp8_block_scaling", "sm100", (12, 6), Native.NO),
        ("mxfp8_block_scaling", "sm120", (13, 0), Native.MAY),
        ("mxfp8_block_scaling", "cpu", None, Native.NO),
        ("nvfp4_block_scaling", "sm90", (13, 0), Native.NO),
        ("nvfp4_block_scaling", "sm103", None, Native.YES),
        ("nvfp4_block_scaling", "sm120", (12, 8), Native.YES),
    ],
)
def test_known_answers(recipe: str, arch: str, cuda: tuple[int, int] | None, wanted: Native) -> None:
    assert native(recipe, arch, cuda) is wanted


def test_a_false_belief_says_what_where_and_why() -> None:
    (finding,) = judge_support("mxfp8_block_scaling", "sm90", (13, 0), "native")
    assert finding.check == CHECK
    assert finding.where == "mxfp8_block_scaling on sm90, CUDA 13.0"
    assert finding.expected.startswith("emulated or unsupported (no block-scaled matrix instructions")
    assert finding.got == "native"
    (finding,) = judge_support("float8_current_scaling", "cpu", None, "unsupported")
    assert finding.where == "float8_current_scaling on cpu"
    assert finding.expected.startswith("native (")


def test_a_recipe_that_a_library_never_offers_may_be_unsupported_but_not_native_without_a_kernel() -> None:
    assert red("float8_rowwise_scaling", "sm90", (13, 0), "unsupported")
    assert not red("float8_rowwise_scaling", "sm90", (13, 0), "unsupported", offered=False)
    assert red("float8_rowwise_scaling", "sm90", (13, 0), "emulated", offered=False)
    assert red("nvfp4_block_scaling", "sm90", (13, 0), "native", offered=False)


def test_the_reference_believes_what_the_table_says() -> None:
    from harness.providers import PROVIDERS
    from harness.registry import load
    from harness.types import Spec

    for emulate in (True, False):
        provider = load(PROVIDERS["reference"])(emulate=emulate)
        for recipe in RECIPES:
            for arch in RESOLVED:
                level = provider.supports(Spec(recipe), arch).level
                assert judge_support(recipe, arch, None, level) == [], (recipe, arch, level)
    load(PROVIDERS["reference"])()  # the setting is process-wide


# Transformer Engine 2.20's own rules (check_fp8_support and its siblings), read from its source: the capability and the
# toolkit it asks for. What the table says beyond them is stated row by row below.
CAPABILITY = {"sm89": (8, 9), "sm90": (9, 0), "sm100": (10, 0), "sm103": (10, 3), "sm120": (12, 0)}
TOOLKITS = ((11, 8), (12, 0), (12, 1), (12, 4), (12, 6), (12, 8), (12, 9), (13, 0))


def te_accepts(recipe: str, arch: str, cuda: tuple[int, int]) -> bool:
    capability = CAPABILITY[arch]
    return {
        "delayed_scaling": capability >= (9, 0) or cuda >= (12, 1),
        "float8_current_scaling": capability >= (9, 0) or cuda >= (12, 1),
        "float8_block_scaling": capability >= (9, 0) and cuda >= (12, 9),
        "mxfp8_block_scaling": (10, 0) <= capability < (12, 0),
        "nvfp4_block_scaling": capability >= (10, 0),
    }[recipe]


def needs_newer_toolkit(recipe: str, cuda: tuple[int, int]) -> bool:
    """cuBLASLt multiplies MXFP8 and NVFP4 from CUDA 12.8 on; Transformer Engine does not ask."""
    return recipe in ("mxfp8_block_scaling", "nvfp4_block_scaling") and cuda < (12, 8)


@pytest.mark.parametrize("cuda", TOOLKITS)
@pytest.mark.parametrize("arch", sorted(CAPABILITY))
@pytest.mark.parametrize("recipe", sorted(set(RECIPES) - {"float8_rowwise_scaling"}))
def test_the_table_agrees_with_transformer_engine_on_every_toolkit(
    recipe: str, arch: str, cuda: tuple[int, int]
) -> None:
    known, accepted = native(recipe, arch, cuda), te_accepts(recipe, arch, cuda)
    if known is Native.YES:
        assert accepted
    if accepted and not needs_newer_toolkit(recipe, cuda):
        assert known is not Native.NO


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("arch", RESOLVED)
def test_a_newer_toolkit_never_loses_a_kernel(recipe: str, arch: str) -> None:
    has = [native(recipe, arch, cuda) is not Native.NO for cuda in TOOLKITS]
    assert has == sorted(has)


def test_a_format_that_stacks_differ_on_may_be_believed_either_way() -> None:
    for level in ("native", "emulated", "unsupported"):
        assert judge_support("float8_block_scaling", "sm90", (13, 0), level, fp8_format="HYBRID") == []
    assert judge_support("float8_block_scaling", "sm90", (13, 0), "unsupported", fp8_format="E4M3") != []
    assert judge_support("float8_block_scaling", "sm89", (13, 0), "native", fp8_format="HYBRID") != []
