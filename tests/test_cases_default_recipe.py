"""cases.default_recipe, the judge's rule of the default, and the oracle that has to be told."""

from __future__ import annotations

import pytest

from cases.default_recipe import asks, unavailable
from harness.judge.oracle_provider import OracleProvider, OracleUnsupported
from harness.judge.support_table import DEFAULT_CHECK, default_recipe, judge_default
from harness.providers.reference import ReferenceProvider
from harness.run.execute import execute_cell
from harness.types import ARCHES, Axes, Cell, Spec, Verdict

import torch  # isort: skip

WANTED = {
    "cpu": "delayed_scaling",
    "sm89": "delayed_scaling",
    "sm90": "delayed_scaling",
    "sm100": "mxfp8_block_scaling",
    "sm103": "mxfp8_block_scaling",
    "sm120": "float8_current_scaling",
}


@pytest.mark.parametrize("arch", ARCHES[1:])
def test_the_rule_accepts_one_recipe_on_each_architecture(arch: str) -> None:
    assert default_recipe(arch, (13, 0)) == default_recipe(arch, None) == WANTED[arch]
    assert judge_default(Spec(WANTED[arch]), arch, (13, 0)) == []
    (finding,) = judge_default(Spec("nvfp4_block_scaling"), arch, (13, 0))
    assert (finding.check, finding.got, finding.where) == (
        DEFAULT_CHECK,
        "nvfp4_block_scaling",
        f"default recipe on {arch}",
    )


def test_a_toolkit_without_mxfp8_falls_back() -> None:
    assert default_recipe("sm100", (12, 6)) == "delayed_scaling"


@pytest.mark.parametrize("arch", ARCHES[1:])
def test_the_reference_names_its_default_by_the_rule(arch: str) -> None:
    axes = Axes("default_recipe", Spec("reference"), Spec("float8_current_scaling"), arch)
    assert unavailable(ReferenceProvider(), axes, arch) == ""
    assert asks(ReferenceProvider(), axes, arch) == {"default_recipe": Spec(WANTED[arch])}


def test_the_oracle_refuses_a_default_until_it_is_told() -> None:
    provider = OracleProvider(torch.bfloat16)
    layer = provider.linear(16, 16, bias=False, dtype=torch.bfloat16, device=torch.device("cpu"))
    with pytest.raises(OracleUnsupported, match="default recipe"), provider.autocast(enabled=True):
        pass
    provider.assume_default_recipe(Spec("float8_current_scaling"))
    provider.begin_step()
    with provider.autocast(enabled=True):
        layer(torch.ones(16, 16, dtype=torch.float64))
        with provider.autocast(enabled=False):
            layer(torch.ones(16, 16, dtype=torch.float64))
    assert [entry.recipe for entry in provider.trace] == ["float8_current_scaling"]
    with pytest.raises(ValueError, match="unknown recipe"):
        provider.assume_default_recipe(Spec("float7"))


def test_the_provider_s_word_reaches_the_judge() -> None:
    axes = Axes("default_recipe", Spec("reference"), Spec("float8_current_scaling"), "sm120", variant="alone")
    result = execute_cell(Cell("cell", axes, None))
    assert (result.verdict, result.findings) == (Verdict.PASS, ())
    assert {DEFAULT_CHECK, "case.facts"} <= set(result.checks)
