"""The stack in lines: what is there, what is missing or doesn't fit together, and the command that mends it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from packaging.version import InvalidVersion, Version

from harness.doctor.children import LATE
from harness.doctor.machine import LIBRARIES, NEEDED, Machine
from harness.doctor.questions import TorchFacts
from harness.doctor.types import Item, Status, Variable
from harness.run.environment import allowable_names, recorded, refusals

VISIBLE = "CUDA_VISIBLE_DEVICES"
TRANSFORMER_ENGINE = "Transformer Engine"
REINSTALL_TORCH = f"pip install --upgrade --force-reinstall 'torch>={NEEDED['torch']}'"
ASK_LONGER = "python runner.py doctor --timeout 600"
DRIVER_GUIDE = "https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/"


def stack_items(machine: Machine, facts: TorchFacts | None, died: str, env: Mapping[str, str]) -> tuple[Item, ...]:
    """Every line. ``facts`` None: torch could not be asked, ``died`` says why."""
    items = [Item("Python", Status.OK, f"{machine.python} ({machine.platform})"), *_torch(machine, facts, died)]
    if facts is not None:
        items += [*_cuda(facts), gpu_item(machine, facts, env), *_gpus(facts)]
    else:
        items.append(Item("NVIDIA driver", Status.NOTE, machine.driver.version or machine.driver.error or "none"))
    return (*items, *_libraries(machine, facts), *_needed(machine), _compiler(machine))


def _torch(machine: Machine, facts: TorchFacts | None, died: str) -> Iterator[Item]:
    version = machine.packages.get("torch", "")
    if facts is None:
        if not version:
            yield Item("torch", Status.FATAL, "not installed", f"pip install 'torch>={NEEDED['torch']}'")
        else:
            text = f"{version}: importing it in a fresh process {died}"
            is_late = died.startswith(LATE)
            yield Item("torch", Status.FATAL, text, ASK_LONGER if is_late else REINSTALL_TORCH)
        return
    build = f"for CUDA {facts.cuda}" if facts.cuda else f"for ROCm {facts.hip}" if facts.hip else "without CUDA"
    text = f"{facts.version}, built {build}" + (f", git {facts.git[:12]}" if facts.git else "")
    if _older(facts.version, NEEDED["torch"]):
        fix = f"pip install --upgrade 'torch>={NEEDED['torch']}'"
        yield Item("torch", Status.FATAL, f"{text}: older than {NEEDED['torch']}", fix)
    elif facts.hip:
        yield Item("torch", Status.PROBLEM, f"{text}: the harness knows CPUs and NVIDIA GPUs", REINSTALL_TORCH)
    else:
        yield Item("torch", Status.OK, text)


def _cuda(facts: TorchFacts) -> Iterator[Item]:
    """CUDA libraries as the process has loaded them; nothing for a torch without CUDA."""
    if not facts.cuda:
        return
    yield Item("CUDA runtime", Status.OK, facts.runtime or "not loaded")
    yield Item("cuBLASLt", Status.OK, facts.cublaslt or "not loaded")
    if facts.cudnn:
        yield Item("cuDNN", Status.OK if facts.cudnn_ok else Status.PROBLEM, facts.cudnn, facts.cudnn_fix)


def gpu_item(machine: Machine, facts: TorchFacts, env: Mapping[str, str]) -> Item:
    """The driver and whether torch reaches a GPU through it; where it doesn't, the first cause that explains it."""
    driver = machine.driver
    if facts.gpus:
        supports = f", for CUDA {facts.driver_cuda} and older" if facts.driver_cuda else ""
        return Item("NVIDIA driver", Status.OK, f"{driver.version or 'version not known'}{supports}")
    if driver.error:
        return Item("NVIDIA driver", Status.PROBLEM, f"nvidia-smi: {driver.error}", _driver_fix(machine, driver.error))
    if not driver.version and not facts.driver_cuda:
        return _no_driver(machine)
    known = f"{driver.version or 'loaded'}, {_gpus_text(driver.gpus)}"
    if not facts.cuda:
        return Item("NVIDIA driver", Status.PROBLEM, f"{known}, but this torch is built without CUDA", REINSTALL_TORCH)
    if VISIBLE in env and driver.gpus:
        text = f"{known}, but {VISIBLE}={env[VISIBLE]!r} leaves torch none"
        return Item("NVIDIA driver", Status.PROBLEM, text, f"unset {VISIBLE}")
    if _older(facts.driver_cuda, facts.cuda.partition(".")[0]):
        text = f"{known}: too old, it is for CUDA {facts.driver_cuda} and torch is built for CUDA {facts.cuda}"
        return Item("NVIDIA driver", Status.PROBLEM, text + _guide(machine), machine.install_driver)
    said = f": {facts.warnings[0]}" if facts.warnings else ""
    return Item("NVIDIA driver", Status.PROBLEM, f"{known}, but torch sees none{said}", "nvidia-smi")


