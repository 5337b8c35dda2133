"""The options every command has, accepted before and after its name."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from hotwire_client import Client, Destination
from hotwire_client.address import SERVER_ENV, default_server, target_of
from hotwire_client.connection import DEFAULT_CONNECT_TIMEOUT, DEFAULT_TIMEOUT
from hotwire_client.destination import CA_ENV, CERT_ENV, KEY_ENV, TOKEN_FILE_ENV
from hotwirectl.printers import Printer, make_printer

#: A day is the longest that a call may take.
MAX_TIMEOUT = 86400.0

FORMATS = ("table", "json")

T = TypeVar("T")


@dataclass
class Settings:
    """Where the daemon is and what is shown to it, how long a call may take (seconds) and how
    results are printed.
    """

    server: str | None = None
    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    token_file: Path | None = None
    timeout: float = DEFAULT_TIMEOUT
    output: str = "table"

    def address(self) -> str:
        """Returns the address of the daemon."""
        return self.server or default_server()

    def destination(self) -> Destination:
        """Returns the daemon, and the files that are shown to it."""
        return Destination(self.address(), self.ca, self.cert, self.key, self.token_file)

    def client(self, *, timeout: float | None = None) -> Client:
        """Returns a new client, to be closed by the caller.

        Raises:
            click.UsageError: The address is malformed, or a file can't be read.
        """
        seconds = timeout or self.timeout
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
        return make_printer(self.output)


pass_settings = click.make_pass_decorator(Settings, ensure=True)


def parse_timeout(value: str) -> float:
    """Returns the seconds; raises ValueError unless 0 < value <= MAX_TIMEOUT."""
    seconds = float(value)
    if not 0 < seconds <= MAX_TIMEOUT:
        raise ValueError(f"{value} is not a number of seconds above 0, up to {MAX_TIMEOUT:g}")
    return seconds


def parse_server(value: str) -> str:
    """Returns the address as it is; raises ValueError unless it is one."""
    target_of(value)
    return value


def checked(parse: Callable[[str], T]) -> Callable[..., T | None]:
    """Makes an option's callback of a function that raises ValueError for bad text."""

    def callback(ctx: click.Context, param: click.Parameter, value: str | None) -> T | None:
        try:
            return None if value is None else parse(value)
        except ValueError as error:
            raise click.BadParameter(str(error), ctx, param) from error

    return callback


def global_options(*, from_environment: bool) -> list[click.Parameter]:
    """Returns the options; those of the root alone look at the environment."""

    def option(
        *names: str, envvar: str, parse: Callable[[str], object], **more: Any
    ) -> click.Option:
        return click.Option(
            names,
            envvar=envvar if from_environment else None,
            show_envvar=from_environment,
            expose_value=False,
            is_eager=True,
            callback=_remembering(parse),
            **more,
        )

    return [
        option(
            "--server",
            envvar=SERVER_ENV,
            parse=parse_server,
            metavar="ADDRESS",
            help="The daemon: unix:PATH or tls://HOST:PORT.  "
            "[default: its socket in the run directory]",
        ),
        option(
            "--ca",
            envvar=CA_ENV,
            parse=Path,
            metavar="FILE",
            help="Who has signed the daemon's certificate, PEM.  [default: the system's]",
        ),
        option(
            "--cert",
            envvar=CERT_ENV,
            parse=Path,
            metavar="FILE",
            help="Your certificate, PEM, for TLS.",
        ),
        option("--key", envvar=KEY_ENV, parse=Path, metavar="FILE", help="Its private key, PEM."),
        option(
            "--token-file",
            envvar=TOKEN_FILE_ENV,
            parse=Path,
            metavar="FILE",
            help="A bearer token, sent over TLS alone.",
        ),
        option(
            "--timeout",
            envvar="HOTWIRE_TIMEOUT",
            parse=parse_timeout,
            metavar="SECONDS",
            help=f"The seconds a call may take.  [default: {DEFAULT_TIMEOUT:g}]",
        ),
        option(
            "-o",
            "--output",
            envvar="HOTWIRE_OUTPUT",
            parse=str,
            type=click.Choice(FORMATS),
            help="How to print results and errors.  [default: table]",
        ),
    ]


def _remembering(parse: Callable[[str], object]) -> Callable[..., None]:
    parsed = checked(parse)

    def callback(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
        if value is not None and param.name is not None:
            settings = ctx.find_root().ensure_object(Settings)
            setattr(settings, param.name, parsed(ctx, param, value))

    return callback


class Command(click.Command):
    """A command that takes the global options too."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("epilog", "`hotwirectl --help` explains the exit codes.")
        super().__init__(*args, **kwargs)
        self.params.extend(global_options(from_environment=False))


class Group(click.Group):
    """A group whose commands take the global options, as it does itself."""

    command_class = Command
    group_class = type

    def __init__(self, *args: Any, from_environment: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params.extend(global_options(from_environment=from_environment))

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Returns the commands in the order in which they were added."""
        del ctx
        return list(self.commands)
