"""Steering is part of what a key-value block holds, so it is part of the block's hash."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from hotwire_plugin.engine_seam.patch import replace
from hotwire_plugin.process import process


def install(module: ModuleType) -> None:
    """Add steering to the extra keys of block hashes, wherever the function is known by name."""
    replace(module, "generate_block_hash_extra_keys", _with_steering)


def _with_steering(inner: Callable[..., Any]) -> Callable[..., Any]:
    def generate_block_hash_extra_keys(
        request: Any, start_token_idx: int, end_token_idx: int, start_mm_idx: int
    ) -> tuple[tuple[Any, ...] | None, int]:
        keys, next_mm_idx = inner(request, start_token_idx, end_token_idx, start_mm_idx)
        engine = process.engine
        key = None
        if engine is not None:
            key = engine.block_key(request.request_id, start_token_idx, end_token_idx)
        if key is None:
            return keys, next_mm_idx
        return (*(keys or ()), ("hotwired", key)), next_mm_idx

    return generate_block_hash_extra_keys
