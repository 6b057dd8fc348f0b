"""CUDA_VISIBLE_DEVICES as CUDA reads it, and what nvidia-smi says."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from harness.run.gpus import Device, Gpu, _instances, query_devices, visible_gpus
from tests.support.fake_gpus import H200_MIB, device, machine, smi

FOUR = [device(n) for n in range(4)]
MIXED = [device(0, "NVIDIA L4", 23034, 20000), device(1)]
MIG = [
    device(0),
    Device("GPU-abc", "NVIDIA H200", None, None, (Device("MIG-a1", "MIG 1g.18gb", 17166), Device("MIG-a2", "MIG 3g"))),
]


def seen(setting: str | None, devices: object = FOUR, nodes: int = 4, **env: str) -> list[str]:
    """Tokens of what is visible."""
    variables = env if setting is None else {"CUDA_VISIBLE_DEVICES": setting, **env}
    return [gpu.token for gpu in visible_gpus(variables, lambda: devices, lambda: nodes)]  # type: ignore[return-value, arg-type]


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("", []),
        ("-1", []),
        ("0", ["0"]),
        ("3,1", ["3", "1"]),
        (" 3 , 1 ", ["3", "1"]),
        ("+2", ["2"]),
        ("1gpu,2ampere", ["1", "2"]),  # read as strtoul reads
        ("0,-1,2", ["0"]),
        ("0,9,2", ["0"]),
        ("0,,2", ["0"]),
        ("0,GPU-1111-1", ["0"]),
        ("NoDevFiles", []),
        ("1,1", []),
        ("01,1", []),
        ("GPU-2222-2,GPU-0000-0", ["GPU-2222-2", "GPU-0000-0"]),
        ("GPU-22", ["GPU-22"]),
        ("GPU-", []),  # four GPUs begin like this
        ("GPU-0000-0,GPU-9,GPU-1111-1", ["GPU-0000-0"]),
        ("GPU-0000-0,1", ["GPU-0000-0"]),
        ("GPU-00,GPU-0000-0", []),  # one GPU twice
        (",0", []),
    ],
)
def test_visible(setting: str, expected: list[str]) -> None:
    assert seen(setting) == expected


def test_unset_means_all_by_their_uuid() -> None:
    assert seen(None) == [one.uuid for one in FOUR]
    assert seen(None, []) == []


def test_an_index_counts_within_what_the_caller_made_visible() -> None:
    found = visible_gpus({"CUDA_VISIBLE_DEVICES": "3,1"}, lambda: FOUR)
    assert found[0] == Gpu(0, "3", "GPU-3333-3", "NVIDIA H200", H200_MIB, H200_MIB)
    assert (found[1].index, found[1].uuid) == (1, "GPU-1111-1")


def test_among_unequal_gpus_only_the_bus_order_says_which_is_which() -> None:
    unordered = visible_gpus({"CUDA_VISIBLE_DEVICES": "1"}, lambda: MIXED)
    assert unordered == (Gpu(0, "1", "", "", 23034, 20000),)
    assert unordered[0].key == "ordinal-1"
    ordered = visible_gpus({"CUDA_VISIBLE_DEVICES": "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, lambda: MIXED)
    assert (ordered[0].uuid, ordered[0].total_mib) == ("GPU-1111-1", H200_MIB)
    assert [gpu.uuid for gpu in visible_gpus({}, lambda: MIXED)] == ["GPU-0000-0", "GPU-1111-1"]


@pytest.mark.parametrize(
    ("setting", "tokens", "uuids"),
    [
        (None, ["GPU-0000-0", "MIG-a1"], ["GPU-0000-0", "MIG-a1"]),
        ("1", ["1"], ["MIG-a1"]),
        ("MIG-a2,MIG-a1", ["MIG-a2", "MIG-a1"], ["MIG-a2", "MIG-a1"]),
        ("MIG-a1,MIG-b", ["MIG-a1"], ["MIG-a1"]),
        ("MIG-a", [], []),
        ("MIG-GPU-abc/7/0", ["MIG-GPU-abc/7/0"], [""]),
    ],
)
def test_mig(setting: str | None, tokens: list[str], uuids: list[str]) -> None:
    env = {} if setting is None else {"CUDA_VISIBLE_DEVICES": setting}
    found = visible_gpus(env, lambda: MIG)
    assert ([gpu.token for gpu in found], [gpu.uuid for gpu in found]) == (tokens, uuids)


@pytest.mark.parametrize(
    ("setting", "nodes", "expected"),
    [
        (None, 0, []),
        ("0", 0, []),  # a setting alone makes no GPU
        (None, 2, ["0", "1"]),
        ("1,0", 2, ["1", "0"]),
        ("1,5", 2, ["1"]),
        ("GPU-1,GPU-2", 2, ["GPU-1", "GPU-2"]),
        ("", 2, []),
    ],
)
def test_without_an_answer_memory_is_unknown(setting: str | None, nodes: int, expected: list[str]) -> None:
    assert seen(setting, None, nodes) == expected
    env = {} if setting is None else {"CUDA_VISIBLE_DEVICES": setting}
    assert all(gpu.total_mib is None for gpu in visible_gpus(env, lambda: None, lambda: nodes))


def test_where_nothing_is_visible_nobody_is_asked() -> None:
    def query() -> None:
        raise AssertionError

    assert visible_gpus({"CUDA_VISIBLE_DEVICES": ""}, query) == ()


def use(monkeypatch: pytest.MonkeyPatch, env: Mapping[str, str]) -> None:
    for name, value in env.items():
        monkeypatch.setenv(name, value)


def test_query(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, machine(tmp_path, MIXED))
    assert query_devices() == MIXED


@pytest.mark.parametrize(
    "script",
    [
        "echo 'NVIDIA-SMI has failed because it could not communicate with the driver'; exit 9",
        "echo 'No devices were found'",
        "echo '0, GPU-1, NVIDIA H200'",
        "exit 0; ",
    ],
)
def test_an_answer_that_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    use(monkeypatch, smi(tmp_path, script))
    assert not query_devices()


def test_a_driver_that_hangs_costs_a_limited_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, smi(tmp_path, "exec sleep 60"))
    began = time.monotonic()
    assert query_devices(0.2) is None
    assert time.monotonic() - began < 10


LISTING = """\
GPU 0: NVIDIA H200 (UUID: GPU-plain)
GPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-parent)
  MIG 3g.40gb     Device  0: (UUID: MIG-one)
  MIG 1g.10gb+me  Device  1: (UUID: MIG-two)
"""


def test_mig_listing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = Device("MIG-one", "MIG 3g.40gb", 38146, 38146), Device("MIG-two", "MIG 1g.10gb+me", 9536, 9536)
    assert _instances(LISTING) == {"GPU-parent": (one, two)}
    rows = (
        "0, GPU-plain, NVIDIA H200, 143771, 143000, Disabled\n"
        "1, GPU-parent, NVIDIA H100, [Insufficient Permissions], [Insufficient Permissions], Enabled"
    )
    use(monkeypatch, smi(tmp_path, f"if [ $1 = -L ]; then echo '{LISTING}'; else echo '{rows}'; fi"))
    assert query_devices() == [
        Device("GPU-plain", "NVIDIA H200", 143771, 143000),
        Device("GPU-parent", "NVIDIA H100", None, None, (one, two)),
    ]


def test_nobody_imports_torch_to_ask() -> None:
    script = (
        "import sys; from harness.run.worker_count import place_workers\n"
        "place_workers(None, 4, {}); print([name for name in sys.modules if name.partition('.')[0] == 'torch'])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