def _no_driver(machine: Machine) -> Item:
    if not machine.hardware:
        text = "none, and no NVIDIA GPU: CPU kernels run, GPU architectures are traced"
        return Item("NVIDIA driver", Status.NOTE, text)
    count = f"{machine.hardware} NVIDIA GPU{'' if machine.hardware == 1 else 's'} on the PCI bus"
    if machine.in_container:
        text = f"none in this container, {count}: start the container with its GPUs, such as docker run --gpus all"
        return Item("NVIDIA driver", Status.PROBLEM, text)
    return Item("NVIDIA driver", Status.PROBLEM, f"none, {count}{_guide(machine)}", machine.install_driver)


def _driver_fix(machine: Machine, error: str) -> str:
    # The kernel still runs the driver that a package upgrade has replaced on the disk.
    return "sudo reboot" if "version mismatch" in error else machine.install_driver


def _guide(machine: Machine) -> str:
    return "" if machine.install_driver else f" ({DRIVER_GUIDE})"


def _gpus_text(names: tuple[str, ...]) -> str:
    if not names:
        return "no GPU"
    kinds = ", ".join(dict.fromkeys(names))
    return f"{len(names)} GPU{'' if len(names) == 1 else 's'} ({kinds})"


def _gpus(facts: TorchFacts) -> Iterator[Item]:
    """What is wrong with GPUs that torch sees."""
    for gpu in facts.gpus:
        if gpu.error:
            text = f"{gpu.name} ({gpu.arch}) can't run a first kernel: {gpu.error}"
            built = f"; torch is compiled for {', '.join(facts.compiled_for)}" if facts.compiled_for else ""
            yield Item(f"cuda:{gpu.index}", Status.PROBLEM, text + built, "nvidia-smi --query --display=ECC,MEMORY")
    arches = list(dict.fromkeys(gpu.arch for gpu in facts.gpus))
    if len(arches) > 1:
        text = f"of different architectures: {', '.join(arches)}; arch: host means {facts.arch}, that of cuda:0"
        yield Item("GPUs", Status.NOTE, text)
    for text in facts.warnings if facts.gpus else ():
        yield Item("torch says", Status.NOTE, text)


def _libraries(machine: Machine, facts: TorchFacts | None) -> Iterator[Item]:
    found = {name: machine.packages[name] for name in LIBRARIES if name in machine.packages}
    parts = {name: version for name, version in found.items() if name.startswith("transformer-engine")}
    # Whether they can be used, and the command that mends them, is said by the provider.
    text = ", ".join(f"{name} {version}" for name, version in parts.items())
    yield Item(TRANSFORMER_ENGINE, Status.OK if parts else Status.NOTE, text or "not installed")
    if "triton" in found:
        yield Item("Triton", Status.OK, found["triton"])
    elif facts is not None and facts.gpus:
        text = "not installed: inductor cells and emulated MXFP8 need it on a GPU"
        yield Item("Triton", Status.PROBLEM, text, "pip install triton")
    else:
        yield Item("Triton", Status.NOTE, "not installed: needed on a GPU only")
    yield Item("torchao", Status.OK if "torchao" in found else Status.NOTE, found.get("torchao", "not installed"))


def _needed(machine: Machine) -> Iterator[Item]:
    """What the harness itself needs, on one line unless something is missing or too old."""
    others = [name for name in NEEDED if name != "torch"]
    good = []
    for name in others:
        version, least = machine.packages.get(name, ""), NEEDED[name]
        wanted = f"{name}>={least}" if least else name
        if not version:
            yield Item(name, Status.FATAL, "not installed", f"pip install '{wanted}'")
        elif least and _older(version, least):
            yield Item(name, Status.FATAL, f"{version}: older than {least}", f"pip install --upgrade '{wanted}'")
        else:
            good.append(f"{name} {version}")
    if good:
        yield Item("harness needs", Status.OK, ", ".join(good))


def _compiler(machine: Machine) -> Item:
    if machine.compiler:
        return Item("C++ compiler", Status.OK, machine.compiler)
    text = "none: inductor cells compile C++ on the CPU"
    return Item("C++ compiler", Status.PROBLEM, text, machine.install_compiler)


def variables(env: Mapping[str, str], allowed: tuple[str, ...] = ()) -> tuple[Variable, ...]:
    """Set environment variables that stop a run, those that need a flag, and those that are only recorded."""
    stopping = {one.name: one for one in refusals(env, allowed)}
    found = []
    for name in sorted({*stopping, *recorded(env)}):
        one = stopping.get(name)
        if one is None:
            text = "allowed by --allow-env" if name in allowed and name in allowable_names() else ""
            found.append(Variable(name, env[name], "recorded", text))
        elif one.allowable:
            remedy = f"{one.reason}: unset {name}, or pass --allow-env {name}"
            found.append(Variable(name, env[name], "needs --allow-env", remedy))
        else:
            found.append(Variable(name, env[name], "refused", f"{one.reason}: unset {name}"))
    return tuple(found)


def _older(version: str, least: str) -> bool:
    """True when ``version`` is older; local parts (``+cu130``) don't count, an empty or odd version isn't judged."""
    try:
        return Version(Version(version).public).release < Version(least).release
    except InvalidVersion:
        return False
