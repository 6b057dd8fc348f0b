"""From a provider's spec (``reference+leaky_exit(emulate=false)``) to a live provider with its faults applied."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

from harness.ctrl_c import CtrlC
from harness.faults import FAULTS, path_of
from harness.faults.fault import RAISED, UNMENDED, Fault, FaultError
from harness.faults.leftovers import Snapshot
from harness.faults.seal import is_harness, sealed
from harness.faults.stages import APPLIED, MENDED, reached
from harness.providers import PROVIDERS
from harness.providers.protocol import MEMBERS, LoadedProvider, Provider
from harness.registry import LoadError, last_site, load
from harness.types import Spec

SHOWN = 3  # of the things that a fault left replaced


def split_faults(name: str) -> tuple[str, tuple[str, ...]]:
    """``reference+a+b`` as ``("reference", ("a", "b"))``."""
    base, *faults = name.split("+")
    return base, tuple(faults)


def load_fault(name: str) -> Fault:
    """The fault that is registered as ``name``, or stands at the import path ``name``.

    Raises:
        LoadError: its module can't be imported, edits the harness at import, or there is something else.
        KeyError: an unregistered name.
    """
    path = path_of(name)
    if path is None:
        raise KeyError(name)
    fault = load(path) if name in FAULTS else _load_unregistered(path)
    if not isinstance(fault, Fault):
        raise LoadError(f"{path} is no fault but {type(fault).__name__}: harness.faults.fault.Fault is needed")
    return fault


def _load_unregistered(path: str) -> Any:
    """A module of the user's may replace things when its fault is applied, where that is seen, and not before."""
    module = path.partition(":")[0]
    if module in sys.modules:
        return load(path)
    edited = sealed(is_harness)
    found = load(path)
    if label := edited():
        raise LoadError(f"importing {module} edits the harness: {label}")
    return found


@contextmanager
def loaded_provider(spec: Spec) -> Iterator[LoadedProvider]:
    """Yield the provider with every fault of its name applied, in order; all of them are undone on exit.

    Torch's settings are then as they were once the library was there: what it changed while it was imported stays, what
    it left changed later must not meet the next cell.

    Raises:
        LoadError: the provider's or a fault's module can't be imported, or holds no fault.
        KeyError: an unregistered name (the plan refuses those with a position).
        FaultError: a fault's ``apply`` raised, gives no provider, edited what judges it, or left something replaced
            once it was left.
    """
    base, fault_names = split_faults(spec.name)
    provider: Provider = load(PROVIDERS[base])(**spec.as_dict())
    from harness.observe.torch_settings import ending_here  # imports torch; planning imports this module without

    # Settings are put back before anybody looks: torch keeps some of them as names of its modules (torch.Storage).
    with _mended(fault_names) as unedited, ending_here(), ExitStack() as stack:
        for name in fault_names:
            provider = stack.enter_context(_applied(name, provider, base))
        unedited()
        reached(APPLIED)
        try:
            yield LoadedProvider(provider, spec, fault_names, unedited)
        except Exception:
            unedited()  # what the judge raised is not its own, if it was edited
            raise
        unedited()
    reached(MENDED)


@contextmanager
def _mended(names: tuple[str, ...]) -> Iterator[Callable[[], None]]:
    """Yields what raises FaultError once the faults ``names``, which the body applies and mends, edited the judge.

    Raises:
        FaultError: they left something replaced.
    """
    if not names:
        yield lambda: None
        return
    # Whatever of these the faults replace, what is called afterwards was here before them.
    before, edited, failed, named = Snapshot(), sealed(), FaultError, "+".join(names)
    raised, unmended = RAISED, UNMENDED

    def unedited() -> None:
        if label := edited():
            raise failed(raised, named, f"it edits the judge: {label}")

    cause: BaseException | None = None
    try:
        yield unedited
    except BaseException as error:
        if type(error) is failed:
            raise  # says why it is not mended
        cause = error
    if label := edited():
        raise failed(unmended, named, f"not mended when its apply was left: {label}") from cause
    if left := before.left():
        shown = ", ".join(left[:SHOWN]) + (f" and {len(left) - SHOWN} more" if len(left) > SHOWN else "")
        raise failed(unmended, named, f"not mended when its apply was left: {shown}") from cause
    if cause is not None:
        raise cause


@contextmanager
def _applied(name: str, provider: Provider, base: str) -> Iterator[Provider]:
    """The provider with the fault of that name; an exception of its own is told apart from one of the body."""
    fault = load_fault(name)
    if base not in fault.providers:
        raise FaultError(RAISED, name, f"it breaks nothing of {base}, only of {', '.join(fault.providers)}")
    with _blaming(name):
        manager: Any = fault.apply(provider)
    if not isinstance(manager, AbstractContextManager):
        given = f"apply gives back {_kind(manager)}, no context manager"
        raise _refused(name, fault, f"{given}: decorate a generator with contextlib.contextmanager")
    with _blaming(name):
        broken = manager.__enter__()
    if why := _no_provider(name, broken):
        with _blaming(name, "when it was to mend"):
            manager.__exit__(None, None, None)
        raise _refused(name, fault, why)
    raised: BaseException | None = None
    try:
        yield broken
    except BaseException as error:  # whatever it is, the fault must be mended first
        raised = error
    with _blaming(name, "when it was to mend", other_than=raised):
        manager.__exit__(type(raised) if raised else None, raised, raised.__traceback__ if raised else None)
    if raised is not None:
        raise raised  # a fault can't keep from the harness what the cell raised


def _no_provider(name: str, broken: object) -> str:
    """Why what a fault's ``apply`` yields can't be used as a provider; empty where it can."""
    if broken is None:
        return "apply yields nothing: the provider is needed"
    with _blaming(name):  # a wrapper may compute its attributes
        missing = [member for member in MEMBERS if not hasattr(broken, member)]
    more = f" and {len(missing) - SHOWN} more" if len(missing) > SHOWN else ""
    what = f"apply yields {_kind(broken)}, no provider: it has no {', '.join(missing[:SHOWN])}{more}"
    return what if missing else ""


def _kind(value: object) -> str:
    return "nothing" if value is None else f"an object of type {type(value).__name__}"


def _refused(name: str, fault: Fault, message: str) -> FaultError:
    """What can't be used, told at the definition of the fault's ``apply``."""
    code = getattr(inspect.unwrap(fault.apply), "__code__", None)
    site = f"{code.co_filename}:{code.co_firstlineno}" if code else ""
    return FaultError(RAISED, name, message + (f" at {site}" if site else ""), site)


@contextmanager
def _blaming(name: str, when: str = "", other_than: BaseException | None = None) -> Iterator[None]:
    with CtrlC() as ctrl_c:
        try:
            yield
        except BaseException as error:  # a fault may raise what stands for an interrupt, and no one has interrupted
            if error is other_than or (isinstance(error, KeyboardInterrupt) and ctrl_c.came):
                raise
            module = sys.modules.get(str(path_of(name)).partition(":")[0])
            site = last_site(error, prefer=getattr(module, "__file__", None) or "")
            what = " ".join(filter(None, ["apply raised", type(error).__name__, when]))
            message = ": ".join(filter(None, [what, str(error)])) + (f" at {site}" if site else "")
            raise FaultError(RAISED, name, message, site) from error
