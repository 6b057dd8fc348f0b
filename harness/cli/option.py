"""Options declared once: flag, environment variable, meaning; each value remembers where it came from."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from harness.cli.errors import UsageError
from harness.plan.nearest import nearest

USUAL = "options"  # the group of options that name none
Read = Callable[[str], Any]


@dataclass(frozen=True)
class Option:
    """One option of a command.

    ``read`` turns the text of the command line or of ``env`` into the value; it raises ValueError with what was
    expected. ``repeat``: may be given several times, the value is a tuple. ``once``: giving it
    twice is an error, where others let the last one win. ``switch``: takes no argument.
    """

    name: str
    flags: tuple[str, ...]
    help: str
    read: Read = str
    default: Any = None
    metavar: str = ""
    env: str = ""
    repeat: bool = False
    once: bool = False
    switch: bool = False
    group: str = USUAL

    @property
    def is_positional(self) -> bool:
        return not self.flags[0].startswith("-")


@dataclass(frozen=True)
class Setting:
    """A value, its origin (a flag, an environment variable, or ``default``), and the text it was read from."""

    value: Any
    origin: str
    text: str = ""


class Settings:
    """The settings of one invocation, by option name."""

    def __init__(self, values: Mapping[str, Setting]) -> None:
        self._values = values

    def __getitem__(self, name: str) -> Any:
        return self._values[name].value

    def origin(self, name: str) -> str:
        return self._values[name].origin

    def in_force(self) -> Mapping[str, Setting]:
        """Those that say something, for --plan."""
        return {name: setting for name, setting in self._values.items() if setting.value not in (None, False, ())}


class _Parser(argparse.ArgumentParser):
    """argparse, but errors are ours: exit code 4, and the nearest valid name."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(message)


def parse(options: Sequence[Option], arguments: Sequence[str], env: Mapping[str, str], **texts: Any) -> Settings:
    """Settings from the command line, then the environment, then defaults.

    ``texts`` go to argparse: ``prog``, ``usage``, ``description``, ``epilog``. ``--help`` prints and exits with 0.

    Raises:
        UsageError: an unknown option or a value that can't be read.
    """
    parser = _parser(options, **texts)
    found, unknown = parser.parse_known_args(list(arguments))
    if unknown:
        raise UsageError(_unknown(unknown[0], options))
    return Settings({option.name: _setting(option, vars(found)[option.name], env) for option in options})


def _parser(options: Sequence[Option], **texts: Any) -> argparse.ArgumentParser:
    layout = argparse.RawDescriptionHelpFormatter
    # argparse's own --help would open a group of its own, which has the name of the usual one.
    parser = _Parser(allow_abbrev=False, formatter_class=layout, add_help=False, **texts)
    names = dict.fromkeys((USUAL, *(option.group for option in options)))
    groups = {name: parser.add_argument_group(name) for name in names}
    groups[USUAL].add_argument("-h", "--help", action="help", help="show this help message and exit")
    for option in options:
        words: dict[str, Any] = {"help": _help(option), "default": None}
        if not option.is_positional:
            words["dest"] = option.name
        if option.switch:
            words["action"] = "store_true"
        else:
            words["metavar"] = option.metavar or option.name.upper()
            words |= {"action": "append"} if option.repeat or option.once else {}
            words |= {"nargs": "?"} if option.is_positional else {}
        groups[option.group].add_argument(*(option.flags if not option.is_positional else (option.name,)), **words)
    return parser


def _help(option: Option) -> str:
    notes = [f"env: {option.env}"] if option.env else []
    if option.default not in (None, False, ()):
        default = f"{option.default:g}" if isinstance(option.default, float) else str(option.default)
        notes.append(f"default: {default}")
    return (option.help + (f" ({'; '.join(notes)})" if notes else "")).replace("%", "%%")


def _setting(option: Option, raw: Any, env: Mapping[str, str]) -> Setting:
    flag = option.flags[-1]
    if option.switch:
        return Setting(True, flag, "yes") if raw else Setting(False, "default")
    if raw is not None:
        texts = raw if option.repeat or option.once else [raw]
        if option.once and len(texts) > 1:
            raise UsageError(f"{flag} can be given once, not {len(texts)} times: {', '.join(texts)}")
        values = tuple(_read(option, text, flag) for text in texts)
        return Setting(values if option.repeat else values[0], flag, " ".join(texts))
    if option.env and env.get(option.env):
        value = _read(option, env[option.env], option.env)
        return Setting((value,) if option.repeat else value, option.env, env[option.env])
    return Setting(() if option.repeat else option.default, "default", str(option.default))


def _read(option: Option, text: str, source: str) -> Any:
    try:
        return option.read(text)
    except ValueError as error:
        raise UsageError(f"{source} {text if text.strip() else repr(text)}: {error}") from error


def _unknown(word: str, options: Sequence[Option]) -> str:
    flags = [flag for option in options if not option.is_positional for flag in option.flags]
    name = word.partition("=")[0]
    if not name.startswith("-"):
        return f"unexpected argument {word!r}"
    near = nearest(name, [flag for flag in flags if flag.startswith("--")])
    return f"unknown option {name}" + (f" (did you mean {near}?)" if near else "")
