"""Where Transformer Engine can't be used the cell is skipped, with the very reason and the command that mends it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from harness.plan.ids import cell_id
from harness.providers import te_stack
from harness.providers.protocol import ProviderUnavailable
from harness.providers.transformer_engine import TransformerEngineProvider
from harness.run.execute import execute_cell
from harness.types import Axes, Cell, CellResult, Evidence, Spec, Verdict
from tests.support.te import EQUAL, forget, install

Install = Callable[..., None]


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    yield
    forget()


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Install:
    return lambda **changes: install(monkeypatch, tmp_path, **changes)


def package(tmp_path: Path, text: str) -> Path:
    """A package whose import runs ``text``."""
    home = tmp_path / "other" / "transformer_engine"
    home.mkdir(parents=True)
    (home / "__init__.py").write_text(text)
    return home.parent


def run() -> CellResult:
    axes = Axes("toy_linear", Spec("transformer_engine"), Spec("float8_current_scaling"))
    return execute_cell(Cell(cell_id(axes), axes, None))


def assert_skipped(reason: str, fix: str) -> None:
    """The same words in the exception, in doctor's finding and in the verdict."""
    with pytest.raises(ProviderUnavailable) as caught:
        TransformerEngineProvider()
    assert (caught.value.reason, str(caught.value)) == (reason, reason)
    assert fix in caught.value.fix
    assert bool(fix) == bool(caught.value.fix)
    (finding,) = te_stack.findings()
    assert (finding.ok, finding.text, finding.fix) == (False, reason, caught.value.fix)
    result = run()
    assert (result.verdict, result.reason, result.evidence) == (Verdict.SKIP, reason, Evidence.NONE)
    assert result.findings == ()
    assert not result.verdict.is_red


def test_not_installed(installed: Install) -> None:
    installed(versions={})
    fix = "pip install --no-build-isolation 'transformer-engine[pytorch]'"
    assert_skipped("Transformer Engine is not installed", fix)


def test_one_part_of_it_alone(installed: Install) -> None:
    installed(versions={"transformer-engine-cu13": "2.20.2"})
    assert_skipped(
        "Transformer Engine is not installed (transformer-engine-cu13 2.20.2 without it)", "transformer-engine[pytorch]"
    )


def test_distributions_that_differ(installed: Install) -> None:
    installed(versions={**EQUAL, "transformer-engine-torch": "2.19.0"})
    assert_skipped(
        "Transformer Engine's distributions differ in version: transformer-engine 2.20.2, "
        "transformer-engine-torch 2.19.0, transformer-engine-cu13 2.20.2",
        "'transformer-engine[pytorch]==2.20.2'",
    )


@pytest.mark.parametrize("version", ["2.15.0", "1.13.0", "0.9"])
def test_too_old(installed: Install, version: str) -> None:
    installed(versions=dict.fromkeys(EQUAL, version))
    reason = f"Transformer Engine {version} is too old: torch.compile can't trace its autocast before 2.16"
    assert_skipped(reason, "transformer-engine[pytorch]>=2.16'")


@pytest.mark.parametrize("version", ["2.16.0", "2.16.0+abc123", "3.0.dev0", "10.1"])
def test_new_enough(installed: Install, version: str) -> None:
    installed(versions={"transformer-engine": version})  # built from source: one distribution
    TransformerEngineProvider()
    (finding, *_) = te_stack.findings()
    assert (finding.ok, finding.text) == (True, f"transformer-engine {version}")


def test_installed_without_a_gpu(installed: Install) -> None:
    installed(gpu=False)
    assert_skipped("Transformer Engine 2.20.2 needs a GPU, and torch sees none", "")


def test_a_torch_that_knows_no_gpu(installed: Install) -> None:
    installed(cuda=None)
    reason = f"Transformer Engine 2.20.2 needs a GPU, and torch {torch.__version__} is built without CUDA"
    assert_skipped(reason, "")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("raise OSError('libcublas.so.13: cannot\\n  open it')", "OSError: libcublas.so.13: cannot open it"),
        ("assert False, 'found no wheel of the core library'", "AssertionError: found no wheel of the core library"),
        ("raise RuntimeError", "RuntimeError: no message"),
    ],
)
def test_a_failed_import_is_told_in_the_librarys_own_words(
    installed: Install, tmp_path: Path, text: str, said: str
) -> None:
    installed(package=package(tmp_path, text))
    with pytest.raises(ProviderUnavailable, match=said) as caught:
        TransformerEngineProvider()
    assert_skipped(caught.value.reason, "'transformer-engine[pytorch]==2.20.2'")
    assert caught.value.reason.startswith("importing Transformer Engine 2.20.2 raised ")
    assert "\n" not in caught.value.reason


def test_a_version_without_what_the_provider_rests_on(installed: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    installed()
    basic_linear = te_stack.module("pytorch.ops.basic.basic_linear")
    monkeypatch.delattr(basic_linear.BasicLinear, "_functional_backward")
    name = "transformer_engine.pytorch.ops.basic.basic_linear.BasicLinear._functional_backward"
    assert_skipped(f"Transformer Engine 2.20.2 has no {name}", "")


def test_the_most_telling_reason_comes_first(installed: Install) -> None:
    installed(versions={**EQUAL, "transformer-engine": "2.10.0"}, cuda=None, gpu=False)
    with pytest.raises(ProviderUnavailable, match="differ in version"):
        te_stack.require()


def test_a_cudnn_that_torch_was_not_built_for_is_a_finding_and_breaks_nothing(
    installed: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed()

    def version() -> int:
        raise RuntimeError("PyTorch was compiled  against (9, 19, 0)\n but found runtime version (9, 14, 0)")

    monkeypatch.setattr(torch.backends.cudnn, "version", version)
    (finding,) = [f for f in TransformerEngineProvider().doctor() if f.topic == "cuDNN"]
    assert not finding.ok
    assert finding.text == "PyTorch was compiled against (9, 19, 0) but found runtime version (9, 14, 0)"
    assert finding.fix == "pip install --upgrade nvidia-cudnn-cu13"
    monkeypatch.setattr(torch.backends.cudnn, "version", lambda: 91900)
    (finding,) = [f for f in TransformerEngineProvider().doctor() if f.topic == "cuDNN"]
    assert (finding.ok, finding.text, finding.fix) == (True, "9.19.0", "")


def test_doctor_says_what_each_recipe_can_do_and_which_variables_are_set(
    installed: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed()
    monkeypatch.setenv("NVTE_FP8_BLOCK_SCALING_FP32_SCALES", "1")
    monkeypatch.setattr("harness.providers.transformer_engine.host_arch", lambda: "sm90")
    texts = {f.topic: f.text for f in TransformerEngineProvider().doctor()}
    assert texts["transformer_engine float8_block_scaling"] == "native on sm90"
    assert texts["transformer_engine mxfp8_block_scaling"] == "unsupported on sm90: needs compute capability 10.x"
    assert texts["transformer_engine float8_rowwise_scaling"].endswith("no recipe for float8_rowwise_scaling")
    assert texts["environment"] == "NVTE_FP8_BLOCK_SCALING_FP32_SCALES=1"
