"""The machine around torch, with made-up tools and files."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from harness.doctor import machine

ROOT = Path(__file__).resolve().parent.parent
KERNEL = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build\nGCC version: 12\n"
OLDER = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024\n"


def tool(directory: Path, name: str, text: str) -> None:
    path = directory / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty PATH to put tools on, and no driver in the kernel."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(machine, "kernel_module", lambda: "")
    return tmp_path


def test_what_the_harness_needs_is_what_it_declares() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    block = re.search(r"^dependencies = \[\n(.*?)^\]", text, re.MULTILINE | re.DOTALL)
    assert block is not None
    declared = dict(re.findall(r'^\s*"([\w-]+)(?:>=([\d.]+))?"', block[1], re.MULTILINE))
    assert declared == dict(machine.NEEDED)


def test_transformer_engines_distributions_are_the_providers() -> None:
    from harness.providers import te_stack

    assert {te_stack.META, te_stack.EXTENSION, *te_stack.CORES} <= set(machine.LIBRARIES)


def test_what_is_not_installed_is_left_out() -> None:
    assert set(machine.installed(("pytest", "no-such-distribution"))) == {"pytest"}


def test_a_driver_that_answers(tools: Path) -> None:
    tool(tools, "nvidia-smi", "echo '580.65.06, NVIDIA H200'; echo '580.65.06, NVIDIA H200'")
    assert machine.driver() == machine.Driver("580.65.06", ("NVIDIA H200", "NVIDIA H200"))


def test_a_driver_that_fails_is_told_in_its_own_words(tools: Path) -> None:
    tool(tools, "nvidia-smi", "echo 'Failed to initialize NVML: Driver/library version mismatch'; exit 18")
    found = machine.driver()
    assert (found.version, found.error) == ("", "Failed to initialize NVML: Driver/library version mismatch")
    tool(tools, "nvidia-smi", "exit 9")
    assert machine.driver().error == "nvidia-smi ended with exit code 9"


def test_a_driver_that_hangs_or_cannot_start(tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool(tools, "nvidia-smi", "")

    def hang(*_: object, **__: object) -> None:
        raise subprocess.TimeoutExpired("nvidia-smi", 20)

    monkeypatch.setattr(machine.subprocess, "run", hang)
    assert machine.driver().error == "nvidia-smi did not answer within 20 s"

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(machine.subprocess, "run", refuse)
    assert machine.driver().error == "nvidia-smi could not be started: Permission denied"


def test_without_nvidia_smi_the_kernel_is_asked(tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert machine.driver() == machine.Driver()
    monkeypatch.setattr(machine, "kernel_module", lambda: "580.65.06")
    assert machine.driver() == machine.Driver("580.65.06")


def test_the_kernel_modules_version(tmp_path: Path) -> None:
    path = tmp_path / "version"
    assert machine.kernel_module(path) == ""
    path.write_text(KERNEL)
    assert machine.kernel_module(path) == "580.65.06"
    path.write_text(OLDER)
    assert machine.kernel_module(path) == "550.54.15"
    path.write_text("something else")
    assert machine.kernel_module(path) == ""


def test_gpus_on_the_bus(tmp_path: Path) -> None:
    kinds = {
        "a": ("0x10de", "0x030200"),
        "b": ("0x10de", "0x068000"),
        "c": ("0x1002", "0x030000"),
        "d": ("0x10de", "0x030000"),
    }
    for name, (vendor, kind) in kinds.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "vendor").write_text(vendor + "\n")
        (tmp_path / name / "class").write_text(kind + "\n")
    (tmp_path / "broken").mkdir()
    assert machine.pci_gpus(tmp_path) == 2  # neither NVIDIA's bridge nor another vendor's GPU
    assert machine.pci_gpus(tmp_path / "absent") == 0


def test_the_compiler_is_the_one_inductor_calls(tools: Path) -> None:
    assert machine.compiler({}) == ""
    tool(tools, "g++", "")
    assert machine.compiler({}) == str(tools / "g++")
    assert machine.compiler({"CXX": "clang++ -O2"}) == ""
    tool(tools, "clang++", "")
    assert machine.compiler({"CXX": "clang++ -O2"}) == str(tools / "clang++")


def test_install_commands_are_those_of_the_system(tools: Path) -> None:
    assert machine.look({}).install_compiler == machine.look({}).install_driver == ""
    tool(tools, "dnf", "")
    tool(tools, "ubuntu-drivers", "")
    found = machine.look({})
    assert (found.install_compiler, found.install_driver) == ("sudo dnf install gcc-c++", "sudo ubuntu-drivers install")
    tool(tools, "apt-get", "")
    assert machine.look({}).install_compiler == "sudo apt-get install g++"


def test_this_machine_can_be_looked_at() -> None:
    found = machine.look(os.environ)
    assert found.packages["torch"]
    assert found.python.count(".") == 2
