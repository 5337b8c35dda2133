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
from hotwirectl import exit_codes, failures, policy, receipts, status, vector, vectors
from hotwirectl.completion import COMPLETE_VAR, PROGRAM, completion
from hotwirectl.norms.commands import norms
from hotwirectl.printers import stdio
from hotwirectl.settings import FORMATS, Group, Settings
from hotwirectl.verify.command import verify

_ENVIRONMENT = """\
\b
Environment:
  HOTWIRE_SERVER   the daemon's address, as --server
  HOTWIRE_TIMEOUT  seconds, as --timeout
  HOTWIRE_OUTPUT   table or json, as --output
  HOTWIRE_RUN_DIR  the directory of the daemon's socket; if unset,
                   $XDG_RUNTIME_DIR/hotwire, else /tmp/hotwire-<uid>
  HOTWIRE_VLLM_URL the running vLLM for `verify`, as its --url
  HOTWIRE_DEBUG    1 prints the traceback of an unexpected failure
"""


@click.group(
    PROGRAM,
    cls=Group,
    from_environment=True,
    epilog=f"{exit_codes.HELP}\n{_ENVIRONMENT}",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
def cli() -> None:
    """Register steering vectors and set dose limits in running vLLM engines."""


for _command in (
    vectors.register,
    vectors.list_command,
    vectors.show,
    vectors.delete,
    vector.vector,
    policy.policy,
    policy.off,
    policy.on,
    norms,
    status.stats,
    status.nodes,
    receipts.receipt,
    status.health,
    verify,
    status.version,
    completion,
):
    cli.add_command(_command)


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
    except Exception as error:  # noqa: BLE001 - this is the end of the line
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


def _failed(error: Exception, arguments: Sequence[str], settings: Settings) -> int:
    if isinstance(error, getattr(click.exceptions, "NoArgsIsHelpError", ())):
        stdio.err(str(error))
        return exit_codes.USAGE
    failure = _failure(error)
    if isinstance(error, click.UsageError):
        _adopt_output(arguments, settings)
    if failure.exit_code == exit_codes.UNEXPECTED and os.environ.get("HOTWIRE_DEBUG"):
        traceback.print_exception(error)
    settings.printer().failure(failure)
    return failure.exit_code


def _failure(error: Exception) -> failures.Failure:
    match error:
        case HotwireError():
            return failures.of_error(error)
        case failures.CommandFailedError():
            return error.failure
        case click.Abort():
            return failures.interrupted()
        case click.ClickException():
            return failures.of_usage(error)
        case _:
            return failures.of_unexpected(error)


def _adopt_output(arguments: Sequence[str], settings: Settings) -> None:
    """Looks for the output format in a command line that could not be parsed."""
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
