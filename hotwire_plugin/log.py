"""The plugin's own log lines inside vLLM's processes: JSON on standard error, see docs/logs.md.

A line's text is a sentence for people, whoever's handler prints it; `named` gives it the event and
the fields that programs go by.
"""

from __future__ import annotations

import logging
import sys
from typing import Any

import structlog

from hotwire_plugin.tracing import with_trace
from hotwired import log_lines

LOGGER = "hotwire_plugin"

_LONGEST = 128


def named(event: str, **fields: object) -> dict[str, Any]:
    """Return the ``extra`` of a log call: what happened, of docs/logs.md, and its fields."""
    return {"event": event, **fields}


def bare(text: str) -> str:
    """Return untrusted text as a field: printable ASCII, cut short, without quotes around it."""
    return ascii(text[:_LONGEST])[1:-1]


def set_up_logging() -> None:
    """Give the plugin's logger a handler, unless whoever runs vLLM gave it one.

    vLLM configures its own logger only, so without this every line below a warning is lost. The
    process's structlog and root logger stay as they are.
    """
    logger = logging.getLogger(LOGGER)
    if logger.handlers or logging.getLogger().handlers:
        return
    handler = logging.StreamHandler(sys.stderr)
    renderer = structlog.processors.JSONRenderer()
    handler.setFormatter(log_lines.formatter(renderer, [with_trace]))
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
