"""The scheduler's message is the only thing all ranks see in one order: it carries the stamp."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from hotwire_plugin.engine_role import EngineRole
from hotwire_plugin.engine_seam import sessions
from hotwire_plugin.engine_seam.patch import replace
from hotwire_plugin.engine_seam.step_message import put_stamp
from hotwire_plugin.process import process


def install(module: ModuleType) -> None:
    """Stamp each schedule, and follow requests from the queue to their end."""
    replace(module.Scheduler, "schedule", _stamped)
    replace(module.Scheduler, "add_request", _followed)
    replace(module.Scheduler, "_update_request_as_session", _continued)
    replace(module.Scheduler, "_free_request", _forgotten)


def _stamped(inner: Callable[..., Any]) -> Callable[..., Any]:
    def schedule(self: Any, *args: Any, **kwargs: Any) -> Any:
        engine = process.engine
        if engine is None:
            return inner(self, *args, **kwargs)
        stamp, holds_back = engine.stamp()
        if holds_back:
            for request in self.requests.values():
                _seclude(engine, request)
        output = inner(self, *args, **kwargs)
        put_stamp(output, stamp)
        return output

    return schedule


def _followed(inner: Callable[..., Any]) -> Callable[..., Any]:
    def add_request(self: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
        # Admitted just before a switch, it is held back from its first step on.
        if process.engine is not None:
            _seclude(process.engine, request)
        return inner(self, request, *args, **kwargs)

    return add_request


def _continued(inner: Callable[..., Any]) -> Callable[..., Any]:
    def _update_request_as_session(self: Any, session: Any, update: Any) -> Any:
        if process.engine is not None:
            sessions.go_on(process.engine, session, update)
        return inner(self, session, update)

    return _update_request_as_session


def _forgotten(inner: Callable[..., Any]) -> Callable[..., Any]:
    def _free_request(self: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
        if process.engine is not None:
            sessions.close(process.engine, request.request_id)
            process.engine.finish(request.request_id, _computed(request))
        return inner(self, request, *args, **kwargs)

    return _free_request


def _computed(request: Any) -> int:
    """Return how many positions of a request were computed, and kept, when it ends."""
    if request.num_output_tokens > 0:
        # All but the token sampled last. The scheduler's own count may be ahead, by tokens of a
        # step whose result nobody waits for, or 0 after a preemption.
        return int(request.num_tokens) - 1
    return min(int(request.num_computed_tokens), int(request.num_tokens))


def _seclude(engine: EngineRole, request: Any) -> None:
    # Blocks already in the cache keep the hash they were stored under; those still to come, and
    # all of them after a preemption, get one that no other request can ask for.
    if engine.seclude(request.request_id):
        request.block_hashes.clear()
        request.update_block_hashes()
