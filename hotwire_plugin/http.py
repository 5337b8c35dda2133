"""An ASGI middleware that says in an HTTP response's headers whether its request is steered.

    vllm serve ... --middleware hotwire_plugin.http.ReceiptHeaders

What it says is what this frontend decides by the snapshot it has; the engine's word is the receipt.
A stream's headers are sent before its request is looked at, so they say nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, MutableMapping
from contextvars import ContextVar
from typing import Any

from hotwire_plugin.log import named
from hotwire_plugin.receipts import Foreseen

logger = logging.getLogger(__name__)

OUTCOME = b"x-hotwire-outcome"
GENERATION = b"x-hotwire-generation"
REASON = b"x-hotwire-reason"

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

# Tasks that serve a request inherit its context, and so the list; it is the middleware's to read.
_notes: ContextVar[list[Foreseen] | None] = ContextVar("hotwire_notes", default=None)


def note(foresee: Callable[[], Foreseen | None]) -> None:
    """Note what is foreseen for a request to the engine, if an HTTP response waits for it."""
    notes = _notes.get()
    if notes is None:
        return
    try:
        if (foreseen := foresee()) is not None:
            notes.append(foreseen)
    except Exception:
        logger.exception("a response goes without its headers", extra=named("headers not set"))


class ReceiptHeaders:
    """The middleware. It adds headers or nothing, and breaks no response."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Serve a connection; anything but HTTP goes through untouched."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        notes: list[Foreseen] = []

        async def noting(message: Message) -> None:
            if notes and message["type"] == "http.response.start":
                message = _with_headers(message, notes)
            await send(message)

        token = _notes.set(notes)
        try:
            await self._app(scope, receive, noting)
        finally:
            _notes.reset(token)


def _with_headers(message: Message, notes: list[Foreseen]) -> Message:
    try:
        return {**message, "headers": [*message.get("headers", ()), *_headers(notes)]}
    except Exception:
        logger.exception("a response goes without its headers", extra=named("headers not set"))
        return message


def _headers(notes: list[Foreseen]) -> list[tuple[bytes, bytes]]:
    """Of several prompts, the first that is not steered as asked is told of, else the first."""
    told = next((each for each in notes if each.reason), notes[0])
    headers = [(OUTCOME, told.outcome.encode()), (GENERATION, str(told.generation).encode())]
    if told.reason:
        headers.append((REASON, told.reason.encode()))
    return headers
