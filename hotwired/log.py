"""The daemon's log: JSON lines on stdout or in a file, or for people if stdout is a terminal.

docs/logs.md has each event and its fields. Of an RPC: method, code, reason, duration_ms, peer,
caller, vector, generation, trace_id, span_id. Never a vector's bytes, never a request's text.
"""

import contextlib
import logging
import os
import sys
from pathlib import Path
from typing import TextIO

import structlog
from structlog.typing import EventDict, Processor

from hotwired import log_lines
from hotwired.log_file import LogFile

LEVELS = ("debug", "info", "warning", "error")
LOGGER = "hotwired"

_files: list[LogFile] = []


class _Lines:
    """Prints lines, and goes on if it can't: a full disk must not fail an RPC."""

    def __init__(self, stream: TextIO | LogFile) -> None:
        self._stream = stream

    def write(self, text: str) -> None:
        """Writes a text and flushes it."""
        with contextlib.suppress(OSError, ValueError):
            self._stream.write(text)
            self._stream.flush()

    def flush(self) -> None:
        """Does nothing: each line is flushed."""

    def msg(self, line: str) -> None:
        """Prints a line."""
        self.write(line + "\n")

    log = debug = info = warn = warning = error = critical = exception = fatal = msg


def configure(level: str, file: Path | None = None) -> None:
    """Sets up the log of this process. level: one of LEVELS. file: instead of stdout.

    Raises OSError if the file can't be opened.
    """
    terminal = file is None and sys.stdout.isatty()
    for_people: list[Processor] = [log_lines.escaped] if terminal else []
    renderer = _for_terminals() if terminal else structlog.processors.JSONRenderer()
    if file is not None:
        _files[:] = [LogFile(file)]
    lines = _Lines(_files[0] if file is not None else sys.stdout)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            *log_lines.stamps(),
            _with_logger,
            structlog.processors.format_exc_info,
            *for_people,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=lambda *_: lines,
        cache_logger_on_first_use=True,
    )
    # What the libraries say: gRPC's own logger reports, for one, exceptions in its callbacks.
    handler = logging.StreamHandler(lines)
    handler.setFormatter(log_lines.formatter(renderer, for_people))
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)


def reopen() -> None:
    """Opens the log's file anew, if there is one."""
    for file in _files:
        file.reopen()


def get() -> structlog.typing.FilteringBoundLogger:
    """Returns the logger."""
    logger: structlog.typing.FilteringBoundLogger = structlog.get_logger()
    return logger


def _for_terminals() -> structlog.dev.ConsoleRenderer:
    return structlog.dev.ConsoleRenderer(
        colors=not os.environ.get("NO_COLOR"), exception_formatter=structlog.dev.plain_traceback
    )


def _with_logger(_logger: object, _method: str, line: EventDict) -> EventDict:
    line["logger"] = LOGGER
    return line
