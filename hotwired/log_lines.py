"""What every line of a log of ours has, the daemon's and the plugin's: docs/logs.md, as code.

Keys of all lines: timestamp (ISO-8601, UTC), level, event, logger, pid. A library's text, and the
sentence that the plugin says to people, is `message`; a traceback is `exception`.
"""

import logging
import os
from collections.abc import Sequence

import structlog
from structlog.typing import EventDict, Processor

LIBRARY_EVENT = "library message"
"""The event of lines that are a library's."""

_EVENT = "event"
_OF_LINES = frozenset({"exception", "stack"})


def stamps() -> list[Processor]:
    """Returns what puts timestamp, level and pid on a line of structlog's own."""
    return [structlog.processors.add_log_level, *_stamps()]


def formatter(
    renderer: Processor, before: Sequence[Processor] = ()
) -> structlog.stdlib.ProcessorFormatter:
    """Returns a formatter that makes records of the standard library lines as all others.

    before: what is done to a line before it is rendered.
    """
    return structlog.stdlib.ProcessorFormatter(
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.processors.format_exc_info,
            *before,
            renderer,
        ],
        foreign_pre_chain=[
            structlog.stdlib.add_logger_name,
            structlog.stdlib.add_log_level,
            _told,
            *_stamps(),
        ],
    )


def escaped(_logger: object, _method: str, line: EventDict) -> EventDict:
    """Makes every text of a line printable, so that no name moves a terminal's cursor."""
    return {key: _printable(value, lines=key in _OF_LINES) for key, value in line.items()}


def _stamps() -> list[Processor]:
    return [structlog.processors.TimeStamper(fmt="iso", utc=True), _with_pid]


def _with_pid(_logger: object, _method: str, line: EventDict) -> EventDict:
    line["pid"] = os.getpid()
    return line


def _told(_logger: object, _method: str, line: EventDict) -> EventDict:
    """Names the event: what the record's `extra` calls it. Its text becomes the message."""
    record = line["_record"]
    line["message"] = line[_EVENT]
    # A library's own fields are not of our schema.
    line[_EVENT] = LIBRARY_EVENT
    if hasattr(record, _EVENT):
        line.update({key: value for key, value in vars(record).items() if key not in _STANDARD})
    return line


_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def _printable(value: object, *, lines: bool) -> object:
    if not isinstance(value, str) or value.isprintable():
        return value
    kept = "\n" if lines else ""
    return "".join(c if c.isprintable() or c == kept else ascii(c)[1:-1] for c in value)
