"""Which GPUs a run may use, told without torch and without touching CUDA: the front and pytest's own process ask.

What is visible follows ``CUDA_VISIBLE_DEVICES`` as CUDA and torch read it (CUDA C++ Programming Guide, "CUDA
Environment Variables"; ``_parse_visible_devices`` in torch/cuda/__init__.py, 2.11 to 2.14):

* unset: every GPU; empty: none;
* integers, or UUIDs (``GPU-...``, ``MIG-...``, any prefix that fits one device only); the first entry decides which;
* an entry that is invalid (``-1``, an index without a GPU, an unknown or ambiguous UUID) hides itself and all after it;
* an entry that names a device twice leaves nothing visible.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

VISIBLE = "CUDA_VISIBLE_DEVICES"
ORDER = "CUDA_DEVICE_ORDER"
# Without the persistence daemon the driver wakes each GPU: seconds on a machine with eight.
QUERY_SECONDS = 30.0
_FIELDS = "index,uuid,name,memory.total,memory.free,mig.mode.current"
_GPU_LINE = re.compile(r"^GPU \d+: .*\(UUID: (?P<uuid>GPU-[^)]+)\)")
_MIG_LINE = re.compile(r"^\s+MIG (?P<profile>\S+)\s.*\(UUID: (?P<uuid>MIG-[^)]+)\)")
_MIG_MEMORY = re.compile(r"\.(\d+)gb")


@dataclass(frozen=True)
class Device:
    """A GPU or a MIG instance as the driver knows it. ``None``: the driver does not say."""

    uuid: str = ""
    name: str = ""
    total_mib: int | None = None
    free_mib: int | None = None
    instances: tuple[Device, ...] = ()


@dataclass(frozen=True)
class Gpu:
    """A GPU that the caller's processes can see.

    ``index``: its position in what the caller made visible. ``token``: what ``CUDA_VISIBLE_DEVICES`` must hold so that
    a process sees this one and nothing else. ``uuid`` and ``name`` are empty, memory is None where nobody told.
    """

    index: int
    token: str
    uuid: str = ""
    name: str = ""
    total_mib: int | None = None
    free_mib: int | None = None

    @property
    def key(self) -> str:
        """Names the hardware in the same way in every process of this machine."""
        return self.uuid or f"ordinal-{self.token}"

    def __str__(self) -> str:
        return f"GPU {self.index} ({self.name})" if self.name else f"GPU {self.index}"


Query = Callable[[], "Sequence[Device] | None"]


def query_devices(seconds: float = QUERY_SECONDS) -> Sequence[Device] | None:
    """Every GPU of the machine in the order of its bus, from ``nvidia-smi``; None when it can't tell.

    Args:
        seconds: how long a driver that hangs may take.
    """
    text = _nvidia_smi((f"--query-gpu={_FIELDS}", "--format=csv,noheader,nounits"), seconds)
    if text is None:
        return None
    rows = [[value.strip() for value in line.split(",")] for line in text.splitlines() if line.strip()]
    if any(len(row) != len(_FIELDS.split(",")) or not row[0].isdigit() for row in rows):
        return None
    devices = [Device(row[1], row[2], _mib(row[3]), _mib(row[4])) for row in sorted(rows, key=lambda row: int(row[0]))]
    if all(row[5] != "Enabled" for row in rows):
        return devices
    listed = _instances(_nvidia_smi(("-L",), seconds) or "")
    return [replace(device, instances=listed.get(device.uuid, ())) for device in devices]


def _nvidia_smi(arguments: Sequence[str], seconds: float) -> str | None:
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return None
    try:
        done = subprocess.run(
            [tool, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def _mib(text: str) -> int | None:
    """A partitioned GPU, or a container without the right to ask, has words in place of the number."""
    return int(text) if text.isdigit() else None


def _instances(listing: str) -> Mapping[str, tuple[Device, ...]]:
    """MIG instances by the UUID of their GPU, from ``nvidia-smi -L``.

    Their memory is what the profile's name promises (``1g.10gb``), in decimal gigabytes: the driver rounds it up.
    """
    found: dict[str, tuple[Device, ...]] = {}
    parent = ""
    for line in listing.splitlines():
        gpu, instance = _GPU_LINE.match(line), _MIG_LINE.match(line)
        if gpu:
            parent = gpu["uuid"]
        elif instance:
            memory = _MIG_MEMORY.search(instance["profile"])
            size = int(memory.group(1)) * 10**9 >> 20 if memory else None
            device = Device(instance["uuid"], f"MIG {instance['profile']}", size, size)
            found[parent] = (*found.get(parent, ()), device)
    return found


def device_nodes() -> int:
    """GPUs that the kernel driver offers to this process (/dev/nvidia0...): what is left when nvidia-smi is missing."""
    try:
        return sum(re.fullmatch(r"nvidia\d+", name) is not None for name in os.listdir("/dev"))
    except OSError:
        return 0


def visible_gpus(
    env: Mapping[str, str], query: Query = query_devices, nodes: Callable[[], int] = device_nodes
) -> tuple[Gpu, ...]:
    """The GPUs that a process with environment ``env`` sees, in the order of its own setting.

    A partitioned GPU that is not named by an instance's UUID counts as its first instance: CUDA shows no other.

    Args:
        query: asks the driver.
        nodes: counts GPUs where the driver doesn't answer; their memory is then unknown.
    """
    entries = _entries(env[VISIBLE]) if VISIBLE in env else None
    if entries is not None and not entries:
        return ()
    devices = query()
    if devices is None:
        return _untold(entries, nodes())
    if entries is None:
        # By UUID, since what an index means depends on CUDA_DEVICE_ORDER.
        found = [_seen(device) for device in devices]
        return tuple(_gpu(index, device.uuid or str(index), device) for index, device in enumerate(found))
    if entries[0].isdigit():
        ordered = _in_cuda_order(devices, env.get(ORDER, ""))
        chosen = [(token, ordered[int(token)]) for token in _while(entries, lambda token: int(token) < len(ordered))]
    else:
        known = [*devices, *(instance for device in devices for instance in device.instances)]
        resolved = {token: _of_uuid(token, known) for token in entries}
        chosen = [(token, resolved[token] or Device()) for token in _while(entries, lambda t: resolved[t] is not None)]
        if _has_doubles([device.uuid for _, device in chosen if device.uuid]):
            return ()
    return tuple(_gpu(index, token, _seen(device)) for index, (token, device) in enumerate(chosen))


def _entries(setting: str) -> list[str]:
    """The entries before the first one that can't be valid on any machine."""
    tokens = [token.strip() for token in setting.split(",")]
    prefix = next((prefix for prefix in ("GPU-", "MIG-") if tokens[0].startswith(prefix)), "")
    if prefix:
        valid = _while(tokens, lambda token: token.startswith(prefix))
    else:
        valid = _while([_number(token) for token in tokens], bool)
    return [] if _has_doubles(valid) else valid


