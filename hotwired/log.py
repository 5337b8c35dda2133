"""The daemon's log: JSON lines on stdout, or for people if stdout is a terminal.

Keys: event, level, timestamp (ISO-8601, UTC). Of an RPC: method, code, reason, duration_ms, peer,
caller, vector, generation. Of a node: node. Never a vector's bytes, never a request's text.
"""

import contextlib
import logging
import sys

import structlog

LEVELS = ("debug", "info", "warning", "error")


class _Lines(structlog.PrintLogger):
    """Prints lines, and goes on if it can't: a full disk must not fail an RPC."""

    def msg(self, message: str) -> None:
        """Prints a line."""
        with contextlib.suppress(OSError, ValueError):
            super().msg(message)

    log = debug = info = warn = warning = error = critical = exception = fatal = msg


def configure(level: str) -> None:
    """Sets up the log of this process. level: one of LEVELS."""
    terminal = sys.stdout.isatty()
    renderer: structlog.typing.Processor = (
        structlog.dev.ConsoleRenderer() if terminal else structlog.processors.JSONRenderer()
    )
    exceptions: list[structlog.typing.Processor] = (
        [] if terminal else [structlog.processors.format_exc_info]
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *exceptions,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=lambda *_: _Lines(sys.stdout),
        cache_logger_on_first_use=True,
    )
    # What the libraries say: gRPC's own logger reports, for one, exceptions in its callbacks.
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)


def get() -> structlog.typing.FilteringBoundLogger:
    """Returns the logger."""
    logger: structlog.typing.FilteringBoundLogger = structlog.get_logger()
    return logger
