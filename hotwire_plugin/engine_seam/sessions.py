"""Sessions: requests whose input comes in chunks, each with parameters of its own.

vLLM sends each chunk as a request of the session's id, keeps it in a queue while an earlier one
runs, and goes on with its parameters from then on. What had been generated is prompt from then on.
"""

from __future__ import annotations

from collections import deque
from itertools import count
from typing import Any

from hotwire_plugin.admission import Prompt, stripped
from hotwire_plugin.engine_role import EngineRole
from hotwire_plugin.engine_seam.step_message import with_prompt_len
from hotwire_plugin.program import PROGRAM_KEY

_chunks: dict[str, deque[str]] = {}
"""By session: what the chunk in force was admitted as, then the chunks in the queue."""

_numbers = count(1)


def is_later_chunk(request: Any) -> bool:
    """Whether a request continues a session, or closes it; the first chunk opens one."""
    if request.request_id in _chunks:
        return True
    if request.resumable:
        _chunks[request.request_id] = deque([request.request_id])
    return False


def admit(engine: EngineRole, request: Any) -> dict[str, object] | None:
    """Admit a later chunk, which leaves the one in force alone; one that only closes asks nothing.

    Should the session be aborted meanwhile, vLLM runs the chunk as a request of its own.
    """
    asked: dict[str, object] | None = request.sampling_params.extra_args
    if not request.resumable:
        return with_prompt_len(stripped(asked), None)
    name = f"{request.request_id}/{next(_numbers)}"
    _chunks[request.request_id].append(name)
    prompt = Prompt(tokens=None)
    granted = engine.admission.admit(asked, name, prompt, drawn_by=request.request_id)
    extra_args = with_prompt_len(granted.extra_args, None)
    if PROGRAM_KEY in (extra_args or {}):
        request.cache_salt = _private(request)
    return extra_args


def refuse(engine: EngineRole, request: Any) -> None:
    """Forget a later chunk that vLLM refuses; the session runs on."""
    if request.resumable and (chunks := _chunks.get(request.request_id)):
        engine.admission.finish(chunks.pop())


def go_on(engine: EngineRole, session: Any, update: Any) -> None:
    """Put the next chunk in force, and let nobody else read what a steered session writes now.

    Blocks already written stay in the cache under the hash of what they hold. Those to come, and
    all of them after a preemption, depend on where the chunks met, which no program tells.
    """
    if chunks := _chunks.get(session.request_id):
        engine.admission.finish(chunks.popleft())
    if _has_program(session) or _has_program(update):
        session.cache_salt = _private(session)
        session.block_hashes.clear()


def close(engine: EngineRole, request_id: str) -> None:
    """Forget a session that ended; other requests are ignored."""
    for chunk in _chunks.pop(request_id, ()):
        engine.admission.finish(chunk)


def _has_program(holder: Any) -> bool:
    params = holder.sampling_params
    return params is not None and PROGRAM_KEY in (params.extra_args or {})


def _private(request: Any) -> str:
    own, salt = f"hotwired/{request.request_id}", request.cache_salt or ""
    return salt if salt.endswith(own) else salt + own
