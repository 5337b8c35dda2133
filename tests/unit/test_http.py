"""The middleware: headers that say what came of a request, on responses that are as they were."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from hotwire_plugin.http import Message, ReceiptHeaders, note
from hotwire_plugin.receipts import Foreseen

STEERED = Foreseen("steered", 7, None)
UNSTEERED = Foreseen("unsteered", 7, "VECTOR_NOT_FOUND")
App = Callable[[Message, Any, Any], Awaitable[None]]


def answering(*foreseen: Foreseen | None, first: bool = False) -> App:
    """Return an app that answers after what is foreseen is noted, or before if ``first``."""

    async def app(scope: Message, receive: Any, send: Any) -> None:
        start = {"type": "http.response.start", "status": 200, "headers": [(b"a", b"b")]}
        if first:
            await send(start)
        for each in foreseen:
            # As vLLM's handlers, which run in tasks of their own.
            await asyncio.create_task(noting(each))
        if not first:
            await send(start)
        await send({"type": "http.response.body", "body": b"text"})

    return app


async def noting(foreseen: Foreseen | None) -> None:
    """Note what is foreseen."""
    note(lambda: foreseen)


async def served(app: App, kind: str = "http") -> list[Message]:
    """Return what the app sends through the middleware."""
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    await ReceiptHeaders(app)({"type": kind}, None, send)  # type: ignore[arg-type]
    return sent


def headers(sent: list[Message]) -> dict[str, str]:
    """Return our headers of a response."""
    found = {k.decode(): v.decode() for k, v in sent[0]["headers"]}
    assert found.pop("a") == "b"
    assert sent[1]["body"] == b"text"
    return {name.removeprefix("x-hotwire-"): value for name, value in found.items()}


async def test_headers_say_outcome_generation_and_reason() -> None:
    """The reason only where there is one, and nothing for requests that ask for nothing."""
    assert headers(await served(answering(STEERED))) == {"outcome": "steered", "generation": "7"}
    told = {"outcome": "unsteered", "generation": "7", "reason": "VECTOR_NOT_FOUND"}
    assert headers(await served(answering(UNSTEERED))) == told
    assert headers(await served(answering(None))) == {}
    assert headers(await served(answering())) == {}


async def test_of_several_prompts_the_first_with_a_reason_is_told_of() -> None:
    """Else the first."""
    assert headers(await served(answering(STEERED, UNSTEERED, STEERED)))["outcome"] == "unsteered"
    clamped = STEERED._replace(outcome="clamped")
    assert headers(await served(answering(STEERED, clamped)))["outcome"] == "steered"


async def test_a_stream_that_has_begun_has_none() -> None:
    """Headers are out before its request is looked at."""
    assert headers(await served(answering(UNSTEERED, first=True))) == {}


async def test_requests_beside_each_other_are_kept_apart() -> None:
    """Each response tells of its own request."""
    apps = [answering(STEERED), answering(UNSTEERED), answering()] * 20
    answers = await asyncio.gather(*(served(app) for app in apps))
    outcomes = [headers(sent).get("outcome") for sent in answers]
    assert outcomes == ["steered", "unsteered", None] * 20


async def test_without_the_middleware_nothing_is_foreseen() -> None:
    """The decision is made for a response only."""

    def unwanted() -> Foreseen:
        raise AssertionError

    note(unwanted)

    async def app(scope: Message, receive: Any, send: Any) -> None:
        note(unwanted)

    await served(app, "websocket")


async def test_a_decision_that_fails_fails_no_request(caplog: pytest.LogCaptureFixture) -> None:
    """It is logged, and the response goes without headers."""

    def failing() -> Foreseen:
        raise RuntimeError("ours")

    async def app(scope: Message, receive: Any, send: Any) -> None:
        note(failing)
        await answering()(scope, receive, send)

    assert headers(await served(app)) == {}
    assert "ours" in caplog.text


async def test_it_breaks_no_response(caplog: pytest.LogCaptureFixture) -> None:
    """What it can't write is left out, and an app's error goes through as it is."""
    bad = Foreseen("steered\ud800", 1, None)
    assert headers(await served(answering(bad))) == {}
    assert "goes without" in caplog.text

    async def failing(scope: Message, receive: Any, send: Any) -> None:
        raise KeyError("app")

    with pytest.raises(KeyError, match="app"):
        await served(failing)
