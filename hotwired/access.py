"""Stands before every method: who calls, whether it may, and whether it does so too often."""

import contextlib
import functools
from collections.abc import Awaitable, Callable
from typing import Any

import grpc

from hotwired import accounts, roles
from hotwired.accounts import Account
from hotwired.errors import HotwireError
from hotwired.log import get
from hotwired.rpc import Context, refuse

Admit = Callable[[Any, Context], Awaitable[None]]


class Access(grpc.aio.ServerInterceptor):
    """Lets calls through to whatever server it is put before.

    identify: returns the account of who calls, or raises what it is refused with.
    """

    def __init__(self, identify: Callable[[Context], Account]) -> None:
        self._identify = identify

    async def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
        """Puts the checks before the method, where who is connected is known."""
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        return _guarded(handler, functools.partial(self._admit, handler_call_details.method))

    async def _admit(self, method: str, request: Any, context: Context) -> None:
        name = ""
        try:
            account = self._identify(context)
            name = account.name
            account.check_role(roles.asked(method, request), method)
            if not roles.is_emergency(request):
                account.take_call(write=roles.is_write(method))
        except HotwireError as exc:
            get().warning(
                "refused", method=method, caller=name, reason=exc.reason, peer=context.peer()
            )
            await refuse(context, exc)
        accounts.enter(account)


def of_certificates(known: accounts.Accounts) -> Access:
    """Returns what stands before TCP: callers show a certificate, and may send a token."""

    def identify(context: Context) -> Account:
        return known.find(context.auth_context(), context.invocation_metadata() or ())

    return Access(identify)


def of_socket() -> Access:
    """Returns what stands before the Unix socket, whose mode has decided who may call."""
    account = accounts.local()
    return Access(lambda _: account)


def _guarded(handler: Any, admit: Admit) -> Any:
    """Returns a method's handler with `admit` before it; of a stream, it sees no request."""
    kind = next(name for name in _KINDS if getattr(handler, name))
    wrap = _many if handler.response_streaming else _one
    return handler._replace(**{kind: wrap(getattr(handler, kind), admit, handler)})


_KINDS = ("unary_unary", "unary_stream", "stream_unary", "stream_stream")


def _one(inner: Callable[..., Awaitable[Any]], admit: Admit, handler: Any) -> Callable[..., Any]:
    async def method(request: Any, context: Context) -> Any:
        await admit(None if handler.request_streaming else request, context)
        return await inner(request, context)

    return method


def _many(inner: Callable[..., Any], admit: Admit, handler: Any) -> Callable[..., Any]:
    async def method(request: Any, context: Context) -> None:
        await admit(None if handler.request_streaming else request, context)
        with await _counted(context):
            answer = inner(request, context)
            if not hasattr(answer, "__aiter__"):
                await answer  # it writes to the context itself
                return
            async with contextlib.aclosing(answer) as messages:
                async for message in messages:
                    await context.write(message)

    return method


async def _counted(context: Context) -> contextlib.AbstractContextManager[object]:
    """Counts a stream of the caller's, however long it takes; refuses one too many."""
    try:
        return accounts.current().stream()
    except HotwireError as exc:
        await refuse(context, exc)
