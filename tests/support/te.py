"""The fake Transformer Engine of tests/support/fake_te, installed and taken away again."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from harness.providers import te_recipes, te_stack

FAKE = Path(__file__).parent / "fake_te"
EQUAL = {"transformer-engine": "2.20.2", "transformer-engine-torch": "2.20.2", "transformer-engine-cu13": "2.20.2"}


def distributions(directory: Path, versions: dict[str, str]) -> None:
    """Metadata of installed distributions, as pip leaves it."""
    for name, version in versions.items():
        info = directory / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


def forget() -> None:
    """No module of Transformer Engine is imported, and none of its recipes is known."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "transformer_engine"]:
        del sys.modules[name]
    te_recipes._KNOWN.clear()


def install(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    versions: dict[str, str] | None = None,
    package: Path = FAKE,
    cuda: str | None = "13.0",
    gpu: bool = True,
) -> None:
    """Put the fake (or another ``package``) on the path for one test, beside a torch that says it has a GPU.

    A test module calls :func:`forget` after each of its tests.
    """
    forget()
    distributions(tmp_path / "site", EQUAL if versions is None else versions)
    monkeypatch.syspath_prepend(str(package))
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    claimed = SimpleNamespace(
        __version__=torch.__version__,
        version=SimpleNamespace(cuda=cuda),
        cuda=SimpleNamespace(is_available=lambda: gpu),
        backends=torch.backends,
    )
    monkeypatch.setattr(te_stack, "torch", claimed)
    importlib.invalidate_caches()
