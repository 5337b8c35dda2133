"""The command `hotwired`: flags over HOTWIRED_* variables over the file over defaults."""

import asyncio
import contextlib
import platform
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import grpc

from hotwired import __version__, config_text, log, state_commands, tracing
from hotwired.errors import ConfigInvalid, HotwireError
from hotwired.options import config_option, in_force, setting_options
from hotwired.server import serve as run_daemon


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Keep steering vectors and policy, and carry them to running vLLM engines."""


@main.command()
@config_option
@setting_options
def serve(*, config: Path | None, **_flags: Any) -> None:
    """Run the daemon until SIGTERM or SIGINT.

    Each option has an environment variable: HOTWIRED_ and its name in upper case.
    """
    with _explained():
        found = in_force(config).config
    level, file = found.daemon.log_level, found.daemon.log_file
    log.configure(level)
    try:
        if file is not None:
            log.configure(level, file)
        with tracing.configured(found.socket):
            asyncio.run(run_daemon(found))
    except HotwireError as exc:
        log.get().error("not started", reason=exc.reason, error=exc.message)
        click.echo(f"hotwired: {exc.reason}: {exc.message}", err=True)
        sys.exit(1)
    except OSError as exc:
        log.get().error("not started", reason="OS_ERROR", error=str(exc))
        click.echo(f"hotwired: {exc}", err=True)
        sys.exit(1)


@main.group("config")
def config_group() -> None:
    """Look at the configuration without starting anything."""


@config_group.command()
@click.argument("file", type=click.Path(path_type=Path))
@setting_options
def check(*, file: Path, **_flags: Any) -> None:
    """Print what is in force with a file, and exit with 0; or all its problems, and 2.

    Each setting is followed by where it came from: default, file, a variable or a flag.
    """
    with _explained():
        click.echo(config_text.in_force(in_force(file)), nl=False)


@config_group.command()
@config_option
@setting_options
def show(*, config: Path | None, **_flags: Any) -> None:
    """Print what `hotwired serve` would run with, given the same options and variables."""
    with _explained():
        click.echo(config_text.in_force(in_force(config)), nl=False)


@config_group.command("sample")
def sample_command() -> None:
    """Print a file with every setting, its default, and what it does."""
    click.echo(config_text.sample(), nl=False)


main.add_command(state_commands.backup)
main.add_command(state_commands.restore)


@main.command()
def version() -> None:
    """Print the versions of hotwired, Python and gRPC."""
    click.echo(
        f"hotwired {__version__} (Python {platform.python_version()}, gRPC {grpc.__version__})"
    )


@contextlib.contextmanager
def _explained() -> Iterator[None]:
    """Ends the process with 2, having said all that is wrong with the configuration."""
    try:
        yield
    except ConfigInvalid as exc:
        click.echo(f"hotwired: {exc.reason}: {exc.message}", err=True)
        for key, problem in exc.violations:
            click.echo(f"  {key}: {problem}", err=True)
        sys.exit(2)


if __name__ == "__main__":
    main()
