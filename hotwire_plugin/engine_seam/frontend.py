"""The API server: refuses a strict request whose steering cannot be honoured, early and kindly."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from types import ModuleType
from typing import Any

from hotwire_plugin import http
from hotwire_plugin.armed import assumed_shape
from hotwire_plugin.engine_seam import beams
from hotwire_plugin.engine_seam.identity import counts_generated, identity_of, streams_of
from hotwire_plugin.engine_seam.patch import replace, resolve
from hotwire_plugin.engine_seam.prompt import prompt_of, special_tokens_of
from hotwire_plugin.process import process


def install_refusals(module: ModuleType) -> None:
    """Check each request where its parameters are checked."""
    replace(module.InputProcessor, "process_inputs", _checked)


def install_async(module: ModuleType) -> None:
    """Take the frontend role in a process that serves HTTP."""
    replace(module.AsyncLLM, "__init__", _then_become_frontend)


def install_sync(module: ModuleType) -> None:
    """Take the frontend role in a process that uses ``LLM``."""
    replace(module.LLMEngine, "__init__", _then_become_frontend)


def _then_become_frontend(inner: Callable[..., None]) -> Callable[..., None]:
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        # By now the engine's processes have been started.
        inner(self, *args, **kwargs)
        config = self.vllm_config
        rank = max(config.parallel_config._api_process_rank, 0)  # noqa: SLF001
        identity = identity_of(config, tp_rank=rank)
        streams = streams_of(config.model_config)
        shape = assumed_shape(identity.num_layers, streams, process.settings.sites)
        shape = dataclasses.replace(shape, counts_generated=counts_generated(config))
        process.become_frontend(identity, shape, special_tokens_of(config))

    return __init__


def _checked(inner: Callable[..., Any]) -> Callable[..., Any]:
    from vllm import exceptions

    refused = resolve(exceptions, "VLLMValidationError")

    def process_inputs(
        self: Any, request_id: str, prompt: Any, params: Any, *args: Any, **kwargs: Any
    ) -> Any:
        params = beams.asked(prompt, params)
        # Its own checks go first, and the prompt has been made into tokens after them.
        request = inner(self, request_id, prompt, params, *args, **kwargs)
        frontend, extra_args = process.frontend, getattr(params, "extra_args", None)
        if frontend is None:
            return request
        asked = prompt_of(request)
        http.note(lambda: frontend.foresee(extra_args, asked))
        refusal = frontend.refuse(extra_args, asked)
        if refusal is not None:
            raise refused(f"hotwire: {refusal.reason}: {refusal.message}", parameter="vllm_xargs")
        return request

    return process_inputs
