"""The help of every command, words that are mistyped, and what a start must not load."""

import shlex
import subprocess
import sys

import click
import pytest

from hotwirectl.main import cli
from hotwirectl.near import Choice
from hotwirectl.settings import Command
from tests.support.ctl import Ctl, commands, environment, in_process


@pytest.fixture
def ctl(capsys: pytest.CaptureFixture[str]) -> Ctl:
    """Runs hotwirectl."""
    return in_process(capsys)


@pytest.mark.parametrize(
    ("words", "command"), list(commands()), ids=[words for words, _ in commands()]
)
def test_every_command_shows_an_example_that_parses(words: str, command: Command, ctl: Ctl) -> None:
    """Its own words, with options that it has; what it takes stands apart from what all take."""
    shown = ctl(*words.split(), "--help").out
    assert f"Example:\n    {command.example}\n" in shown
    assert shown.index("Options of every command:" if words != "context set" else "Options:") > 0
    if words == "completion":
        return
    line = shlex.split(command.example.partition(" > ")[0])
    assert line[0] == "hotwirectl"
    assert " ".join(line[1:]).startswith(words)
    options = {o for p in command.params for o in [*p.opts, *p.secondary_opts]}
    assert {w for w in line if w.startswith("-")} <= options


def test_own_options_come_first(ctl: Ctl) -> None:
    """And each option once."""
    shown = ctl("list", "--help").out
    assert (
        shown.index("--watch") < shown.index("Options of every command:") < shown.index("--server")
    )
    assert shown.count("--watch  ") == 1


def test_every_command_is_in_a_section(ctl: Ctl) -> None:
    """The first help a user sees is sorted."""
    shown = ctl("--help").out
    for name in cli.commands:
        assert f"\n  {name} " in shown
    assert shown.index("Vectors:") < shown.index("  register ") < shown.index("Policy:")


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (["lst"], "list"),
        (["polcy", "show"], "policy"),
        (["policy", "sohw"], "show"),
        (["list", "--timout", "1"], "--timeout"),
        (["policy", "set", "--mode", "rejekt"], "reject"),
        (["policy", "set", "--default-mode", "fall"], "fallback"),
        (["list", "-o", "jsn"], "json"),
        (["completion", "bsh"], "bash"),
        (["context", "set", "a", "--unset", "token-file"], "token_file"),
    ],
)
def test_a_mistyped_word_gets_the_nearest(arguments: list[str], meant: str, ctl: Ctl) -> None:
    """Commands, options and words of a few."""
    result = ctl(*arguments)
    assert result.code == 2
    assert f"; did you mean {meant!r}?" in result.err


def test_every_choice_suggests() -> None:
    """None is click's own, which does not."""
    for words, command in commands():
        for parameter in command.params:
            if isinstance(parameter.type, click.Choice):
                assert isinstance(parameter.type, Choice), words


def test_a_start_loads_only_what_it_needs() -> None:
    """No command waits for the libraries of another."""
    code = "import sys, hotwirectl.main; print(*sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=True
    )
    loaded = set(result.stdout.split())
    unwanted = {
        "importlib.metadata",
        "rich",
        "yaml",
        "tomlkit",
        "tomllib",
        "difflib",
        "numpy",
        "torch",
        "safetensors",
    }
    assert "grpc" in loaded
    assert not loaded & unwanted
