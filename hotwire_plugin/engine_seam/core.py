"""Admission: where a request's specification becomes a program, before its blocks are hashed."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from types import ModuleType
from typing import Any

from hotwire_plugin.admission import Prompt
from hotwire_plugin.armed import first_reason, shape_of
from hotwire_plugin.engine_role import EngineRole
from hotwire_plugin.engine_seam import sessions
from hotwire_plugin.engine_seam.identity import counts_generated, identity_of
from hotwire_plugin.engine_seam.patch import replace
from hotwire_plugin.engine_seam.prompt import prompt_of, special_tokens_of
from hotwire_plugin.engine_seam.step_message import (
    PROMPT_LEN_KEY,
    asked_prompt_len,
    with_prompt_len,
)
from hotwire_plugin.engine_seam.worker import armed_of
from hotwire_plugin.process import process


def install(module: ModuleType) -> None:
    """Take the engine role once the workers are up, and admit every request."""
    replace(module.EngineCore, "_initialize_kv_caches", _then_become_engine)
    replace(module.EngineCore, "preprocess_add_request", _admitted)


def _then_become_engine(inner: Callable[..., Any]) -> Callable[..., Any]:
    def _initialize_kv_caches(self: Any, vllm_config: Any, *args: Any, **kwargs: Any) -> Any:
        # By now the workers have been started, so a gRPC server cannot be forked into them.
        result = inner(self, vllm_config, *args, **kwargs)
        workers = self.model_executor.collective_rpc(armed_of)
        identity = identity_of(vllm_config)
        shape = shape_of(identity.num_layers, workers)
        shape = dataclasses.replace(shape, counts_generated=counts_generated(vllm_config))
        special = special_tokens_of(vllm_config)
        process.become_engine(identity, first_reason(workers), shape, special)
        return result

    return _initialize_kv_caches


def _admitted(inner: Callable[..., Any]) -> Callable[..., Any]:
    def preprocess_add_request(self: Any, request: Any) -> Any:
        params, engine = request.sampling_params, process.engine
        if params is None or engine is None:
            return inner(self, request)
        # A core in its caller's process gets the caller's object, which the choices of one
        # request share: what is written into it would be read as theirs.
        request.sampling_params = own = copy.copy(params)
        if later := sessions.is_later_chunk(request):
            own.extra_args = sessions.admit(engine, request)
        else:
            own.extra_args = _admit(engine, request, params.extra_args)
        try:
            return inner(self, request)
        except Exception:
            # vLLM refuses it: the scheduler will never say that it ended.
            _forget(engine, request, later=later)
            raise

    return preprocess_add_request


def _admit(engine: EngineRole, request: Any, extra_args: Any) -> dict[str, object] | None:
    whole = prompt_of(request)
    length = asked_prompt_len(extra_args, whole.length)
    prompt = Prompt(length, (whole.tokens or ())[:length])
    # Each step of a beam search is a request with an id of its own: drawn by those, one search
    # would mix both revisions.
    drawn_by = "" if PROMPT_LEN_KEY in (extra_args or {}) else None
    granted = engine.admit(extra_args, request.request_id, prompt, drawn_by)
    return with_prompt_len(granted, length)


def _forget(engine: EngineRole, request: Any, *, later: bool) -> None:
    if later:
        sessions.refuse(engine, request)
    else:
        sessions.close(engine, request.request_id)
        engine.finish(request.request_id)
