"""A request's prompt, and which of the tokenizer's tokens are special."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

from hotwire_plugin.admission import Prompt


def prompt_of(request: Any) -> Prompt:
    """Return the prompt of an EngineCoreRequest."""
    tokens, embeddings = request.prompt_token_ids, getattr(request, "prompt_embeds", None)
    if tokens is None and embeddings is not None:
        return Prompt(len(embeddings))
    return Prompt(len(tokens or ()), tokens or ())


def special_tokens_of(vllm_config: Any) -> Callable[[], frozenset[int] | None]:
    """Return what returns the special tokens' ids, or None where vLLM goes without a tokenizer.

    The tokenizer is loaded at the first call.
    """
    return cache(partial(_special_tokens, vllm_config.model_config))


def _special_tokens(model_config: Any) -> frozenset[int] | None:
    if model_config.skip_tokenizer_init:
        return None
    from vllm.tokenizers import cached_tokenizer_from_config

    return frozenset(cached_tokenizer_from_config(model_config).all_special_ids)
