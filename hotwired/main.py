"""The command `hotwired`: flags over HOTWIRED_* variables over defaults."""

import asyncio
import platform
import sys
from dataclasses import replace
from pathlib import Path

import click
import grpc

from hotwired import __version__, log, run_dir, tracing
from hotwired.config import Config, Limits, default_state_dir
from hotwired.errors import HotwireError
from hotwired.metrics.listen import parsed
from hotwired.server import serve as run_daemon

MIB = 1 << 20


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Keep steering vectors and policy, and carry them to running vLLM engines."""


@main.command()
@click.option(
    "--run-dir",
    envvar="HOTWIRED_RUN_DIR",
    type=click.Path(path_type=Path),
    help="Where vLLM's processes put their sockets.  "
    "[default: $HOTWIRE_RUN_DIR, else $XDG_RUNTIME_DIR/hotwire, else /tmp/hotwire-<uid>]",
)
@click.option(
    "--state-dir",
    envvar="HOTWIRED_STATE_DIR",
    type=click.Path(path_type=Path),
    help="Where registry and vectors are kept.  "
    "[default: $XDG_STATE_HOME/hotwired, else ~/.local/state/hotwired]",
)
@click.option(
    "--listen",
    envvar="HOTWIRED_LISTEN",
    help="Where to listen, unix:PATH.  [default: unix:<run dir>/hotwired.sock]",
)
@click.option(
    "--log-level",
    envvar="HOTWIRED_LOG_LEVEL",
    type=click.Choice(log.LEVELS, case_sensitive=False),
    default="info",
    show_default=True,
    help="The least level that is logged.",
)
@click.option(
    "--log-file",
    envvar="HOTWIRED_LOG_FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Where the log goes; opened anew on SIGHUP and when it was renamed.  [default: stdout]",
)
@click.option(
    "--metrics-listen",
    envvar="HOTWIRED_METRICS_LISTEN",
    default="",
    help="Where to serve metrics for Prometheus: 127.0.0.1:PORT, [::1]:PORT or unix:PATH.  "
    "[default: nowhere]",
)
@click.option(
    "--max-vector-mib",
    envvar="HOTWIRED_MAX_VECTOR_MIB",
    type=click.IntRange(1, 4096),
    default=256,
    show_default=True,
    help="The largest file that may be registered, in MiB.",
)
@click.option(
    "--upload-stall-seconds",
    envvar="HOTWIRED_UPLOAD_STALL_SECONDS",
    type=click.FloatRange(0.1, 3600),
    default=10.0,
    show_default=True,
    help="How long the next message of an upload may take.",
)
def serve(
    *,
    run_dir: Path | None,
    state_dir: Path | None,
    listen: str | None,
    log_level: str,
    log_file: Path | None,
    metrics_listen: str,
    max_vector_mib: int,
    upload_stall_seconds: float,
) -> None:
    """Run the daemon until SIGTERM or SIGINT.

    Each option has an environment variable: HOTWIRED_ and its name in upper case.
    """
    limits = Limits(
        max_vector_bytes=max_vector_mib * MIB,
        max_uploads_bytes=2 * max_vector_mib * MIB,
        stall_seconds=upload_stall_seconds,
    )
    config = replace(
        _config(run_dir, state_dir, listen, log_level, limits),
        log_file=log_file.absolute() if log_file else None,
        metrics_listen=_metrics_listen(metrics_listen),
    )
    log.configure(log_level)
    try:
        if config.log_file is not None:
            log.configure(log_level, config.log_file)
        with tracing.configured(config.socket):
            asyncio.run(run_daemon(config))
    except HotwireError as exc:
        log.get().error("not started", reason=exc.reason, error=exc.message)
        click.echo(f"hotwired: {exc.reason}: {exc.message}", err=True)
        sys.exit(1)
    except OSError as exc:
        log.get().error("not started", reason="OS_ERROR", error=str(exc))
        click.echo(f"hotwired: {exc}", err=True)
        sys.exit(1)


@main.command()
def version() -> None:
    """Print the versions of hotwired, Python and gRPC."""
    click.echo(
        f"hotwired {__version__} (Python {platform.python_version()}, gRPC {grpc.__version__})"
    )


def _metrics_listen(text: str) -> str:
    try:
        return str(parsed(text)) if text else ""
    except ValueError as exc:
        raise click.BadParameter(str(exc), param_hint="--metrics-listen") from None


def _config(
    run: Path | None, state: Path | None, listen: str | None, log_level: str, limits: Limits
) -> Config:
    run = (run or run_dir.run_dir()).absolute()
    target = listen or f"unix:{run / 'hotwired.sock'}"
    scheme, _, path = target.partition(":")
    if scheme != "unix" or not path:
        raise click.BadParameter(f"{target!r} is not unix:PATH", param_hint="--listen")
    path = path.removeprefix("//")
    return Config(
        run_dir=run,
        state_dir=(state or default_state_dir()).absolute(),
        socket=Path(path).absolute(),
        log_level=log_level,
        limits=limits,
    )


if __name__ == "__main__":
    main()
