"""The report on a terminal: at any width, without colour, and nothing that matters left out."""

from __future__ import annotations

import dataclasses
import io
import shlex

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from harness.doctor.children import Reply
from harness.doctor.questions import Finding, ProviderFacts, Request
from harness.doctor.render import print_report, report_page, said_elsewhere
from harness.doctor.types import Answer, Item, ProviderReport, RecipeSupport, Report, Status
from tests.support.doctoring import H200, LAPTOP, ON_HOPPER, TE_FIX, WITH_GPU, WITHOUT_GPU, provider_facts, report_of

ANYTHING = st.text(st.characters(categories=["L", "M", "N", "P", "S", "Z", "C"]), max_size=120)
MATRIX = (
    "require: native\nmatrix: {provider: [reference, transformer_engine], recipe: [float8_current_scaling,"
    " mxfp8_block_scaling, float8_rowwise_scaling]}\n"
)
NOT_INSTALLED = ProviderFacts("sm90", unavailable="Transformer Engine is not installed", fix=TE_FIX)
DIED = Reply("", "was killed by SIGSEGV", ("Fatal Python error: Segmentation fault", '  File "te.py", line 3 in load'))


def bad(version: str = "2.9.1") -> Report:
    """Everything at once: a GPU that fails, a provider that died, refused variables, a matrix that falls short."""
    gpus = (H200, dataclasses.replace(H200, index=1, error="RuntimeError: no kernel image"))
    return report_of(
        matrix=MATRIX,
        replies={"transformer_engine": DIED},
        torch=dataclasses.replace(WITH_GPU, gpus=gpus, version=version),
        env={"TORCHDYNAMO_DISABLE": "1", "NVTE_X": "a b", "CUDA_VISIBLE_DEVICES": "0,1"},
    )


def laptop() -> Report:
    return report_of(machine=LAPTOP, torch=WITHOUT_GPU, replies={"transformer_engine": NOT_INSTALLED})


def text(report: Report, width: int = 80) -> str:
    return "\n".join(line.plain for line in report_page(report, width).lines)


def words(report: Report, width: int = 80) -> str:
    return " ".join(text(report, width).split())


@pytest.mark.parametrize("make", [report_of, laptop, bad])
@pytest.mark.parametrize("width", [30, 40, 80, 200])
def test_no_line_is_wider_than_the_terminal(make, width) -> None:  # type: ignore[no-untyped-def]
    for line in text(make(), width).splitlines():
        assert cell_len(line) <= width
        assert "..." not in line  # nothing was cut


@settings(max_examples=40, deadline=None)
@given(ANYTHING, ANYTHING)
def test_no_text_of_a_library_widens_a_line_or_drives_the_terminal(name: str, said: str) -> None:
    report = bad()
    odd = ProviderReport(name, Answer.USABLE, said, recipes=(RecipeSupport(name, said, said, said),))
    odd = dataclasses.replace(odd, findings=(Item(name, Status.PROBLEM, said),))
    dead = ProviderReport(name, Answer.DIED, reason=said, output=(said, name))
    report = dataclasses.replace(
        report, providers=(odd, dead), stack=(Item(name, Status.NOTE, said),), exit_reason=said
    )
    stream = io.StringIO()
    print_report(Console(file=stream, width=80), report)
    for line in stream.getvalue().split("\n"):
        assert cell_len(line) <= 80
        assert "\x1b" not in line
        line.encode("utf-8")


def test_a_good_machine_in_words() -> None:
    said = words(report_of())
    assert "ok torch 2.11.0+cu130, built for CUDA 13.0, git 0123456789ab" in said
    assert "ok NVIDIA driver 580.65.06, for CUDA 13.0 and older" in said
    assert "GPUs (CUDA_VISIBLE_DEVICES is not set)" in said
    assert "ok cuda:0: NVIDIA H200, sm90, compute capability 9.0, 140.4 GiB, 139.6 GiB free" in said
    assert "Recipes on sm90 reference transformer_engine" in said
    assert "mxfp8_block_scaling emulated emulated" in said
    assert "-- nvfp4_block_scaling: unsupported: NVFP4 needs a Blackwell GPU" in said
    assert "-- float8_rowwise_scaling: absent: the library has no recipe" in said
    assert "ok kernels: all there" in said
    assert "none is set" in said
    assert said.endswith("exit code 0: a matrix can be run here")
    assert "!!" not in said.partition("Stack")[2]


def test_a_provider_that_is_not_usable_shows_why_and_the_command() -> None:
    said = words(laptop())
    assert f"transformer_engine -- not usable here: Transformer Engine is not installed {TE_FIX}" in said
    assert "GPUs (" not in said


def test_a_provider_that_died_shows_how_and_its_last_words() -> None:
    said = text(bad())
    assert "  !! its process was killed by SIGSEGV" in said
    assert '     | File "te.py", line 3 in load' in said
    raised = report_of(replies={"transformer_engine": ProviderFacts("sm90", error="OSError: libx")})
    assert "!! raised OSError: libx" in words(raised)


