"""Replacing a method of vLLM by one that calls it, once its module is there."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from types import ModuleType
from typing import Any

import wrapt

from hotwire_plugin.log import named
from hotwire_plugin.process import process

logger = logging.getLogger("hotwire_plugin.engine_seam")

MARK = "_hotwired_inner"


class SeamMoved(RuntimeError):
    """This vLLM lacks a name that a seam needs."""


def resolve(owner: Any, name: str) -> Any:
    """Return ``owner.name``.

    Raises:
        SeamMoved: there is no such name.
    """
    found = getattr(owner, name, None)
    if found is None:
        where = getattr(owner, "__qualname__", getattr(owner, "__name__", repr(owner)))
        raise SeamMoved(f"{where}.{name} is not in this vLLM")
    return found


Make = Callable[[Callable[..., Any]], Callable[..., Any]]
"""Makes the outer function from the inner one."""


def replace(owner: Any, name: str, make: Make) -> None:
    """Replace ``owner.name`` by ``make(it)``, unless that was done already.

    Raises:
        SeamMoved: there is no such name.
    """
    inner = resolve(owner, name)
    if not hasattr(inner, MARK):
        outer = functools.wraps(inner)(make(inner))
        setattr(outer, MARK, inner)
        setattr(owner, name, outer)


def when_imported(module: str, install: Callable[[ModuleType], None]) -> None:
    """Run ``install`` once ``module`` is imported: now, if it is already."""

    def guarded(loaded: ModuleType) -> None:
        try:
            install(loaded)
        except Exception as error:
            process.disarm(f"{module}: {error}")
            logger.exception(
                "hotwired is disarmed, vLLM serves on unsteered",
                extra=named("disarmed", error=f"{module}: {error}"),
            )

    wrapt.register_post_import_hook(guarded, module)
