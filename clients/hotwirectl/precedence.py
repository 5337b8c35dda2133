"""What flags, the environment and the context in force come to, in this order."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import click

from hotwire_client import Client, Destination
from hotwire_client.address import default_server
from hotwire_client.connection import DEFAULT_CONNECT_TIMEOUT, DEFAULT_TIMEOUT
from hotwirectl.config.file import in_force
from hotwirectl.config.model import Context
from hotwirectl.printers import Printer, make_printer

DEFAULT_OUTPUT = "table"
_FILES = ("ca", "cert", "key", "token_file")


@dataclass
class Settings:
    """What flags and the environment say, None where they say nothing.

    The methods say what follows, with the context and the defaults; the configuration is read
    when the first of them asks for it.

    Attributes:
        context: The context to go by instead of the one in use.
        server: The daemon's address.
        timeout: The seconds a call may take.
        output: How results and errors are printed.
        ca, cert, key: PEM files for TLS.
        token_file: A file whose content proves who calls.
    """

    context: str | None = None
    server: str | None = None
    timeout: float | None = None
    output: str | None = None
    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    token_file: Path | None = None

    @cached_property
    def in_force(self) -> Context:
        """The context in force.

        Raises:
            ConfigError: There is no such context, or the configuration is broken.
        """
        return in_force(self.context)

    def address(self) -> str:
        """Returns the address of the daemon."""
        return self.server or self.in_force.server or default_server()

    def seconds(self) -> float:
        """Returns how long a call may take."""
        return self.timeout or self.in_force.timeout or DEFAULT_TIMEOUT

    def format(self) -> str:
        """Returns the output format."""
        return self.output or self.in_force.output or DEFAULT_OUTPUT

    def destination(self) -> Destination:
        """Returns the daemon, and the files that are shown to it.

        Those of a context are for its own daemon: another that is named gets none of them.
        """
        context = self.in_force
        theirs = context if self.server in {None, context.server} else Context()
        files = {key: getattr(self, key) or getattr(theirs, key) for key in _FILES}
        if self.cert or self.key:
            files |= {"cert": self.cert, "key": self.key}
        return Destination(self.address(), *files.values())

    def client(self, *, timeout: float | None = None) -> Client:
        """Returns a new client, to be closed by the caller.

        Raises:
            click.UsageError: The address is malformed, a file can't be read, or the configuration
                is broken.
        """
        seconds = timeout or self.seconds()
        try:
            return Client(
                self.destination(),
                timeout=seconds,
                connect_timeout=min(seconds, DEFAULT_CONNECT_TIMEOUT),
            )
        except (OSError, ValueError) as error:
            raise click.UsageError(str(error)) from error

    def printer(self) -> Printer:
        """Returns the printer for the output format."""
        return make_printer(self.format())

    def failure_printer(self) -> Printer:
        """Returns the printer for a failure, which may be that the configuration is broken."""
        try:
            return self.printer()
        except click.UsageError:
            return make_printer(self.output or DEFAULT_OUTPUT)
