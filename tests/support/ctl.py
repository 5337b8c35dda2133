"""hotwirectl for tests: run in this process, or as one of its own beside a stand-in."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import click
import pytest

from hotwirectl.main import cli, run
from hotwirectl.settings import Command

# What a shell that runs the tests may have set.
VARIABLES = ("HOTWIRE_TIMEOUT", "HOTWIRE_OUTPUT", "HOTWIRE_SERVER", "HOTWIRE_CONTEXT")

# A test run in the background of a shell has Ctrl-C ignored, and its children inherit that.
_START = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from hotwirectl.main import main
main()
"""
COMMAND = [sys.executable, "-c", _START]


@dataclass
class Result:
    """What a command came to."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        """The object on stdout."""
        return json.loads(self.out)

    def error(self) -> Any:
        """The object on stderr."""
        return json.loads(self.err)


Ctl = Callable[..., Result]


def in_process(capsys: pytest.CaptureFixture[str]) -> Ctl:
    """Returns a function that runs hotwirectl with its arguments."""

    def call(*arguments: object) -> Result:
        code = run([str(a) for a in arguments])
        captured = capsys.readouterr()
        return Result(code, captured.out, captured.err)

    return call


def commands(group: Any = cli, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Command]]:
    """Yields every command of hotwirectl with its words."""
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))
        else:
            yield " ".join((*path, name)), command


def environment(**more: str) -> dict[str, str]:
    """Returns the environment of a process that imports what this one does."""
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))} | more


def start(*arguments: str, **more: Any) -> subprocess.Popen[str]:
    """Starts hotwirectl as a process, with its streams in pipes unless something else is said."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(
        [*COMMAND, *arguments], **{"env": environment(), "text": True, **pipes, **more}
    )
