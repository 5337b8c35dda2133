"""What every RPC has in common: its deadline, its errors, its one line in the log."""

import asyncio
import functools
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, NoReturn, TypeVar

import grpc
import structlog

from hotwired import tracing
from hotwired.accounts import current
from hotwired.decoding import checked
from hotwired.errors import DETAILS_KEY, HotwireError, known, to_status
from hotwired.log import get
from hotwired.metrics.counted import rpc_duration
from hotwired.staging import Caller
from hotwired.v1 import steering_service_pb2

SERVICE = steering_service_pb2.DESCRIPTOR.services_by_name["SteeringService"].full_name

Context = grpc.aio.ServicerContext[Any, Any]

_Service = TypeVar("_Service")
_Request = TypeVar("_Request")
_Response = TypeVar("_Response")

# Beyond this, a deadline is how gRPC writes that there is none.
_NO_DEADLINE = 10 * 365 * 86400.0


def caller(context: Context, default_seconds: float) -> Caller:
    """Returns who asks, and until when: 90 % of the time to the deadline, or of the default."""
    # Typed as a number always; it is None if the caller set no deadline.
    left: float | None = context.time_remaining()
    if left is None or left > _NO_DEADLINE:
        left = default_seconds
    account = current()
    return Caller(context.peer(), time.monotonic() + 0.9 * left, account.name, account.max_vectors)


def note(**fields: object) -> None:
    """Adds fields, such as vector and generation, to the line that the RPC will log."""
    structlog.contextvars.bind_contextvars(**fields)


def unary(
    method: Callable[[_Service, _Request, Context], Awaitable[_Response]],
) -> Callable[[_Service, _Request, Context], Awaitable[_Response]]:
    """Wraps a method that returns one message."""

    @functools.wraps(method)
    async def wrapped(self: _Service, request: _Request, context: Context) -> _Response:
        async with _call(method.__name__, context) as call:
            return await method(self, checked(request), context)
        return await _abort(context, call)

    return wrapped


def streaming(
    method: Callable[[_Service, _Request, Context], AsyncIterator[_Response]],
) -> Callable[[_Service, _Request, Context], AsyncIterator[_Response]]:
    """Wraps a method that yields messages."""

    @functools.wraps(method)
    async def wrapped(self: _Service, request: _Request, context: Context) -> Any:
        async with _call(method.__name__, context) as call:
            async for message in method(self, checked(request), context):
                yield message
            return
        await _abort(context, call)

    return wrapped


class _Call:
    error: HotwireError | None = None


@asynccontextmanager
async def _call(method: str, context: Context) -> AsyncIterator[_Call]:
    """Swallows an error into the call it yields, and logs how the RPC ended."""
    started = time.monotonic()
    # Asked for now: of a call that was cancelled, gRPC reads freed memory.
    peer, account = context.peer(), current()
    structlog.contextvars.clear_contextvars()
    span = tracing.started(f"{SERVICE}/{method}", context.invocation_metadata() or ())
    if span is not None:
        note(trace_id=span.trace_id, span_id=span.span_id)
    call = _Call()
    code, reason = "OK", ""
    try:
        yield call
    except (asyncio.CancelledError, GeneratorExit):
        code = "CANCELLED"
        raise
    except Exception as exc:  # noqa: BLE001 -- whatever it is, the caller gets a status
        call.error = known(exc)
        # An upload whose caller went away looks cut short to its reader.
        code = "CANCELLED" if context.cancelled() else call.error.code.name
        reason = call.error.reason
        if call.error is not exc:
            get().exception("internal error", method=method)
    finally:
        seconds = time.monotonic() - started
        rpc_duration.labels(method, code).observe(seconds)
        get().info(
            "rpc",
            method=method,
            code=code,
            reason=reason,
            duration_ms=round(seconds * 1000, 3),
            peer=peer,
            caller=account.name,
        )
        tracing.ended(span, code, structlog.contextvars.get_contextvars())
        structlog.contextvars.clear_contextvars()


async def _abort(context: Context, call: _Call) -> Any:
    await refuse(context, call.error or known(AssertionError()))


async def refuse(context: Context, error: HotwireError) -> NoReturn:
    """Ends an RPC with an error and its details."""
    status, code = to_status(error), error.code
    try:
        await context.abort(code, status.message, ((DETAILS_KEY, status.SerializeToString()),))
    except grpc.aio.AbortError:
        raise
    except Exception:  # noqa: BLE001 -- the caller went away meanwhile: nobody is left to tell
        raise asyncio.CancelledError from None
    raise AssertionError("abort always raises")
