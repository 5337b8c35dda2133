"""Health and reflection answer bytes that are no message as our own service does."""

import functools
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc

from hotwired.decoding import Undecodable, undecoded
from hotwired.rpc import Context, refuse


class LibraryCalls(grpc.aio.ServerInterceptor):
    """Stands before the methods of services that come with gRPC."""

    def __init__(self, own_service: str, limit: int) -> None:
        self._own = f"/{own_service}/"
        self._limit = limit

    async def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
        """Lets what the method gets be decoded here, and refused here if it can't be."""
        handler = await continuation(handler_call_details)
        if handler is None or handler_call_details.method.startswith(self._own):
            return handler
        decode = undecoded(handler.request_deserializer, self._limit)
        handler = handler._replace(request_deserializer=decode)
        if handler.unary_unary:
            return handler._replace(unary_unary=_one(handler.unary_unary))
        if handler.unary_stream:
            return handler._replace(unary_stream=_many(handler.unary_stream, _message))
        return handler._replace(stream_stream=_many(handler.stream_stream, _messages))


def _one(inner: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    @functools.wraps(inner)
    async def method(request: Any, context: Context) -> Any:
        return await inner(await _message(request, context), context)

    return method


def _many(
    inner: Callable[..., Any], check: Callable[[Any, Context], Awaitable[Any]]
) -> Callable[..., Any]:
    @functools.wraps(inner)
    async def method(request: Any, context: Context) -> Any:
        answer = inner(await check(request, context), context)
        if not hasattr(answer, "__aiter__"):
            await answer  # it writes to the context itself
            return
        async for message in answer:
            await context.write(message)

    return method


async def _message(request: Any, context: Context) -> Any:
    if isinstance(request, Undecodable):
        await refuse(context, request.error)
    return request


async def _messages(requests: AsyncIterator[Any], context: Context) -> AsyncIterator[Any]:
    async def checked() -> AsyncIterator[Any]:
        async for request in requests:
            yield await _message(request, context)

    return checked()
