from __future__ import annotations

import itertools

import pytest

from harness.cli.errors import UsageError
from harness.cli.main import main
from harness.cli.option import Option, Settings, parse
from harness.cli.run_options import RUN_OPTIONS

OPTIONS = (
    Option("count", ("-n", "--count"), "how many", int, 3, env="MY_COUNT"),
    Option("names", ("--name",), "a name", repeat=True),
    Option("loud", ("--loud",), "noise", switch=True),
    Option("place", ("place",), "where"),
)


def settings(*words: str, **env: str) -> Settings:
    return parse(OPTIONS, words, env)


def test_each_value_knows_where_it_came_from() -> None:
    assert (settings()["count"], settings().origin("count")) == (3, "default")
    from_env = settings(MY_COUNT="5")
    assert (from_env["count"], from_env.origin("count")) == (5, "MY_COUNT")
    from_line = settings("-n", "7", MY_COUNT="5")
    assert (from_line["count"], from_line.origin("count")) == (7, "--count")
    shown = {name: (one.text, one.origin) for name, one in from_line.in_force().items()}
    assert shown == {"count": ("7", "--count")}


def test_switches_repeats_and_positionals() -> None:
    found = settings("here", "--name", "a", "--loud", "--name=b")
    assert (found["names"], found["loud"], found["place"]) == (("a", "b"), True, "here")
    assert (settings()["names"], settings()["loud"], settings()["place"]) == ((), False, None)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--cuont", "1"], "unknown option --cuont (did you mean --count?)"),
        (["--cuont=1"], "did you mean --count?"),
        (["-z"], "unknown option -z"),
        (["here", "there"], "unexpected argument 'there'"),
        (["--count"], "expected one argument"),
        (["--coun", "3"], "unknown option --coun"),  # no abbreviations: they change meaning when options are added
        (["-n", "x"], "--count x: invalid literal"),
    ],
)
def test_what_is_wrong_is_named(words: list[str], message: str) -> None:
    with pytest.raises(UsageError) as error:
        settings(*words)
    assert message in str(error.value)


def test_a_bad_value_of_the_environment_is_blamed_on_it() -> None:
    with pytest.raises(UsageError, match="MY_COUNT many"):
        settings(MY_COUNT="many")


def value(words: str) -> object:
    flag, text = words.split()
    option = next(option for option in RUN_OPTIONS if flag in option.flags)
    return parse(RUN_OPTIONS, [f"{flag}{'' if len(flag) == 2 else '='}{text}"], {})[option.name]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("-n auto", "auto"),
        ("-n 0", 0),
        ("--timeout 0.5", 0.5),
        ("--shard 2/3", (2, 3)),
        ("--select recipe=a,b(x=1,y=2)", (("recipe", ("a", "b(x=1,y=2)")),)),
        ("--maxfail 2", 2),
        ("--shuffle -3", -3),
    ],
)
def test_values_of_a_run(words: str, expected: object) -> None:
    assert value(words) == expected


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("-n -1", "expected auto or a number"),
        ("-n two", "expected auto or a number"),
        ("--timeout 0", "expected a number of seconds above 0"),
        ("--timeout nan", "expected a number of seconds above 0"),
        ("--timeout soon", "expected a number of seconds above 0"),
        ("--maxfail 0", "expected a number from 1"),
        ("--shard 0/3", "expected I/N with 1 <= I <= N"),
        ("--shard 4/3", "expected I/N with 1 <= I <= N"),
        ("--shard half", "expected I/N with 1 <= I <= N"),
        ("--shuffle x", "expected a whole number"),
        ("--select recipe", "expected AXIS=VALUE"),
        ("--select recipe=", "expected AXIS=VALUE"),
        ("--color blue", "expected auto, always or never"),
    ],
)
def test_bad_values_of_a_run(words: str, message: str) -> None:
    with pytest.raises(UsageError) as error:
        value(words)
    assert message in str(error.value)
    assert words.split()[1] in str(error.value)


def test_every_option_of_a_run_is_declared_once_and_explained() -> None:
    flags = [flag for option in RUN_OPTIONS for flag in option.flags]
    assert len(flags) == len(set(flags))
    assert len({option.name for option in RUN_OPTIONS}) == len(RUN_OPTIONS)
    assert all(option.help for option in RUN_OPTIONS)


@pytest.mark.parametrize("words", [[], ["selftest"], ["doctor"], ["report"], ["schema"]])
def test_help_has_each_heading_once(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main([*words, "--help"])
    assert end.value.code == 0
    lines = capsys.readouterr().out.splitlines()
    headings = [line for line, below in itertools.pairwise(lines) if line.endswith(":") and below.startswith("  -")]
    assert len(headings) == len(set(headings)), headings
    assert headings[0] == "options:"


def test_help_names_flag_variable_and_default(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        parse(RUN_OPTIONS, ["--help"], {}, prog="runner.py")
    assert end.value.code == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "time limit of one cell (env: FP8_HARNESS_TIMEOUT; default: 120)" in text
