"""docs/reports.md answers every report of the list, and names only what exists."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from cases import CASES
from harness.catalogue import checks
from harness.cli.main import COMMANDS
from harness.faults import FAULTS
from harness.faults.fault import Fault
from harness.program import Case
from harness.registry import load

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "docs" / "reports.md").read_text()

# What must be answered, one report a line: the entry, then those that belong to it. Indented lines go on with a line.
ENTRIES = """
NVIDIA/TransformerEngine#705 NVIDIA/TransformerEngine#2590
NVIDIA/TransformerEngine#308 NVIDIA/TransformerEngine#312
NVIDIA/TransformerEngine#2759
NVIDIA/TransformerEngine#3130
NVIDIA/TransformerEngine#187
NVIDIA/TransformerEngine#3213
NVIDIA/TransformerEngine#3284
NVIDIA/TransformerEngine#1190 NVIDIA/TransformerEngine#415
NVIDIA/Megatron-LM#7538
NVIDIA/TransformerEngine#93
NVIDIA/TransformerEngine#2620
NVIDIA/TransformerEngine#1047
NVIDIA/TransformerEngine#539
NVIDIA/TransformerEngine#2852
NVIDIA/Megatron-LM#5642
NVIDIA/TransformerEngine#3316
NVIDIA/TransformerEngine#2119
NVIDIA/TransformerEngine#3281
NVIDIA/TransformerEngine#2304 NVIDIA/TransformerEngine#1939 NVIDIA/Megatron-LM#4175
NVIDIA/TransformerEngine#2255
NVIDIA/TransformerEngine#2157 NVIDIA/TransformerEngine#2668
pytorch/pytorch#195488 pytorch/pytorch#195654
pytorch/pytorch#190578
pytorch/pytorch#169253 pytorch/pytorch#176851 pytorch/pytorch#144874
pytorch/pytorch#146598 pytorch/pytorch#152994 pytorch/pytorch#155841
pytorch/pytorch#128437 pytorch/pytorch#159457 pytorch/pytorch#124858
pytorch/pytorch#128319 pytorch/pytorch#171488
pytorch/pytorch#110730 pytorch/pytorch#113443 pytorch/pytorch#97884
pytorch/pytorch#150477 pytorch/pytorch#161562 pytorch/pytorch#191523
pytorch/pytorch#161790 pytorch/pytorch#170692 pytorch/pytorch#177809 pytorch/pytorch#185138
  pytorch/pytorch#181247 unslothai/unsloth-zoo#1183
pytorch/pytorch#110107 pytorch/pytorch#107444 pytorch/pytorch#126586
pytorch/pytorch#166589
pytorch/pytorch#87440 pytorch/pytorch#105307 pytorch/pytorch#108798
pytorch/pytorch#138215 pytorch/pytorch#112906
pytorch/pytorch#144344 pytorch/pytorch#160472
pytorch/pytorch#187319
pytorch/pytorch#194658
vllm-project/vllm#53366 vllm-project/vllm#14953
pytorch/pytorch#136181 pytorch/ao#904
pytorch/pytorch#179561 pytorch/pytorch#180575 pytorch/pytorch#179572
pytorch/pytorch#150859 pytorch/torchtitan#1056 pytorch/torchtitan#1108
triton-lang/triton#11111 pytorch/ao#4652 pytorch/ao#4657
pytorch/pytorch#178817 pytorch/pytorch#177870 pytorch/ao#1912 pytorch-labs/float8_experimental#33
pytorch/ao#4713 pytorch/ao#3356 huggingface/kernels-community#681 NVIDIA/Model-Optimizer#1397
pytorch/pytorch#129521
pytorch/pytorch#161127 pytorch/pytorch#188996
pytorch/pytorch#192709 pytorch/pytorch#175206
pytorch/pytorch#172767
pytorch/pytorch#167082
pytorch/pytorch#179570
pytorch/pytorch#193044 pytorch/pytorch#176611 pytorch/pytorch#124506
pytorch/pytorch#176615
sgl-project/sglang#18002 deepseek-ai/DeepGEMM#451
pytorch/ao#2586 pytorch/pytorch#158936
pytorch-labs/float8_experimental#321
pytorch/ao#4624 pytorch/torchtitan#2401
pytorch/torchtitan#3990
pytorch/torchtitan#865 ROCm/aiter#3807
"""
# What harnesses themselves have got wrong.
PITFALLS = """
pytorch/pytorch#110107 pytorch/pytorch#186003 pytorch/pytorch#161790 vllm-project/vllm#27178
pytorch/pytorch#110730 pytorch/pytorch#113443 pytorch/pytorch#97884
pytorch/pytorch#194754
pytorch/pytorch#182326 pytorch/pytorch#191931 pytorch/pytorch#125967 pytorch/pytorch#126586 ROCm/pytorch#3443
pytorch/ao#923 pytorch/pytorch#115757 vllm-project/vllm#50638 huggingface/transformers#38820
  NVIDIA/TransformerEngine#3163
pytorch/pytorch#193294 pytorch/pytorch#188996 NVIDIA/TransformerEngine#3284
axolotl-ai-cloud/axolotl#3689 aimnetcentral#103 pytorch/pytorch#193647 NVIDIA/cccl#4722
  NVIDIA/cuda-python#2458
vllm-project/vllm#28965 vllm-project/vllm#47446 vllm-project/vllm#50638 vllm-project/vllm#3557
pytest-dev/pytest-xdist#784 pytest-dev/pytest-xdist#1327 pytest-dev/pytest-xdist#1328
  pytest-dev/pytest-xdist#236 pytest-dev/pytest-xdist#956
