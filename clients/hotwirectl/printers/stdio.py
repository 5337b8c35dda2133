"""Writes lines to the standard streams."""

import contextlib
import select
import sys
import time

import click


class OutputClosedError(Exception):
    """Raised when nobody reads stdout any longer."""


class OutputFailedError(Exception):
    """Raised when stdout takes no more for another reason, such as a full disk."""

    reason = "OUTPUT_FAILED"


def out(line: str) -> None:
    """Writes a line to stdout and flushes it.

    Raises:
        OutputClosedError: Nobody reads it.
        OutputFailedError: It cannot be written.
    """
    try:
        click.echo(line)
        sys.stdout.flush()
    except BrokenPipeError as error:
        raise OutputClosedError from error
    except OSError as error:
        raise OutputFailedError(f"stdout cannot be written: {error.strerror}") from error


def err(line: str) -> None:
    """Writes a line to stderr; if that is closed, there is nobody to tell."""
    with contextlib.suppress(OSError):
        click.echo(line, err=True)


def wait(seconds: float) -> None:
    """Waits, and notices meanwhile if nobody reads stdout any longer.

    Raises:
        OutputClosedError: Nobody does.
    """
    try:
        stream = sys.stdout.fileno()
    except (OSError, ValueError):  # it is none of the system's
        time.sleep(seconds)
        return
    poll = select.poll()
    poll.register(stream, 0)  # what is wrong is reported unasked
    if poll.poll(seconds * 1000):
        raise OutputClosedError
