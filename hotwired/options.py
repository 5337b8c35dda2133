"""The daemon's flags, each with its environment variable, and the settings that they stand for."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from hotwired import log
from hotwired.config_file import InForce, Override, load

_F = TypeVar("_F", bound=Callable[..., Any])

_FLAGS: dict[str, tuple[str, Callable[[Any], object]]] = {
    "run_dir": ("daemon.run_dir", lambda path: str(path.absolute())),
    "state_dir": ("daemon.state_dir", lambda path: str(path.absolute())),
    "listen": ("unix.listen", str),
    "log_level": ("daemon.log_level", str),
    "log_file": ("daemon.log_file", lambda path: str(path.absolute())),
    "metrics_listen": ("metrics.listen", str),
    "max_vector_mib": ("limits.max_vector_bytes", lambda mib: mib << 20),
    "upload_stall_seconds": ("limits.stall_seconds", float),
    "tcp_listen": ("tcp.listen", str),
}
"""The setting of each parameter, and what makes of its value what TOML would hold."""

_PLACE = click.Path(path_type=Path)

config_option = click.option(
    "--config",
    envvar="HOTWIRED_CONFIG",
    type=_PLACE,
    help="A TOML file with settings; docs/hotwired.toml has all of them.",
)

_OPTIONS = (
    click.option(
        "--run-dir",
        envvar="HOTWIRED_RUN_DIR",
        type=_PLACE,
        help="Where vLLM's processes put their sockets.  "
        "[default: $HOTWIRE_RUN_DIR, else $XDG_RUNTIME_DIR/hotwire, else /tmp/hotwire-<uid>]",
    ),
    click.option(
        "--state-dir",
        envvar="HOTWIRED_STATE_DIR",
        type=_PLACE,
        help="Where registry and vectors are kept.  "
        "[default: $XDG_STATE_HOME/hotwired, else ~/.local/state/hotwired]",
    ),
    click.option(
        "--listen",
        envvar="HOTWIRED_LISTEN",
        help="Where to listen, unix:PATH.  [default: unix:<run dir>/hotwired.sock]",
    ),
    click.option(
        "--tcp-listen",
        envvar="HOTWIRED_TCP_LISTEN",
        metavar="HOST:PORT",
        help="Where to listen on TCP too; certificates must be in the file.  [default: nowhere]",
    ),
    click.option(
        "--log-level",
        envvar="HOTWIRED_LOG_LEVEL",
        type=click.Choice(log.LEVELS, case_sensitive=False),
        help="The least level that is logged.  [default: info]",
    ),
    click.option(
        "--log-file",
        envvar="HOTWIRED_LOG_FILE",
        type=click.Path(path_type=Path, dir_okay=False),
        help="Where the log goes; opened anew on SIGHUP and when it was renamed.  "
        "[default: stdout]",
    ),
    click.option(
        "--metrics-listen",
        envvar="HOTWIRED_METRICS_LISTEN",
        help="Where to serve metrics for Prometheus: 127.0.0.1:PORT, [::1]:PORT or unix:PATH.  "
        "[default: nowhere]",
    ),
    click.option(
        "--max-vector-mib",
        envvar="HOTWIRED_MAX_VECTOR_MIB",
        type=click.IntRange(1, 4096),
        help="The largest file that may be registered, in MiB.  [default: 256]",
    ),
    click.option(
        "--upload-stall-seconds",
        envvar="HOTWIRED_UPLOAD_STALL_SECONDS",
        type=click.FloatRange(0.1, 3600),
        help="How long the next message of an upload may take.  [default: 10]",
    ),
)


def setting_options(command: _F) -> _F:
    """Gives a command the flags."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def in_force(path: Path | None) -> InForce:
    """Returns what is in force with a file and the flags and variables of the current command.

    Raises ConfigInvalid.
    """
    context = click.get_current_context()
    overrides = {}
    for parameter, (key, convert) in _FLAGS.items():
        value = context.params.get(parameter)
        if value is not None:
            overrides[key] = Override(convert(value), _origin(context, parameter))
    return load(path, overrides)


def _origin(context: click.Context, parameter: str) -> str:
    name = parameter.upper()
    if context.get_parameter_source(parameter) is ParameterSource.ENVIRONMENT:
        return f"HOTWIRED_{name}"
    return f"--{parameter.replace('_', '-')}"