Lightning-AI/lightning-thunder#2646 Lightning-AI/lightning-thunder#2748 pytorch/pytorch#151811 pytorch/ao#4061
  pytorch-labs/float8_experimental#242 jax-ml/jax#34375
iree-org/iree#20198 pytorch/ao#3273 pytorch/pytorch#150002 pytorch/pytorch#152647
pytorch/ao#4187
unslothai/unsloth-zoo#1001 NVIDIA/TransformerEngine#2255
pytorch/pytorch#77869 zorch#64 Lightning-AI/pytorch-lightning#5535
pytorch/pytorch#117888 pytorch/pytorch#144344 vllm-project/vllm#53366
NVIDIA/TransformerEngine#3505
"""
# In backticks, and neither a case, a fault, a check nor a file.
WORDS = {"python -O", "--shuffle", "--isolate", "require", "arch: sm100", "oom", "infra", "xfail"}
STATUSES = ("caught", "run", "held", "no")


def lines_of(text: str) -> list[str]:
    return text.strip().replace("\n  ", " ").splitlines()


def rows_of(text: str) -> list[tuple[list[str], str]]:
    """The reports of each row, and its answer."""
    found = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if line.startswith("| ") and "#" in cells[0]:
            found.append((cells[0].split(", "), cells[2]))
    return found


ROWS = rows_of(TEXT)
FAULT_OF: dict[str, Fault] = {name: load(path) for name, path in FAULTS.items()}
CASE_OF: dict[str, Case] = {name: load(entry.path) for name, entry in CASES.items()}


def names_in(answer: str) -> list[str]:
    return re.findall(r"`([^`]+)`", answer)


def problems_of(answer: str) -> Iterator[str]:
    """What is wrong with an answer, in words."""
    names = names_in(answer)
    yield from (f"unknown name {name}" for name in names if not is_known(name))
    status = next((status for status in STATUSES if answer.startswith(f"**{status}**")), "")
    if not status:
        yield "no status"
    if status == "caught" and not set(names) & set(FAULTS):
        yield "caught by no fault"
    if status == "run" and not {name.partition("[")[0] for name in names} & set(CASES):
        yield "run by no case"
    if status == "held" and not any("/" in name for name in names):
        yield "held by no file"
    if status == "no" and not re.match(r"\*\*no\*\*: (needs|no |the reports need) ?\w", answer):
        yield "no without a reason"
    if status == "caught":
        named = (FAULT_OF[name] for name in names if name in FAULT_OF)
        yield from (f"{fault.name} is caught by {fault.caught_by}" for fault in named if fault.caught_by not in names)


def is_known(name: str) -> bool:
    """True for a case, a variant of a case, a fault, a check, a file, a command, or one of WORDS."""
    case, _, variant = name.removesuffix("]").partition("[")
    if case in CASES:
        return not variant or variant in CASES[case].variants
    if name.startswith("runner.py "):
        return name.removeprefix("runner.py ") in COMMANDS
    return name in FAULTS or name in checks() or name in WORDS or ("/" in name and (ROOT / name).is_file())


@pytest.mark.parametrize(("reports", "answer"), ROWS, ids=[reports[0] for reports, _ in ROWS])
def test_every_answer_holds(reports: list[str], answer: str) -> None:
    assert reports == [report for report in reports if re.fullmatch(r"([\w.-]+/)?[\w.-]+#\d+", report)]
    assert list(problems_of(answer)) == []


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ("**caught**: fault `leaky_exit`", "leaky_exit is caught by state.unchanged"),
        ("**caught**: by `state.unchanged`", "caught by no fault"),
        ("**run**: `toy_linears`", "unknown name toy_linears"),
        ("**run**: `stack[hole]`", "unknown name stack[hole]"),
        ("**run**: somewhere", "run by no case"),
        ("**held**: `tests/test_nothing.py`", "unknown name tests/test_nothing.py"),
        ("**held**: by care", "held by no file"),
        ("**held**: `runner.py selftests`", "unknown name runner.py selftests"),
        ("**held**: `runner.py selftest`", "held by no file"),
        ("**no**", "no without a reason"),
        ("yes", "no status"),
    ],
)
def test_what_is_wrong_with_an_answer_is_said(answer: str, problem: str) -> None:
    assert problem in list(problems_of(answer))


@pytest.mark.parametrize("line", [*lines_of(ENTRIES), *lines_of(PITFALLS)])
def test_every_report_of_the_list_is_answered(line: str) -> None:
    answered = {report for reports, _ in ROWS for report in reports}
    assert [report for report in line.split() if report not in answered] == []


def test_the_list_is_whole() -> None:
    assert len({line.split()[0] for line in lines_of(ENTRIES)}) == len(lines_of(ENTRIES)) == 58
    assert len(lines_of(PITFALLS)) == 16


def unmentioned(name: str, report: str) -> bool:
    """True when no row of the report names the case or fault that says it rests on it."""
    answers = [answer for reports, answer in ROWS if report in reports]
    return not any(name in {shown.partition("[")[0] for shown in names_in(answer)} for answer in answers)


@pytest.mark.parametrize("name", sorted(FAULTS))
def test_a_faults_report_names_it(name: str) -> None:
    report = FAULT_OF[name].report
    assert not report or not unmentioned(name, report), f"no row of {report} names fault {name}"


@pytest.mark.parametrize("name", sorted(CASES))
def test_the_reports_of_a_case_name_it(name: str) -> None:
    assert [report for report in CASE_OF[name].answers if unmentioned(name, report)] == []
