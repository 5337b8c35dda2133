"""What every command has: options that go before and after its name, formats, an example."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from hotwire_client.address import SERVER_ENV
from hotwire_client.connection import DEFAULT_TIMEOUT
from hotwire_client.destination import CA_ENV, CERT_ENV, KEY_ENV, TOKEN_FILE_ENV
from hotwirectl import help_text
from hotwirectl.config.model import check_name
from hotwirectl.names import complete_context
from hotwirectl.near import Choice
from hotwirectl.precedence import DEFAULT_OUTPUT, Settings
from hotwirectl.values import FORMATS, parse_server, parse_timeout

__all__ = [
    "NO_NAMES",
    "RESOURCES",
    "Command",
    "Group",
    "Settings",
    "checked",
    "global_options",
    "pass_settings",
]

#: The formats of a command that prints resources, or what became of one.
RESOURCES = FORMATS
#: The formats of a command that prints anything else.
NO_NAMES = tuple(name for name in FORMATS if name != "name")

_EPILOG = "`hotwirectl --help` explains the exit codes."

T = TypeVar("T")

pass_settings = click.make_pass_decorator(Settings, ensure=True)


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
            "--context",
            envvar="HOTWIRE_CONTEXT",
            parse=check_name,
            metavar="NAME",
            shell_complete=complete_context,
            help="The context to go by; see `hotwirectl context`.  [default: the one in use]",
        ),
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
            type=Choice(FORMATS),
            help=f"How to print results and errors.  [default: {DEFAULT_OUTPUT}]",
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
    """A command that takes the global options too.

    Args:
        example: A line that shows how it is used.
        formats: The output formats it can print in; those of `NO_NAMES` if not given.
        global_options: False for one whose own options have the same names.
    """

    def __init__(
        self,
        *args: Any,
        example: str = "",
        formats: Sequence[str] = NO_NAMES,
        global_options: bool = True,
        **kwargs: Any,
    ) -> None:
        kwargs.setdefault("epilog", help_text.epilog(example, _EPILOG))
        super().__init__(*args, **kwargs)
        self.example = example
        self._formats = formats
        self._own = tuple(self.params)
        if global_options:
            self.params.extend(_global_options(from_environment=False))

    def invoke(self, ctx: click.Context) -> Any:
        """Runs the command, unless it cannot print in the format that is asked for.

        Raises:
            click.UsageError: It cannot.
        """
        settings = ctx.find_root().ensure_object(Settings)
        if self._formats and (wanted := settings.format()) not in self._formats:
            by = "" if settings.output else f" (of the context {settings.in_force.name!r})"
            raise click.UsageError(
                f"{ctx.info_name} cannot print as {wanted}{by}; it can as "
                + ", ".join(self._formats),
                ctx,
            )
        return super().invoke(ctx)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes its own options apart from those of all commands."""
        help_text.write_options(formatter, ctx, self._own)


# A parameter of Command has the function's name.
_global_options = global_options


class Group(click.Group):
    """A group whose commands take the global options, as it does itself."""

    command_class = Command
    group_class = type

    def __init__(self, *args: Any, from_environment: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params.extend(global_options(from_environment=from_environment))
        self._sections: dict[str, list[str]] = {}

    def add_section(self, title: str, *commands: click.Command) -> None:
        """Adds commands that the help shows under a title."""
        for command in commands:
            self.add_command(command)
            self._sections.setdefault(title, []).append(str(command.name))

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Returns the commands in the order in which they were added."""
        del ctx
        return list(self.commands)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the commands, section by section if there are any."""
        if self._sections:
            help_text.write_commands(formatter, self.commands, self._sections)
        else:
            super().format_commands(ctx, formatter)
