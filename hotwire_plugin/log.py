"""The plugin's own log lines inside vLLM's processes: JSON on standard error."""

from __future__ import annotations

import logging
import sys

import structlog

LOGGER = "hotwire_plugin"


def set_up_logging() -> None:
    """Give the plugin's logger a handler, unless whoever runs vLLM gave it one.

    vLLM configures its own logger only, so without this every line below a warning is lost. The
    process's structlog and root logger stay as they are.
    """
    logger = logging.getLogger(LOGGER)
    if logger.handlers or logging.getLogger().handlers:
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.format_exc_info,
                structlog.processors.JSONRenderer(),
            ],
            foreign_pre_chain=[
                structlog.stdlib.add_logger_name,
                structlog.stdlib.add_log_level,
                structlog.stdlib.ExtraAdder(),
                structlog.processors.TimeStamper(fmt="iso", utc=True),
                structlog.processors.CallsiteParameterAdder(
                    {structlog.processors.CallsiteParameter.PROCESS}
                ),
            ],
        )
    )
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
