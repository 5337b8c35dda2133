"""The command itself: its parts put together, and every way it can end."""

import contextlib
import os
import sys
import traceback
from collections.abc import Sequence
from typing import NoReturn

# gRPC's own log lines would stand between the user and the one sentence that says what is wrong.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

import click

from hotwire_client import HotwireError
from hotwirectl import (
    contexts,
    exit_codes,
    failures,
    policy,
    receipts,
    status,
    vector,
    vectors,
    wait,
)
from hotwirectl.completion import COMPLETE_VAR, PROGRAM, completion
from hotwirectl.extract.command import extract
from hotwirectl.formats import commands as formats
from hotwirectl.nodes import nodes
from hotwirectl.norms.commands import norms
from hotwirectl.printers import stdio
from hotwirectl.register import register
from hotwirectl.settings import Group, Settings
from hotwirectl.values import FORMATS
from hotwirectl.verify.command import verify

_NoArguments = click.exceptions.NoArgsIsHelpError

_ENVIRONMENT = """\
\b
Environment:
  HOTWIRE_CONTEXT  a context's name, as --context
  HOTWIRE_SERVER   the daemon's address, as --server
  HOTWIRE_CA, HOTWIRE_CERT, HOTWIRE_KEY, HOTWIRE_TOKEN_FILE
                   files, as --ca, --cert, --key, --token-file
  HOTWIRE_TIMEOUT  seconds, as --timeout
  HOTWIRE_OUTPUT   the format, as --output
  HOTWIRE_CONFIG   the file of contexts; if unset, hotwire/config.toml
                   in $XDG_CONFIG_HOME, else in ~/.config
  HOTWIRE_RUN_DIR  the directory of the daemon's socket; if unset,
                   $XDG_RUNTIME_DIR/hotwire, else /tmp/hotwire-<uid>
  HOTWIRE_VLLM_URL the running vLLM for `verify`, as its --url
  HOTWIRE_DEBUG    1 prints the traceback of an unexpected failure

A flag goes before the environment, that before the context, that before the default.
"""
_EXAMPLE = """\
\b
Example:
  hotwirectl register joy.safetensors
  hotwirectl list
"""


@click.group(
    PROGRAM,
    cls=Group,
    from_environment=True,
    epilog=f"{_EXAMPLE}\n{exit_codes.HELP}\n{_ENVIRONMENT}",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
def cli() -> None:
    """Register steering vectors and set dose limits in running vLLM engines."""


cli.add_section(
    "Vectors", register, vectors.list_command, vectors.show, vector.vector, vectors.delete
)
cli.add_section(
    "Vector files", formats.inspect, formats.convert, formats.export, formats.diff, extract
)
cli.add_section("Policy", policy.policy, policy.off, policy.on, norms)
cli.add_section("State", nodes, wait.wait, status.stats, receipts.receipt, status.health, verify)
cli.add_section("This command", contexts.context, status.version, completion)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Runs the command and ends the process with its exit code."""
    sys.exit(run(sys.argv[1:] if arguments is None else arguments))


def run(arguments: Sequence[str]) -> int:
    """Runs the command and returns its exit code; nothing is raised."""
    settings = Settings()
    try:
        _invoke(arguments, settings)
    except stdio.OutputClosedError:
        _drop_stdout()
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - this is the end of the line
        return _failed(error, arguments, settings)
    return exit_codes.DONE


def _invoke(arguments: Sequence[str], settings: Settings) -> None:
    cli.main(
        list(arguments),
        prog_name=PROGRAM,
        complete_var=COMPLETE_VAR,
        standalone_mode=False,
        obj=settings,
    )


def _failed(error: BaseException, arguments: Sequence[str], settings: Settings) -> int:
    if isinstance(error, click.UsageError):
        _adopt_output(arguments, settings)
    if isinstance(error, stdio.OutputFailedError):
        _drop_stdout()
    printer = settings.failure_printer()
    if isinstance(error, _NoArguments) and settings.output not in {"json", "yaml"}:
        stdio.err(str(error))
        return exit_codes.USAGE
    failure = _failure(error)
    if failure.exit_code == exit_codes.UNEXPECTED and os.environ.get("HOTWIRE_DEBUG"):
        traceback.print_exception(error)
    printer.failure(failure)
    return failure.exit_code


def _failure(error: BaseException) -> failures.Failure:
    match error:
        case HotwireError():
            return failures.of_error(error)
        case failures.CommandFailedError():
            return error.failure
        case click.Abort() | KeyboardInterrupt():
            return failures.interrupted()
        case _NoArguments():
            return failures.of_usage(click.UsageError("a command is missing", error.ctx))
        case click.ClickException():
            return failures.of_usage(error)
        case _:
            return failures.of_unexpected(error)


def _adopt_output(arguments: Sequence[str], settings: Settings) -> None:
    """Looks for the output format in a command line that could not be parsed."""
    if (value := os.environ.get("HOTWIRE_OUTPUT")) in FORMATS:
        settings.output = settings.output or value
    for at, argument in enumerate(arguments):
        value = argument.partition("=")[2] if argument.startswith("--output=") else ""
        if argument in {"-o", "--output"}:
            value = "".join(arguments[at + 1 : at + 2])
        elif argument.startswith("-o"):
            value = argument[2:]
        if value in FORMATS:
            settings.output = value


def _drop_stdout() -> None:
    # The interpreter would complain about the closed pipe when it flushes at its end.
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
