"""What this machine is, told to the front, which doesn't import torch: a child process is asked."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from harness.baseline import PRODUCT_VERSIONS, Environment
from harness.run.rounds import environment

# Importing torch and asking CUDA what it has: seconds on a quiet machine, minutes on a cold network disk.
SECONDS = 300.0
_MARK = "this machine: "
_ASK = f"import json; from harness.run.host import describe; print('\\n{_MARK}' + json.dumps(dict(describe())))"


class UnknownMachine(Exception):
    """The child could not say; the message tells why."""


def this_machine(env: Mapping[str, str] | None = None) -> Environment:
    """Architecture, GPU and versions as a worker started with ``env`` (default: this process's) would see them.

    Raises:
        UnknownMachine: torch can't be imported here, or hangs.
    """
    own = environment(os.environ if env is None else env)
    try:
        done = subprocess.run(
            [sys.executable, "-c", _ASK], env=own, capture_output=True, text=True, timeout=SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnknownMachine(str(error)) from error
    for line in reversed(done.stdout.splitlines()):
        if line.startswith(_MARK):
            return environment_of(json.loads(line.removeprefix(_MARK)))
    last = [*done.stderr.strip().splitlines(), f"exit code {done.returncode}"]
    raise UnknownMachine(last[-2] if len(last) > 1 else last[-1])


def environment_of(host: Mapping[str, Any]) -> Environment:
    """The part of a description of the host that results are keyed on."""
    versions = host.get("versions", {})
    gpus = host.get("gpus") or [{}]
    return Environment(
        arch=str(host["arch"]),
        gpu=str(gpus[0].get("name", "")),
        versions={name: str(versions[name]) for name in PRODUCT_VERSIONS if name in versions},
    )
