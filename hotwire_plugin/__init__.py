"""Per-request activation steering inside an unmodified vLLM.

vLLM calls :func:`register` in each of its processes, by the entry point ``hotwire_plugin`` of
``vllm.general_plugins``. Each process then takes the roles it plays: frontend, engine, worker.
"""

from __future__ import annotations

import logging

__version__ = "0.1.0"

logger = logging.getLogger("hotwire_plugin")


def register() -> None:
    """Install the seams. Cheap, idempotent, and never raises: vLLM serves on whatever happens."""
    try:
        from hotwire_plugin.engine_seam.install import install_all
        from hotwire_plugin.process import process

        if process.registered:
            return
        process.registered = True
        install_all()
    except Exception:
        logger.exception(
            "hotwired is disarmed, vLLM serves on unsteered: register() failed",
            extra={"event": "disarmed"},
        )
