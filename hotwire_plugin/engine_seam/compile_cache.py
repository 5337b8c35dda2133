"""vLLM's compile cache does not know that a plugin changes the graph: its key must."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from types import ModuleType
from typing import Any

from hotwire_plugin import __version__
from hotwire_plugin.engine_seam.patch import replace
from hotwire_plugin.op import SCHEMA
from hotwire_plugin.process import process
from hotwire_plugin.program import MAX_OPS_PER_LAYER


def install(module: ModuleType) -> None:
    """Salt the key by which compiled graphs are found again."""
    replace(module.VllmConfig, "compute_hash", _salted)


def _salted(inner: Callable[..., str]) -> Callable[..., str]:
    def compute_hash(self: Any, *args: Any, **kwargs: Any) -> str:
        plain = inner(self, *args, **kwargs)
        if process.disarmed_reason:
            return plain
        # Row and slot counts are sizes of graph inputs, and follow from what vLLM hashes itself
        # and from the bank's size.
        settings = process.settings
        sizes = f"{MAX_OPS_PER_LAYER}/{settings.bank_bytes}/{','.join(settings.sites)}"
        salt = f"{__version__}/{SCHEMA}/{sizes}"
        return hashlib.sha256(f"{plain}{salt}".encode()).hexdigest()[: len(plain)]

    return compute_hash
