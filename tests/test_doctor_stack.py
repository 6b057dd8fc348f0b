"""Good and bad stacks: what is said of each, and the command that mends it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import pytest

from harness.doctor.machine import Driver, Machine
from harness.doctor.questions import TorchFacts
from harness.doctor.stack import REINSTALL_TORCH, stack_items, variables
from harness.doctor.types import Item, Status
from tests.support.doctoring import H200, LAPTOP, PACKAGES, SERVER, TE_PARTS, WITH_GPU, WITHOUT_GPU

OK, NOTE, PROBLEM, FATAL = Status.OK, Status.NOTE, Status.PROBLEM, Status.FATAL


def items(
    machine: Machine = SERVER, facts: TorchFacts | None = WITH_GPU, died: str = "", env: Mapping[str, str] | None = None
) -> dict[str, Item]:
    return {item.topic: item for item in stack_items(machine, facts, died, env or {})}


def without(*names: str, machine: Machine = SERVER) -> Machine:
    packages = {name: version for name, version in machine.packages.items() if name not in names}
    return dataclasses.replace(machine, packages=packages)


def having(**versions: str) -> Machine:
    packages = {**SERVER.packages, **{name.replace("_", "-"): version for name, version in versions.items()}}
    return dataclasses.replace(SERVER, packages=packages)


def blind(machine: Machine = SERVER, env: Mapping[str, str] | None = None, **changes: Any) -> Item:
    """What is said of the driver where torch sees no GPU."""
    return items(machine, dataclasses.replace(WITH_GPU, gpus=(), arch="cpu", **changes), env=env)["NVIDIA driver"]


def test_a_good_server_is_good_in_every_line() -> None:
    found = items()
    assert {item.status for item in found.values() if item.topic != "torchao"} == {OK}
    assert found["torch"].text == "2.11.0+cu130, built for CUDA 13.0, git 0123456789ab"
    assert found["NVIDIA driver"].text == "580.65.06, for CUDA 13.0 and older"
    texts = {name: found[name].text for name in ("CUDA runtime", "cuBLASLt", "cuDNN", "Triton")}
    assert texts == {"CUDA runtime": "13.0", "cuBLASLt": "13.1.0", "cuDNN": "9.19.0", "Triton": "3.6.0"}
    listed = "transformer-engine 2.20.2, transformer-engine-torch 2.20.2, transformer-engine-cu13 2.20.2"
    assert found["Transformer Engine"].text == listed
    assert not any(item.fix for item in found.values())


def test_a_good_laptop_has_notes_and_no_problem() -> None:
    found = items(LAPTOP, WITHOUT_GPU)
    notes = {item.topic for item in found.values() if item.status is NOTE}
    assert notes == {"NVIDIA driver", "Transformer Engine", "Triton", "torchao"}
    assert {item.status for item in found.values()} == {OK, NOTE}
    assert found["torch"].text == "2.13.0+cpu, built without CUDA, git fedcba987654"
    assert found["NVIDIA driver"].text.startswith("none, and no NVIDIA GPU")


def test_torchao_is_shown_where_it_is() -> None:
    assert (items(having(torchao="0.15.0"))["torchao"].status, items()["torchao"].text) == (OK, "not installed")


@pytest.mark.parametrize(
    ("machine", "facts", "died", "text", "fix"),
    [
        (without("torch"), None, "was not started", "not installed", "pip install 'torch>=2.11'"),
        (
            SERVER,
            None,
            "ended with exit code 1 and no answer: ImportError: libcudart.so.13",
            "2.11: importing it in a fresh process ended with exit code 1 and no answer: ImportError: libcudart.so.13",
            REINSTALL_TORCH,
        ),
        (
            SERVER,
            None,
            "did not answer within 120 s and was killed",
            "2.11: importing it in a fresh process did not answer within 120 s and was killed",
            "python runner.py doctor --timeout 600",
        ),
        (
            SERVER,
            TorchFacts("2.10.0+cpu"),
            "",
            "2.10.0+cpu, built without CUDA: older than 2.11",
            "pip install --upgrade 'torch>=2.11'",
        ),
    ],
)
def test_a_torch_that_no_run_can_use_is_fatal(
    machine: Machine, facts: TorchFacts | None, died: str, text: str, fix: str
) -> None:
    assert items(machine, facts, died)["torch"] == Item("torch", FATAL, text, fix)


@pytest.mark.parametrize("version", ["2.11.0", "2.11.0a0+git1234567", "2.14.1+cu130", "3.0", "odd"])
def test_a_new_enough_torch_is_good(version: str) -> None:
    assert items(facts=dataclasses.replace(WITH_GPU, version=version))["torch"].status is OK


def test_a_torch_for_rocm_is_a_problem() -> None:
    found = items(facts=TorchFacts("2.12.0", hip="7.0"))["torch"]
    assert (found.status, found.text) == (
        PROBLEM,
        "2.12.0, built for ROCm 7.0: the harness knows CPUs and NVIDIA GPUs",
    )


def test_the_driver_is_told_where_torch_cannot_be_asked() -> None:
    assert items(SERVER, None, "died")["NVIDIA driver"].text == "580.65.06"
    assert items(LAPTOP, None, "died")["NVIDIA driver"].text == "none"


def test_hardware_without_a_driver() -> None:
    bare = dataclasses.replace(SERVER, driver=Driver(), hardware=2)
    found = blind(bare, driver_cuda="")
    assert (found.status, found.fix) == (PROBLEM, "")
    assert found.text.startswith("none, 2 NVIDIA GPUs on the PCI bus (https://docs.nvidia.com/")
    found = blind(dataclasses.replace(bare, install_driver="sudo ubuntu-drivers install"), driver_cuda="")
    assert (found.text, found.fix) == ("none, 2 NVIDIA GPUs on the PCI bus", "sudo ubuntu-drivers install")
    found = blind(dataclasses.replace(bare, hardware=1, in_container=True), driver_cuda="")
    assert found.text.startswith("none in this container, 1 NVIDIA GPU on the PCI bus: start the container with")


def test_a_driver_that_nvidia_smi_cannot_reach() -> None:
    mismatch = "Failed to initialize NVML: Driver/library version mismatch"
    found = blind(dataclasses.replace(SERVER, driver=Driver("580.65.06", (), mismatch)))
    assert found == Item("NVIDIA driver", PROBLEM, f"nvidia-smi: {mismatch}", "sudo reboot")
    lost = dataclasses.replace(SERVER, driver=Driver("", (), "No devices were found"), install_driver="sudo x")
    assert blind(lost).fix == "sudo x"


def test_a_driver_and_a_torch_without_cuda() -> None:
    found = items(SERVER, WITHOUT_GPU)["NVIDIA driver"]
    assert found.text == "580.65.06, 1 GPU (NVIDIA H200), but this torch is built without CUDA"
    assert (found.status, found.fix) == (PROBLEM, REINSTALL_TORCH)


@pytest.mark.parametrize("value", ["", "-1", "7"])
def test_gpus_that_the_environment_hides(value: str) -> None:
    found = blind(env={"CUDA_VISIBLE_DEVICES": value})
    assert found.text == f"580.65.06, 1 GPU (NVIDIA H200), but CUDA_VISIBLE_DEVICES={value!r} leaves torch none"
    assert (found.status, found.fix) == (PROBLEM, "unset CUDA_VISIBLE_DEVICES")


def test_a_driver_that_is_too_old_for_this_torch() -> None:
    found = blind(driver_cuda="12.4")
    assert "too old, it is for CUDA 12.4 and torch is built for CUDA 13.0" in found.text
    assert found.status is PROBLEM
    # Minor releases of one major are compatible (CUDA minor version compatibility).
    assert "too old" not in blind(driver_cuda="13.0", cuda="13.2").text


def test_a_gpu_that_torch_does_not_see_for_another_reason() -> None:
    found = blind(warnings=("CUDA unknown error - this may be due to an incorrectly set up environment",))
    assert found.text.startswith("580.65.06, 1 GPU (NVIDIA H200), but torch sees none: CUDA unknown error")
    assert (found.status, found.fix) == (PROBLEM, "nvidia-smi")
    assert (
        blind(dataclasses.replace(SERVER, driver=Driver("580.65.06"))).text == "580.65.06, no GPU, but torch sees none"
    )


def test_a_gpu_that_cannot_run_a_kernel() -> None:
    error = "AcceleratorError: no kernel image is available for execution on the device"
    bad = dataclasses.replace(WITH_GPU, gpus=(H200, dataclasses.replace(H200, index=1, error=error)))
    found = items(facts=bad)
    assert found["cuda:1"].status is PROBLEM
    assert found["cuda:1"].text.endswith(f"{error}; torch is compiled for sm_80, sm_90")
    assert "cuda:0" not in found


def test_gpus_of_several_architectures_and_what_torch_says() -> None:
    mixed = (H200, dataclasses.replace(H200, index=1, arch="sm89", name="NVIDIA L4"))
    found = items(facts=dataclasses.replace(WITH_GPU, gpus=mixed, warnings=("The given NVIDIA GPU supports ...",)))
    assert found["GPUs"].text == "of different architectures: sm90, sm89; arch: host means sm90, that of cuda:0"
    assert found["torch says"].text == "The given NVIDIA GPU supports ..."
    assert "GPUs" not in items()


def test_a_cudnn_that_torch_refuses() -> None:
    text = "PyTorch was compiled against (9, 19, 0) but found runtime version (9, 14, 0)"
    bad = dataclasses.replace(WITH_GPU, cudnn=text, cudnn_ok=False, cudnn_fix="pip install --upgrade nvidia-cudnn-cu13")
    assert items(facts=bad)["cuDNN"] == Item("cuDNN", PROBLEM, text, "pip install --upgrade nvidia-cudnn-cu13")


def test_triton_is_needed_on_a_gpu_only() -> None:
    assert items(without("triton"))["Triton"].fix == "pip install triton"
    assert items(LAPTOP, WITHOUT_GPU)["Triton"].status is NOTE


def test_a_part_of_transformer_engine_alone_is_shown() -> None:
    alone = without(*(name for name in TE_PARTS if name != "transformer-engine-cu13"))
    assert items(alone)["Transformer Engine"].text == "transformer-engine-cu13 2.20.2"
    assert items(without(*TE_PARTS))["Transformer Engine"] == Item("Transformer Engine", NOTE, "not installed")


def test_what_the_harness_needs() -> None:
    good = items()["harness needs"]
    assert good.status is OK
    assert all(name in good.text for name in PACKAGES if name != "torch")
    found = items(without("pytest-xdist"))
    assert found["pytest-xdist"] == Item("pytest-xdist", FATAL, "not installed", "pip install 'pytest-xdist>=3.6'")
    found = items(having(pytest="7.4"))
    assert found["pytest"] == Item("pytest", FATAL, "7.4: older than 8.2", "pip install --upgrade 'pytest>=8.2'")
    assert "pytest 7.4" not in found["harness needs"].text


def test_a_missing_compiler() -> None:
    bare = dataclasses.replace(SERVER, compiler="", install_compiler="sudo apt-get install g++")
    found = items(bare)["C++ compiler"]
    assert (found.status, found.fix) == (PROBLEM, "sudo apt-get install g++")


def test_variables_that_refuse_a_run_and_those_that_are_recorded() -> None:
    env = {
        "TORCHDYNAMO_DISABLE": "1",
        "TORCH_COMPILE_JOB_ID": "j",
        "NVTE_FUSED_ATTN": "0",
        "HOME": "/root",
        "TOKEN": "s",
    }
    found = {one.name: one for one in variables(env)}
    effects = {name: one.effect for name, one in found.items()}
    assert effects == {
        "NVTE_FUSED_ATTN": "recorded",
        "TORCHDYNAMO_DISABLE": "refused",
        "TORCH_COMPILE_JOB_ID": "needs --allow-env",
    }
    assert found["TORCHDYNAMO_DISABLE"].text.endswith(": unset TORCHDYNAMO_DISABLE")
    assert found["TORCH_COMPILE_JOB_ID"].text.endswith("or pass --allow-env TORCH_COMPILE_JOB_ID")
    allowed = {one.name: one for one in variables(env, ("TORCH_COMPILE_JOB_ID",))}["TORCH_COMPILE_JOB_ID"]
    assert (allowed.effect, allowed.text) == ("recorded", "allowed by --allow-env")
    assert variables({}) == ()
