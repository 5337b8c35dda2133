"""Beam search over HTTP: each step of a beam is a request, whose prompt is the beam so far.

vLLM's BeamSearchParams drop what was asked for. So the specification rides on the prompt, with the
length of the prompt it was asked for: what a beam has generated is steered as generated.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from types import ModuleType
from typing import Any

from hotwire_plugin.engine_seam.patch import replace
from hotwire_plugin.engine_seam.step_message import PROMPT_LEN_KEY
from hotwire_plugin.program import SPEC_KEY

_MARK = "hotwired_asked"


def install_params(module: ModuleType) -> None:
    """Keep what a request asks for when it is turned into parameters of a beam search."""
    for name in ("CompletionRequest", "ChatCompletionRequest"):
        if hasattr(module, name):
            replace(getattr(module, name), "to_beam_search_params", _asking)


def install_search(module: ModuleType) -> None:
    """Let the prompt of a beam search carry what was asked for."""
    replace(module.BeamSearchOnlineMixin, "beam_search", _marking)


def install_beams(module: ModuleType) -> None:
    """Let the prompt of each step carry it on."""
    replace(module.BeamSearchSequence, "get_prompt", _carrying)


def asked(prompt: Any, params: Any) -> Any:
    """Return a step's parameters with what its beam search was asked for; others as they are."""
    mark = prompt.get(_MARK) if isinstance(prompt, dict) else None
    extra_args = getattr(params, "extra_args", None) or {}
    if mark is None and PROMPT_LEN_KEY not in extra_args:
        return params
    # A client that could say where its prompt ends could slip out of what the policy steers.
    kept = {key: value for key, value in extra_args.items() if key != PROMPT_LEN_KEY}
    own = copy.copy(params)
    own.extra_args = {**kept, **(mark or {})} or None
    return own


def _asking(inner: Callable[..., Any]) -> Callable[..., Any]:
    def to_beam_search_params(self: Any, *args: Any, **kwargs: Any) -> Any:
        params = inner(self, *args, **kwargs)
        spec = (self.vllm_xargs or {}).get(SPEC_KEY)
        if spec is not None:
            setattr(params, _MARK, spec)
        return params

    return to_beam_search_params


def _marking(inner: Callable[..., Any]) -> Callable[..., Any]:
    def beam_search(
        self: Any, prompt: Any, request_id: str, params: Any, *args: Any, **kwargs: Any
    ) -> Any:
        spec = getattr(params, _MARK, None)
        if spec is not None:
            prompt = {**prompt, _MARK: spec}
        return inner(self, prompt, request_id, params, *args, **kwargs)

    return beam_search


def _carrying(inner: Callable[..., Any]) -> Callable[..., Any]:
    def get_prompt(self: Any) -> Any:
        prompt, original = inner(self), self.orig_prompt
        if _MARK in original:
            tokens = original.get("decoder_prompt", original)["prompt_token_ids"]
            prompt[_MARK] = {SPEC_KEY: original[_MARK], PROMPT_LEN_KEY: len(tokens)}
        return prompt

    return get_prompt
