import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.signature import MAX_REASON, normalise, normalise_site, signature_of
from harness.types import Finding, Verdict

PROJECT = "/home/user/project"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("lost at 0x7f00aa12", "lost at 0x1234beef"),
        ("<torch.Foo object at 0x7f01> raised", "<torch.Foo object at 0xffff02> raised"),
        ("3 of 16384 differ, first at (0, 17)", "12 of 512 differ, first at (5, 0)"),
        ("deviation 4.7e-1", "deviation 3.14"),
        ("no result within 60.0 s", "no result within 5 s"),
        ("layers.0.weight differs", "layers.17.weight differs"),
        ("primals_3 and buf12 on gw0", "primals_44 and buf1 on gw11"),
        ("resume_in_forward_at_37", "resume_in_forward_at_120"),
        ("tensor([1., 2.], device='cuda:0') is wrong", "tensor([[3.], [4.]]) is wrong"),
        (
            "/opt/a/lib/python3.11/site-packages/torch/_dynamo/x.py:12: no",
            "/usr/site-packages/torch/_dynamo/x.py:9: no",
        ),
        ("in /tmp/torchinductor_root/ab/cabc1.py:3", "in /tmp/torchinductor_root/xy/cxyz2.py:77"),
        ("given ['mxfp8_block_scaling']", "given ['delayed_scaling(amax_history_len=16)', 'float8_block_scaling']"),
        ("run 1b4e28ba-2fa1-11d2-883f-0016d3cca427 failed", "run 9d2f28ba-2fa1-11d2-883f-0016d3cca427 failed"),
        ("__compiled_fn_3_d0e1 broke", "__compiled_fn_11_aa99 broke"),
    ],
)
def test_one_cause_has_one_text(one: str, other: str) -> None:
    assert normalise(one, project=PROJECT) == normalise(other, project=PROJECT)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("codes are e4m3", "codes are e5m2"),
        ("arch sm90", "arch sm100"),
        ("compiled for sm_90", "compiled for sm_100"),
        ("1x128 blocks", "128x128 blocks"),
        ("got nan", "got inf"),
        ("fp8_enabled=True", "fp8_enabled=False"),
        (f"{PROJECT}/models/a.py:12: break", f"{PROJECT}/models/b.py:12: break"),
        (f"{PROJECT}/models/a.py:12: break", f"{PROJECT}/models/a.py:40: break"),
        ("/usr/site-packages/torch/a.py:1", "/usr/site-packages/torch/b.py:1"),
    ],
)
def test_two_causes_stay_two(one: str, other: str) -> None:
    assert normalise(one, project=PROJECT) != normalise(other, project=PROJECT)


def test_paths_of_the_project_are_relative_and_keep_their_line() -> None:
    text = f'File "{PROJECT}/models/a.py", line 12, in forward, then {PROJECT}/b.py:3:7'
    assert normalise(text, project=PROJECT) == 'File "models/a.py:12, in forward, then b.py:3'
    assert normalise_site(f"{PROJECT}/models/a.py:12", project=PROJECT) == "models/a.py:12"
    assert normalise_site("models/a.py:12", project=PROJECT) == "models/a.py:12"


def test_an_environment_inside_the_project_is_not_the_project() -> None:
    assert normalise_site(f"{PROJECT}/.venv/lib/python3.11/site-packages/torch/x.py:5", project=PROJECT) == "torch/x.py"


def test_the_first_finding_speaks_with_check_reason_and_site() -> None:
    findings = (Finding("compile.graphs", "1", "3", "call 2", f"{PROJECT}/a.py:4"), Finding("other", "a", "b"))
    text = signature_of(Verdict.FAIL, findings, "ignored", project=PROJECT)
    assert text == "compile.graphs | call N: expected N, got N | a.py:4"


def test_without_a_finding_verdict_and_reason_speak() -> None:
    assert signature_of(Verdict.CRASH, (), "died after 3.1 s") == "crash | died after N s"
    assert signature_of(Verdict.TIMEOUT, (), "died after 3.1 s") == "timeout | died after N s"


def test_a_crash_with_a_finding_is_not_the_failure_of_that_check() -> None:
    finding = (Finding("numerics.codes", "a", "b"),)
    assert signature_of(Verdict.CRASH, finding, "") != signature_of(Verdict.FAIL, finding, "")


def test_green_has_no_signature() -> None:
    assert signature_of(Verdict.PASS, (), "refused as documented") == ""
    assert signature_of(Verdict.SKIP, (), "no such kernel") == ""


def test_long_reasons_that_differ_at_their_end_stay_two() -> None:
    one, other = ("expected " + "a" * 400 + end for end in ("x", "y"))
    assert normalise(one) != normalise(other)
    assert normalise(one) == normalise(one + " ")


@given(st.text(max_size=3000))
def test_a_normalised_reason_is_one_short_line(text: str) -> None:
    result = normalise(text, project=PROJECT)
    assert len(result) <= MAX_REASON
    assert "\n" not in result
    assert "\x1b" not in result