def test_variables_are_told_apart() -> None:
    said = words(bad())
    assert "XX refused: TORCHDYNAMO_DISABLE=1 turns torch.compile off" in said
    assert "-- recorded: NVTE_X='a b'" in said
    assert "-- recorded: CUDA_VISIBLE_DEVICES=0,1" in said


def test_a_matrix_that_falls_short_names_recipe_levels_reason_and_command() -> None:
    said = words(bad("2.11.0"), 200)
    assert "Matrix made (made.yaml): 6 cells here, if each passes that can" in said
    assert "!! mxfp8_block_scaling - 1 - - - - emulated" in said
    assert "!! float8_current_scaling - - - - - 1 none" in said
    assert "require native: can NOT be met here" in said
    assert (
        "!! mxfp8_block_scaling on reference: required native, best here emulated: needs compute capability 10.0 or "
        "higher, sm90 has 9.0 ask on a machine with a native kernel: sm100 (B200), sm103 (B300): "
        "python runner.py doctor --matrix made.yaml"
    ) in said
    # One reason and one remedy: said once for the three recipes.
    assert said.count("python runner.py doctor --provider transformer_engine") == 1
    assert "what can be met here:" not in said
    reasons = said.partition("exit code 1: ")[2].split("; ")
    refused = "a run would refuse to start with TORCHDYNAMO_DISABLE"
    assert reasons == [refused, "made's require native can't be met here"]
    # Nothing can be asked with a torch that is too old: that is what has to be mended first.
    old = words(bad(), 200)
    assert "install or mend it: pip install --upgrade 'torch>=2.11'" in old
    assert "exit code 1: no run can start here before this is mended: torch; " in old


def test_a_matrix_that_is_met_says_so() -> None:
    said = words(report_of(matrix="require: emulated\nmatrix: {recipe: [mxfp8_block_scaling]}\n"))
    assert "ok mxfp8_block_scaling - 1 - - - emulated require emulated: can be met here" in said
    assert "unknown" not in said


def test_what_can_be_met_is_a_command() -> None:
    report = report_of(matrix="require: native\nmatrix: {recipe: [mxfp8_block_scaling, float8_current_scaling]}\n")
    lines = text(report, 200).splitlines()
    command = "python runner.py --matrix made.yaml --select recipe=float8_current_scaling"
    assert f"     {command}" in lines
    assert "-- what can be met here:" in text(report, 200)
    # Where a line doesn't hold it, the shell still reads the same words.
    narrow = text(report, 50)
    start = narrow.index("python runner.py --matrix")
    pasted = narrow[start:].split("\n\n")[0].replace("\\\n", "")
    assert shlex.split(pasted) == shlex.split(command)


def test_a_provider_that_does_everything() -> None:
    everything = provider_facts(Request(1.0), dict.fromkeys(ON_HOPPER, ("native", "")), cuda=(13, 0), findings=())
    believed = dataclasses.replace(everything, arch="sm100")
    said = words(report_of(replies={"reference": believed, "transformer_engine": believed}))
    assert said.count("ok every recipe runs natively") == 2
    assert "every recipe runs natively" not in words(report_of())


def test_a_belief_that_the_judge_calls_wrong_is_a_problem() -> None:
    boast = provider_facts(Request(1.0), {**ON_HOPPER, "nvfp4_block_scaling": ("native", "")})
    said = words(report_of(replies={"transformer_engine": boast}))
    assert "nvfp4_block_scaling unsupported native !!" in said
    assert "!! nvfp4_block_scaling: native (the judge's support table says emulated or unsupported" in said


@pytest.mark.parametrize(
    ("finding", "repeated"),
    [
        (Item("transformer_engine float8_block_scaling", Status.OK, "native on sm90"), True),
        (Item("environment", Status.OK, "NVTE_X=1"), True),
        (Item("cuDNN", Status.OK, "9.19.0"), False),
    ],
)
def test_findings_that_repeat_the_tables_are_not_shown(finding: Item, repeated: bool) -> None:
    assert said_elsewhere(finding) is repeated
    own = Finding(finding.topic, True, finding.text)
    report = report_of(replies={"reference": provider_facts(Request(1.0), findings=(own,))})
    assert (f"{finding.topic}: {finding.text}" in words(report)) is not repeated
    wrong = report_of(
        replies={"reference": provider_facts(Request(1.0), findings=(dataclasses.replace(own, ok=False),))}
    )
    assert f"!! {finding.topic}: {finding.text}" in words(wrong)


def test_colour_is_the_consoles_affair() -> None:
    def printed(**options: object) -> str:
        stream = io.StringIO()
        print_report(Console(file=stream, width=80, **options), bad())  # type: ignore[arg-type]
        return stream.getvalue()

    plain = printed()
    assert "\x1b" not in plain  # a pipe
    assert "\x1b[1;31m" in printed(force_terminal=True, color_system="standard")
    assert "\x1b[1;31m" not in printed(force_terminal=True, color_system="standard", no_color=True)
    assert "  !! its process was killed by SIGSEGV" in plain.splitlines()


def test_a_stream_that_holds_ascii_only() -> None:
    report = dataclasses.replace(laptop(), stack=(Item("GPU", Status.NOTE, "é → ü"),))
    assert all(line.plain.isascii() for line in report_page(report, 80, ascii_only=True).lines)
