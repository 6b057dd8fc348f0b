"""harness.observe.process_state: what a library must leave alone, by name, and what a compiler may write."""

from __future__ import annotations

import gc
import logging
import os
import random
import signal
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from harness.observe.process_state import COMPILERS_OWN, process_state, working_directory
from harness.observe.state import diff, generator_states
from harness.observe.torch_settings import put_back, read_settings

CUDA, DYNAMO = torch.backends.cuda, logging.getLogger("torch._dynamo")


def changed(change: Callable[[], object], mend: Callable[[], object]) -> dict[str, tuple[str, str]]:
    before = process_state()
    try:
        change()
        after = process_state()
    finally:
        mend()
    return {item.key: (item.before, item.after) for item in diff(before, after, "")}


def test_each_setting_is_told_by_its_name() -> None:
    threshold = gc.get_threshold()
    level = logging.root.manager.disable
    assert set(changed(gc.disable, gc.enable)) == {"process.gc"}
    assert set(changed(lambda: gc.set_threshold(1), lambda: gc.set_threshold(*threshold))) == {"process.gc.threshold"}
    assert set(changed(lambda: logging.disable(50), lambda: logging.disable(level))) == {"process.logging.disable"}
    assert process_state() == process_state()


@pytest.mark.parametrize(
    ("key", "change", "now"),
    [
        ("process.directory", lambda: os.chdir(os.sep), os.sep),
        ("process.excepthook", lambda: setattr(sys, "excepthook", print), "builtins.print"),
        ("process.threading.excepthook", lambda: setattr(threading, "excepthook", print), "builtins.print"),
        ("process.switch_interval", lambda: sys.setswitchinterval(0.5), "0.5"),
        ("process.signal.SIGUSR1", lambda: signal.signal(signal.SIGUSR1, signal.SIG_IGN), "SIG_IGN"),
        ("process.logging.root", lambda: logging.root.setLevel(7), "(7, False)"),
        ("process.logging.torch", lambda: logging.getLogger("torch").setLevel(7), "(7, False)"),
        ("process.logging.torch._dynamo", lambda: setattr(DYNAMO, "disabled", True), f"({DYNAMO.level}, True)"),
        ("torch.print.precision", lambda: torch.set_printoptions(precision=1), "1"),
        ("torch.attention.flash", lambda: CUDA.enable_flash_sdp(False), "False"),
        ("torch.attention.mem_efficient", lambda: CUDA.enable_mem_efficient_sdp(False), "False"),
        ("torch.attention.math", lambda: CUDA.enable_math_sdp(False), "False"),
        ("torch.attention.cudnn", lambda: CUDA.enable_cudnn_sdp(False), "False"),
        (
            "torch.cuda.allow_bf16_reduced_precision_reduction",
            lambda: setattr(CUDA.matmul, "allow_bf16_reduced_precision_reduction", False),
            "False",
        ),
        (
            "torch.cuda.allow_fp16_reduced_precision_reduction",
            lambda: setattr(CUDA.matmul, "allow_fp16_reduced_precision_reduction", False),
            "False",
        ),
    ],
)
def test_what_else_a_process_has_is_told_and_the_next_cell_is_given_it_back(
    key: str, change: Callable[[], object], now: str
) -> None:
    before, handler, hook = read_settings(compiler=False), signal.getsignal(signal.SIGUSR1), threading.excepthook
    found = process_state()
    try:
        change()
        (item,) = diff(found, process_state(), "")
        assert item.key == key
        assert item.after.startswith(now)
    finally:
        signal.signal(signal.SIGUSR1, handler)
        threading.excepthook = hook
        put_back(before)
    assert diff(found, process_state(), "") == ()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux tells it without setting it")
def test_who_may_read_new_files_is_told() -> None:
    before = os.umask(0o027)
    try:
        assert process_state()["process.umask"] == "0027"
    finally:
        os.umask(before)


def test_a_deleted_working_directory_is_told_and_given_back(tmp_path: Path) -> None:
    found = read_settings(compiler=False)
    try:
        (tmp_path / "gone").mkdir()
        os.chdir(tmp_path / "gone")
        (tmp_path / "gone").rmdir()
        assert process_state()["process.directory"] == ""
    finally:
        put_back(found)
    assert working_directory() == found["directory"]


def test_an_object_that_handles_is_told_by_its_class(monkeypatch: pytest.MonkeyPatch) -> None:
    class Hook:
        def __call__(self, *args: object) -> None:
            raise NotImplementedError

    monkeypatch.setattr(sys, "excepthook", Hook())
    assert str(process_state()["process.excepthook"]).endswith(".Hook")


def after(change: Callable[[], object]) -> dict[str, tuple[str, str]]:
    with warnings.catch_warnings():
        warnings.resetwarnings()
        return changed(change, lambda: None)


def test_filters_that_decide_of_anybodys_warnings_are_told() -> None:
    for change in (
        lambda: warnings.simplefilter("ignore"),
        lambda: warnings.simplefilter("error", UserWarning),
        lambda: warnings.filterwarnings("ignore", category=FutureWarning, append=True),
    ):
        assert set(after(change)) == {"process.warnings.filters"}
    ((before, now),) = after(lambda: warnings.simplefilter("ignore", UserWarning)).values()
    assert (before, now) == ("()", "('ignore UserWarning',)")
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        assert set(changed(warnings.resetwarnings, lambda: None)) == {"process.warnings.filters"}


def test_filters_of_ones_own_warnings_and_undone_ones_are_not() -> None:
    class OwnWarning(Warning):
        pass

    def undone() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")

    for change in (
        lambda: warnings.simplefilter("once", OwnWarning),
        lambda: warnings.filterwarnings("ignore", "ndarray size changed"),
        lambda: warnings.filterwarnings("ignore", module="mine"),
        undone,
    ):
        assert after(change) == {}


def test_a_replaced_printer_of_warnings_is_told() -> None:
    found = after(lambda: logging.captureWarnings(True))
    logging.captureWarnings(False)
    assert {key: now for key, (_, now) in found.items()} == {"process.warnings.showwarning": "logging._showwarning"}


def test_variables_of_the_environment_are_told_but_those_that_torch_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    before = process_state()
    for name in COMPILERS_OWN:
        monkeypatch.setenv(f"{name}X", "1")
    assert diff(before, process_state(), "") == ()
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "1")
    (item,) = diff(before, process_state(), "")
    assert (item.key, item.after) == ("process.environ.CUDA_LAUNCH_BLOCKING", "1")


def test_a_secret_is_compared_and_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hunter2")
    before = process_state()
    monkeypatch.setenv("HF_TOKEN", "hunter3")
    (item,) = diff(before, process_state(), "")
    assert item.key == "process.environ.HF_TOKEN"
    assert "hunter" not in item.before + item.after


def test_compiling_and_a_backward_change_nothing() -> None:
    before = {**process_state(), **generator_states()}
    x = torch.ones(3, requires_grad=True)
    torch.compile(lambda x: x * 2, backend="aot_eager")(x).sum().backward()
    assert diff(before, {**process_state(), **generator_states()}, "") == ()


def test_draws_of_pythons_generator_are_told() -> None:
    before, state = generator_states(), random.getstate()
    try:
        random.random()
        assert [item.key for item in diff(before, generator_states(), "")] == ["process.rng.python"]
    finally:
        random.setstate(state)
