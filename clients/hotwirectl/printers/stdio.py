"""Writes lines to the standard streams."""

import sys

import click


class OutputClosedError(Exception):
    """Raised when nobody reads stdout any longer."""


def out(line: str) -> None:
    """Writes a line to stdout and flushes it.

    Raises:
        OutputClosedError: Nobody reads it.
    """
    try:
        click.echo(line)
        sys.stdout.flush()
    except BrokenPipeError as error:
        raise OutputClosedError from error


def err(line: str) -> None:
    """Writes a line to stderr."""
    click.echo(line, err=True)
