"""A pytest plugin (or a conftest) that imports torch at once, as those of many projects do.

The torch is a fake one that writes down what it would have seen: ``FAKE_TORCH`` names the file.
"""

from __future__ import annotations

import os
import sys
import types


def _look() -> None:
    if "FAKE_TORCH" in os.environ and "torch" not in sys.modules:
        torch = types.ModuleType("torch")
        torch.cuda = types.SimpleNamespace(is_initialized=lambda: False)  # type: ignore[attr-defined]
        sys.modules["torch"] = torch
        worker = os.environ.get("PYTEST_XDIST_WORKER", "none")
        with open(os.environ["FAKE_TORCH"], "a") as stream:
            stream.write(f"{worker} {os.environ.get('CUDA_VISIBLE_DEVICES')}\n")


_look()