def _number(token: str) -> str:
    """The index that an entry begins with, as strtoul reads it ("1gpu" is 1); empty without one."""
    found = re.match(r"\+?(\d+)", token)
    return str(int(found.group(1))) if found else ""


def _while(tokens: Sequence[str], valid: Callable[[str], bool]) -> list[str]:
    first_bad = next((position for position, token in enumerate(tokens) if not valid(token)), len(tokens))
    return list(tokens[:first_bad])


def _has_doubles(values: Sequence[str]) -> bool:
    return len(set(values)) < len(values)


def _in_cuda_order(devices: Sequence[Device], order: str) -> Sequence[Device]:
    """Devices by CUDA's index. CUDA's default, fastest first, is the bus order only among equal GPUs: among others
    nobody outside of CUDA knows which is which, and each counts as the smallest of them."""
    if order == "PCI_BUS_ID" or len({device.name for device in devices}) == 1:
        return devices
    totals = [device.total_mib for device in devices if device.total_mib is not None]
    frees = [device.free_mib for device in devices if device.free_mib is not None]
    return [Device(total_mib=min(totals, default=None), free_mib=min(frees, default=None))] * len(devices)


def _of_uuid(token: str, known: Sequence[Device]) -> Device | None:
    """The one device that ``token`` names. The driver lists no instances by their old names (``MIG-GPU-<uuid>/1/0``):
    such a token is taken for what it says."""
    if token.startswith("MIG-") and ("/" in token or not any(device.uuid.startswith("MIG-") for device in known)):
        return Device()
    found = [device for device in known if device.uuid.startswith(token)]
    return found[0] if len(found) == 1 else None


def _seen(device: Device) -> Device:
    return device.instances[0] if device.instances else device


def _gpu(index: int, token: str, device: Device) -> Gpu:
    return Gpu(index, token, device.uuid, device.name, device.total_mib, device.free_mib)


def _untold(entries: Sequence[str] | None, nodes: int) -> tuple[Gpu, ...]:
    """The driver did not answer: names are taken for what they say, indices as far as there are device nodes."""
    if nodes == 0:
        return ()
    tokens = [str(index) for index in range(nodes)] if entries is None else list(entries)
    if tokens[0].isdigit():
        tokens = _while(tokens, lambda token: int(token) < nodes)
    return tuple(Gpu(index, token, "" if token.isdigit() else token) for index, token in enumerate(tokens))
