"""What can be known without importing torch: distributions, the NVIDIA driver, the hardware, the compiler."""

from __future__ import annotations

import contextlib
import importlib.metadata
import platform
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

# What the harness itself needs, with the oldest version that does: pyproject.toml's dependencies.
NEEDED: Mapping[str, str] = {
    "torch": "2.11",
    "numpy": "",
    "pytest": "8.2",
    "pytest-xdist": "3.6",
    "pyyaml": "6",
    "rich": "13",
    "pydantic": "2.6",
    "jinja2": "3.1",
    "packaging": "",
}
# What libraries under test bring along.
LIBRARIES = (
    "transformer-engine",
    "transformer-engine-torch",
    "transformer-engine-cu12",
    "transformer-engine-cu13",
    "triton",
    "torchao",
)
_NVIDIA_PCI_VENDOR = "0x10de"
_DISPLAY_CLASSES = ("0x0300", "0x0302")  # VGA and 3D controllers (PCI class codes), without bridges and audio
_SMI_SECONDS = 20.0


@dataclass(frozen=True)
class Driver:
    """The NVIDIA driver. ``version``: of the kernel module, empty where none is loaded. ``error``: the words of
    nvidia-smi where it failed. ``gpus``: names of all GPUs, also of those that CUDA_VISIBLE_DEVICES hides."""

    version: str = ""
    gpus: tuple[str, ...] = ()
    error: str = ""


@dataclass(frozen=True)
class Machine:
    """The machine around torch. ``hardware``: NVIDIA GPUs on the PCI bus, whether or not a driver serves them.

    ``compiler``: path of the C++ compiler that Inductor would call, empty where there is none. ``install_compiler``
    and ``install_driver``: commands of this system that install one, empty where none is known.
    """

    python: str
    platform: str
    packages: Mapping[str, str]
    driver: Driver = field(default_factory=Driver)
    hardware: int = 0
    in_container: bool = False
    compiler: str = ""
    install_compiler: str = ""
    install_driver: str = ""


def look(env: Mapping[str, str]) -> Machine:
    """This machine."""
    return Machine(
        python=platform.python_version(),
        platform=f"{platform.system()} {platform.machine()}",
        packages=installed((*NEEDED, *LIBRARIES)),
        driver=driver(),
        hardware=pci_gpus(),
        in_container=any(Path(mark).exists() for mark in ("/.dockerenv", "/run/.containerenv")),
        compiler=compiler(env),
        install_compiler=_first_command(
            ("apt-get", "sudo apt-get install g++"), ("dnf", "sudo dnf install gcc-c++"), ("apk", "apk add g++")
        ),
        install_driver=_first_command(("ubuntu-drivers", "sudo ubuntu-drivers install")),
    )


def installed(names: Sequence[str]) -> dict[str, str]:
    """Versions by distribution name; what isn't installed is left out."""
    found = {}
    for name in names:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def driver() -> Driver:
    """The driver as nvidia-smi sees it, else as the kernel does."""
    kernel = kernel_module()
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return Driver(kernel)
    command = [tool, "--query-gpu=driver_version,name", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SMI_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return Driver(kernel, error=f"nvidia-smi did not answer within {_SMI_SECONDS:g} s")
    except OSError as error:
        return Driver(kernel, error=f"nvidia-smi could not be started: {error.strerror or error}")
    if done.returncode != 0:
        said = " ".join((done.stdout + done.stderr).split())
        return Driver(kernel, error=said or f"nvidia-smi ended with exit code {done.returncode}")
    rows = [line.partition(",") for line in done.stdout.splitlines() if "," in line]
    version = rows[0][0].strip() if rows else kernel
    return Driver(version, tuple(name.strip() for _, _, name in rows))


def kernel_module(path: Path = Path("/proc/driver/nvidia/version")) -> str:
    """Version of the loaded kernel module; empty without one."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    match = re.search(r"^NVRM version:.*?\s(\d+(?:\.\d+)+)\s", text, re.MULTILINE)
    return match[1] if match else ""


def pci_gpus(devices: Path = Path("/sys/bus/pci/devices")) -> int:
    """How many NVIDIA display devices are on the PCI bus."""
    count = 0
    for device in devices.glob("*"):
        with contextlib.suppress(OSError):
            vendor = (device / "vendor").read_text().strip()
            kind = (device / "class").read_text().strip()
            count += vendor == _NVIDIA_PCI_VENDOR and kind.startswith(_DISPLAY_CLASSES)
    return count


def compiler(env: Mapping[str, str]) -> str:
    """Path of the C++ compiler that Inductor calls: ``$CXX``, else g++ (torch/_inductor/config.py, ``cpp.cxx``)."""
    asked = shlex.split(env.get("CXX", "")) or ["g++"]
    return shutil.which(asked[0]) or ""


def _first_command(*choices: tuple[str, str]) -> str:
    return next((command for tool, command in choices if shutil.which(tool)), "")
